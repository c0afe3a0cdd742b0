"""Stage-time profiles: what one AR run and one DiT run take, on some device, and who says so."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.wire.errors import ConfigError
from services.wire.geometry import MAX_SIDE, MIN_SIDE

SHIPPED = Path(__file__).parent / "profiles"
MAX_FILE = 1 << 16  # bytes
MAX_DEPTH = 16  # of nested lists and mappings

Seconds = Annotated[float, Field(gt=0, le=1e6)]
Gibibytes = Annotated[float, Field(gt=0, le=1e5)]
Side = Annotated[int, Field(ge=MIN_SIDE, le=MAX_SIDE)]  # pixels
TensorParallel = Annotated[int, Field(ge=1, le=64)]
Batch = Annotated[int, Field(ge=1, le=4096)]
Line = Annotated[str, Field(min_length=1, max_length=1000)]
Factor = Annotated[float, Field(ge=1, le=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ArRun(_Strict):
    """AR seconds at one size. seconds: by batch size, until a batch that began together is done. memory: a GPU."""

    tp: TensorParallel = 1
    width: Side
    height: Side
    seconds: Annotated[dict[Batch, Seconds], Field(min_length=1, max_length=256)]
    memory_gib: Gibibytes | None = None  # weights and activations of one GPU, without the KV cache

    @model_validator(mode="after")
    def _grows(self) -> "ArRun":
        times = [self.seconds[batch] for batch in sorted(self.seconds)]
        if times != sorted(times):
            raise ValueError("a larger batch cannot take less time than a smaller one")
        if 1 not in self.seconds:
            raise ValueError("the time of batch 1 is needed")
        return self


class DitRun(_Strict):
    """DiT seconds of one image. fixed: the part that does not grow with steps (text encoder, VAE, encoding)."""

    tp: TensorParallel = 1
    width: Side
    height: Side
    steps: Annotated[int, Field(ge=1, le=1000)]
    seconds: Seconds
    fixed_seconds: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    memory_gib: Gibibytes | None = None  # of one GPU

    @model_validator(mode="after")
    def _adds_up(self) -> "DitRun":
        if self.fixed_seconds >= self.seconds:
            raise ValueError("fixed_seconds must be less than seconds, of which it is a part")
        return self


class Ar(_Strict):
    """The AR stage. kv_kib_per_token: KV cache of one token, all layers, before it is split by TP."""

    runs: Annotated[list[ArRun], Field(min_length=1, max_length=256)]
    kv_kib_per_token: Annotated[float, Field(ge=0, le=1e5)] = 0.0


class Dit(_Strict):
    """The DiT stage: one image at a time in a replica."""

    runs: Annotated[list[DitRun], Field(min_length=1, max_length=256)]


class Monolith(_Strict):
    """What the fleet is compared with.

    pair: both stages in one deployment, each on its own GPUs, overlapping. single: one image at a time, both stages
    on the same GPUs. ar_batch: requests that its AR stage runs at once.
    """

    kind: Literal["pair", "single"] = "pair"
    ar_batch: Batch = 1


class Contention(_Strict):
    """Both stages on the same few cores: the factor on a stage's time while the other one works."""

    ar: Factor = 1.0
    dit: Factor = 1.0


class Profile(_Strict):
    """One device's stage times. assumed: what had to be borrowed or guessed; printed with every plan."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]
    origin: Literal["measured", "published"]
    device: Line
    memory_gib: Gibibytes
    sources: Annotated[list[Line], Field(min_length=1, max_length=64)]
    assumed: Annotated[list[Line], Field(max_length=64)] = []
    ar: Ar
    dit: Dit
    monolith: Monolith = Monolith()
    contention: Contention | None = None
    overhead_seconds: Annotated[float, Field(ge=0, le=1e4)] = 0.0  # hand-off, gateway and network of one image


def names() -> list[str]:
    """The profiles that ship with Diptych."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load(name_or_path: str) -> Profile:
    """A shipped profile by name, or a YAML or JSON file by path. Raises ConfigError that names the field."""
    shipped = name_or_path in names()
    path = SHIPPED / f"{name_or_path}.yaml" if shipped else Path(name_or_path)
    if not shipped and not path.suffix:
        raise ConfigError(f"no profile {name_or_path!r}; there are {', '.join(names())}, or give a .yaml or .json file")
    return parse(_read(path), str(path))


def parse(text: str, origin: str) -> Profile:
    """A profile from YAML (JSON is YAML too). origin: what errors call it. Raises ConfigError."""
    content = _yaml(text, origin)
    if not isinstance(content, dict):
        raise ConfigError(f"{origin}: a profile is a mapping with name, device, ar and dit; see docs/planner.md")
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the profile"
        raise ConfigError(f"{origin}: {field}: {first['msg']}", param=field) from error


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE:
            raise ConfigError(f"{path}: {path.stat().st_size} bytes; a profile has at most {MAX_FILE}")
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name, or bytes that are no UTF-8
        raise ConfigError(f"{path}: cannot be read as text: {error}") from error


def _yaml(text: str, origin: str) -> Any:
    """Plain YAML: shallow, and without aliases, which can stand for more nodes than memory holds."""
    depth = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ConfigError(f"{origin}: nested more than {MAX_DEPTH} deep, which no profile is")
            if isinstance(event, yaml.AliasEvent):
                raise ConfigError(f"{origin}: YAML aliases (*name) are not taken here; write the values out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{origin}: not valid YAML: {line}") from error
