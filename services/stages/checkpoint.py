"""The sizes of a checkpoint that tensor parallelism must divide, from its config files. No weights are read."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.wire.errors import ConfigError

_MAX_CONFIG_BYTES = 1 << 20
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartSizes:
    """What must be divisible by the TP size in one stage. whole: name -> size. kv_heads: copied when TP is larger."""

    origin: str
    whole: dict[str, int]
    kv_heads: int | None = None

    def fits(self, tensor_parallel_size: int) -> bool:
        """Whether every rank gets an equal share."""
        return not self.in_the_way(tensor_parallel_size)

    def in_the_way(self, tensor_parallel_size: int) -> list[str]:
        """The sizes that cannot be divided, in words."""
        tp = tensor_parallel_size
        found = [f"{size} {name}" for name, size in self.whole.items() if size % tp]
        kv = self.kv_heads
        if kv and (kv % tp if kv >= tp else tp % kv):
            found.append(f"{kv} key-value heads")
        return found

    def that_work(self) -> list[int]:
        """The TP sizes up to 64 that divide everything."""
        return [tp for tp in range(1, 65) if self.fits(tp)]


# The published checkpoint: AR 32 query and 2 key-value heads; DiT 32 heads of 128, so hidden 4096 and FFN 4 x 4096.
# Source: vision_language_encoder/config.json and transformer/config.json of zai-org/GLM-Image.
PUBLISHED_MODEL = "zai-org/GLM-Image"
_PUBLISHED = {
    "ar": PartSizes("the published sizes", {"attention heads": 32}, 2),
    "dit": PartSizes("the published sizes", {"attention heads": 32, "hidden units": 4096, "FFN units": 16384}),
}


def part_sizes(model: str, role: str, part: str, environ: Mapping[str, str]) -> PartSizes | None:
    """The sizes of the stage that `role` runs; None if the checkpoint is not on this machine and not the published one.

    model: a folder, or a hub id that may be in the hub's cache. part: the folder of the checkpoint that the stage
    loads. Raises `ConfigError` if there is a config file that cannot be read.
    """
    folder = _folder(model, environ)
    path = folder / part / "config.json" if folder else None
    if path is None or not path.is_file():
        return _PUBLISHED.get(role) if model == PUBLISHED_MODEL else None
    config = _read(path)
    return _ar_sizes(config, path) if role == "ar" else _dit_sizes(config, path)


def _folder(model: str, environ: Mapping[str, str]) -> Path | None:
    try:
        local = Path(model).expanduser()
        if local.is_dir():
            return local
        if not _HUB_ID.fullmatch(model):
            return None
        home = environ.get("HF_HOME") or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
        cache = Path(environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")).expanduser()
        repository = cache / f"models--{model.replace('/', '--')}"
        revision = repository / "refs" / "main"
        return (
            repository / "snapshots" / revision.read_text(encoding="ascii")[:64].strip() if revision.is_file() else None
        )
    except (OSError, RuntimeError, ValueError):  # unreadable, no home folder, a NUL in the name: not on this machine
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            config = json.loads(stream.read(_MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({type(error).__name__}); download the checkpoint again") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: is no mapping; download the checkpoint again")
    return config


def _size(config: Mapping[str, Any], name: str, path: Path) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
        raise ConfigError(f"{path}: {name} must be a whole number of 1 or more; download the checkpoint again")
    return value


def _dit_sizes(config: dict[str, Any], path: Path) -> PartSizes:
    """Source: `validate_glm_image_tp_constraints` and its call in vLLM-Omni's glm_image_transformer.py."""
    heads = _size(config, "num_attention_heads", path)
    hidden = heads * _size(config, "attention_head_dim", path)
    return PartSizes(str(path), {"attention heads": heads, "hidden units": hidden, "FFN units": 4 * hidden})


def _ar_sizes(config: dict[str, Any], path: Path) -> PartSizes:
    """Source: the text attention and the vision tower of vLLM-Omni's glm_image_ar model."""
    text = config.get("text_config")
    text = text if isinstance(text, dict) else config
    whole = {"query heads": _size(text, "num_attention_heads", path)}
    if "intermediate_size" in text:
        whole["FFN units"] = _size(text, "intermediate_size", path)
    vision = config.get("vision_config")
    if isinstance(vision, dict) and "num_heads" in vision:
        whole["vision heads"] = _size(vision, "num_heads", path)
    kv = _size(text, "num_key_value_heads", path) if "num_key_value_heads" in text else whole["query heads"]
    return PartSizes(str(path), whole, kv)
