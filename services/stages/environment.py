"""The resolvers that read the environment, for use inside `${...}` of a stage configuration.

| written | gives |
|---|---|
| `${env.int:AR_TP,1}` | a whole number of 1 or more |
| `${env.float:AR_MEMORY,0.6}` | a finite number |
| `${env.bool:AR_EAGER,false}` | a flag: true/false, yes/no, on/off, 1/0 |
| `${env.str:MODEL,'zai-org/GLM-Image'}` | text |
| `${env.devices:AR_DEVICES,'0,1'}` | a device list, always text: `2,3` stays `2,3` |
| `${devices.first:2}` | the first devices: `0,1` |

A variable that is set but empty counts as unset (compose files pass empty strings). Without a default, an unset
variable is an error, and only for the stage that needs it.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from omegaconf import OmegaConf

from services.stages.findings import shown

_T = TypeVar("_T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_MAX_TP = 4096  # more devices than any node has; keeps `devices.first` from writing megabytes


class BadVariable(ValueError):
    """A variable, or the default written for it, is not what the resolver promises."""


@dataclass(slots=True)
class Trace:
    """One resolution: the environment that it reads, and the variables that it read (name, was it set)."""

    environ: Mapping[str, str]
    reads: list[tuple[str, bool]] = field(default_factory=list)
    problem: str | None = None


_trace: ContextVar[Trace | None] = ContextVar("diptych_stage_environment", default=None)


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Let the resolvers read from, and report to, `trace`."""
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)


def parse_int(name: str, text: object) -> int:
    """A whole number of 1 or more."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 1:
        return text
    if isinstance(text, str) and re.fullmatch(r"0*[1-9][0-9]{0,17}", text.strip(), re.ASCII):
        return int(text)
    raise BadVariable(f"{name} must be a whole number of 1 or more, got {shown(text)}")


def parse_float(name: str, text: object) -> float:
    """A finite number."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = repr(text)
    if isinstance(text, str) and re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]{1,3})?", text.strip(), re.ASCII):
        number = float(text)
        if math.isfinite(number):
            return number
    raise BadVariable(f"{name} must be a number, got {shown(text)}")


def parse_bool(name: str, text: object) -> bool:
    """A flag."""
    found = _FLAGS.get(str(text).strip().lower())
    if found is None:
        raise BadVariable(f"{name} must be true or false, got {shown(text)}")
    return found


def parse_str(name: str, text: object) -> str:
    """Text on one line."""
    if isinstance(text, str) and text.isprintable():
        return text
    if isinstance(text, int | float) and not isinstance(text, bool):
        return str(text)
    raise BadVariable(f"{name} must be text on one line, got {shown(text)}")


def parse_devices(name: str, text: object) -> str:
    """Device indices with commas between, none twice, always as text."""
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    parts = [part.strip() for part in text.split(",")] if isinstance(text, str) else []
    if not parts or not all(re.fullmatch(r"[0-9]{1,4}", part, re.ASCII) for part in parts):
        raise BadVariable(f"{name} must be device numbers with commas between, such as 0,1, got {shown(text)}")
    if len({int(part) for part in parts}) != len(parts):
        raise BadVariable(f"{name} names a device twice, got {shown(text)}")
    return ",".join(parts)


def _read(parse: Callable[[str, object], _T], name: object, defaults: tuple[object, ...]) -> _T:
    trace = _trace.get()
    if trace is None:
        raise BadVariable("env resolvers only work while a stage configuration is being read")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _problem(trace, f"{shown(name)} is no name for an environment variable")
    raw = trace.environ.get(name)
    given = raw is not None and raw.strip() != ""
    trace.reads.append((name, given))
    if not given and not defaults:
        raise _problem(trace, f"{name} is not set, and no default is written for it; set {name}")
    default: object = defaults[0] if len(defaults) == 1 else ",".join(str(part) for part in defaults)
    try:
        return parse(name, raw) if given else parse(f"the default of {name}", default)
    except BadVariable as error:
        raise _problem(trace, str(error)) from error


def _problem(trace: Trace, message: str) -> BadVariable:
    trace.problem = trace.problem or message
    return BadVariable(message)


def _env_int(name: object, *default: object) -> int:
    return _read(parse_int, name, default)


def _env_float(name: object, *default: object) -> float:
    return _read(parse_float, name, default)


def _env_bool(name: object, *default: object) -> bool:
    return _read(parse_bool, name, default)


def _env_str(name: object, *default: object) -> str:
    return _read(parse_str, name, default)


def _env_devices(name: object, *default: object) -> str:
    return _read(parse_devices, name, default)


def _plain_env(name: object, *default: object) -> str | None:
    """What `${oc.env:...}` means, but from the environment that is being checked: always text, empty stays empty."""
    trace = _trace.get()
    if trace is None or not isinstance(name, str):
        raise BadVariable("oc.env needs the name of a variable")
    if len(default) > 1:
        raise _problem(trace, f"oc.env takes one default, got {len(default)}: quote a default that holds commas")
    raw = trace.environ.get(name)
    trace.reads.append((name, raw is not None))
    if raw is not None:
        return raw
    if not default:
        raise _problem(trace, f"{name} is not set, and no default is written for it; set {name}")
    return None if default[0] is None else str(default[0])


def _devices_first(count: object) -> str:
    trace = _trace.get() or Trace({})
    try:
        number = parse_int("the number of devices", count)
    except BadVariable as error:
        raise _problem(trace, str(error)) from error
    if number > _MAX_TP:
        raise _problem(trace, f"{number} devices are more than any node has")
    return ",".join(str(i) for i in range(number))


def register() -> None:
    """Make the resolvers known to OmegaConf (once a process; again is harmless)."""
    for name, resolver in (
        ("env.int", _env_int),
        ("env.float", _env_float),
        ("env.bool", _env_bool),
        ("env.str", _env_str),
        ("env.devices", _env_devices),
        ("env.plain", _plain_env),
        ("devices.first", _devices_first),
    ):
        OmegaConf.register_resolver(name, resolver, replace=True, annotation_validation="off")
