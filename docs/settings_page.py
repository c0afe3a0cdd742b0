"""Writes docs/settings.md from the settings classes: `python docs/settings_page.py > docs/settings.md`."""

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Literal, get_args, get_origin

from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from services.ar.settings import ArSettings
from services.dit.settings import DitSettings
from services.gateway.settings import GatewaySettings
from services.handoff.settings import HandoffSettings
from services.observe.settings import ObserveSettings
from services.serving.settings import StageSettings
from services.sim.settings import SimSettings

Room = tuple[str, type[BaseSettings], tuple[type[BaseSettings], ...], str]

ROOMS: tuple[Room, ...] = (
    ("Gateway", GatewaySettings, (), "The `diptych gateway` process."),
    ("AR and DiT services", StageSettings, (), "Both stage services read these."),
    ("AR service", ArSettings, (StageSettings,), "The `diptych ar` process, besides the shared ones."),
    ("DiT service", DitSettings, (StageSettings,), "The `diptych dit` process, besides the shared ones."),
    ("Hand-off", HandoffSettings, (), "Both stage services: the AR produces, the DiT consumes."),
    ("Logs and traces", ObserveSettings, (), "All services."),
    ("Simulator", SimSettings, (), "Stage services with `DIPTYCH_ENGINE=sim`, which paints nothing."),
)
PREAMBLE = """# Settings

Every setting is an environment variable; a command's flag beats it, and it beats the default. An empty variable counts
as unset. The environment is read once, at start, and a value that cannot be right ends the start with one line that
names the variable. Durations are seconds and sizes bytes, unless the text says otherwise.

This page is made from the settings classes (`python docs/settings_page.py`), and a test holds it to them.
"""
OTHERS = """## Read by the stage configurations

`MODEL`, `AR_TP`, `DIT_TP`, `AR_DEVICES`, `DIT_DEVICES`, `AR_MAX_NUM_SEQS`, `DIT_MAX_NUM_SEQS`, `AR_MEMORY` and
`DIPTYCH_CACHE`, in the files under `stage_configs/`: see [stage configurations](stage-configs.md). `diptych check FILE`
shows what each resolves to.

## Read by the launcher

`ROLE`, `ADVERTISE_HOST`, `AR_URLS`, `DIT_URLS`, `DIPTYCH_BIN`, `DIPTYCH_START_TIMEOUT` and `DIPTYCH_STOP_TIMEOUT`, at
the top of `launch/launch.sh`: see [two nodes](two-nodes.md).

## Passed through

`UCX_*` and `NIXL_*` go to UCX and NIXL, `CUDA_VISIBLE_DEVICES`, `NVIDIA_*`, `HF_*`, `VLLM_*`, `TORCH*` and `OTEL_*` to
their libraries, all unchanged. Where Diptych has a setting for the same thing, the library's own variable wins.
"""


def variables(kind: type[BaseSettings], name: str, field: FieldInfo) -> list[str]:
    """The environment variables of a field, the one to use first."""
    prefix = str(kind.model_config.get("env_prefix", ""))
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        named = [str(choice) for choice in alias.choices if str(choice).isupper()]
        if named:
            return named
    return [f"{prefix}{name}".upper()]


def type_name(annotation: object) -> str:
    """An annotation in the words of somebody who writes an environment file."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return "comma list"
    if origin is dict:
        return "name=number list"
    if arguments:
        return " or ".join(type_name(part) for part in arguments if part is not type(None))
    words = {int: "whole number", float: "number", bool: "flag", str: "text", SecretStr: "secret", Path: "path"}
    return words.get(annotation, str(annotation)) if isinstance(annotation, type) else str(annotation)


def default_text(value: object) -> str:
    """A default as it would be written into an environment file; nothing for none."""
    if value is None or value in ("", ()) or (isinstance(value, SecretStr) and not value.get_secret_value()):
        return ""
    if isinstance(value, dict):
        return f"`{','.join(f'{key}={item}' for key, item in value.items())}`"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if isinstance(value, str | int | PurePath) else str(value)


def bounds(field: FieldInfo) -> str:
    """The limits of a number: `1 to 65535`, `above 0`."""
    found = {key: getattr(rule, key) for rule in field.metadata for key in ("ge", "gt", "le") if hasattr(rule, key)}
    low = found.get("ge", found.get("gt"))
    text = "" if low is None else f"above {low}" if "gt" in found else f"from {low}"
    return f"{text} to {found['le']}".strip() if "le" in found else text


def rows(kind: type[BaseSettings], inherited: tuple[type[BaseSettings], ...]) -> Iterator[str]:
    """The table's lines of the fields that `kind` adds."""
    known = {name for parent in inherited for name in parent.model_fields}
    for name, field in kind.model_fields.items():
        if name in known:
            continue
        named = "` or `".join(variables(kind, name, field))
        kind_of = ", ".join(part for part in (type_name(field.annotation), bounds(field)) if part)
        text = (field.description or "").replace("|", "\\|")
        yield f"| `{named}` | {kind_of} | {default_text(field.default)} | {text} |"


def page() -> str:
    """The whole of docs/settings.md."""
    parts = [PREAMBLE]
    for title, kind, inherited, text in ROOMS:
        table = "\n".join(
            ["| variable | value | default | what it does |", "|---|---|---|---|", *rows(kind, inherited)]
        )
        parts.append(f"## {title}\n\n{text}\n\n{table}\n")
    return "\n".join([*parts, OTHERS])


if __name__ == "__main__":
    print(page(), end="")
