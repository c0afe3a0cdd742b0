"""What is asked of the fleet: a rate, a percentile, and a mix of sizes and steps."""

import math
import re
from dataclasses import dataclass

from services.wire.errors import ConfigError
from services.wire.geometry import MAX_RATIO, MAX_SIDE, MIN_SIDE, canonical_side, prior_budget

MAX_STEPS = 1000
MAX_RATE = 1e5  # images a second
_KIND = re.compile(r"^(\d{1,5})[xX](\d{1,5}):(\d{1,5})(?::([0-9.eE+-]{1,20}))?$")


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of image. width, height: pixels as asked for; share: of all images, 0..1."""

    width: int
    height: int
    steps: int
    share: float = 1.0

    @property
    def pixels(self) -> int:
        """Pixels that are painted: of the canonical size."""
        return canonical_side(self.width) * canonical_side(self.height)

    @property
    def tokens(self) -> int:
        """Prior tokens that the AR stage writes for a text-to-image request."""
        return prior_budget(canonical_side(self.width), canonical_side(self.height), edit=False)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}, {self.steps} steps"


Mix = tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """rate: images a second. p95: seconds from request to image, or None. max_load: of either stage, 0..1."""

    rate: float
    mix: Mix
    p95: float | None = None
    max_load: float = 0.9


def parse_mix(entries: tuple[str, ...]) -> Mix:
    """`WIDTHxHEIGHT:STEPS[:SHARE]` entries as kinds whose shares add up to 1. Raises ConfigError."""
    if not 0 < len(entries) <= 64:
        raise ConfigError(f"--mix: between 1 and 64 kinds of image can be given, not {len(entries)}", param="mix")
    kinds = [_kind(entry) for entry in entries]
    whole = math.fsum(kind.share for kind in kinds)
    return tuple(Kind(kind.width, kind.height, kind.steps, kind.share / whole) for kind in kinds)


def _kind(entry: str) -> Kind:
    found = _KIND.match(entry)
    if found is None:
        raise ConfigError(f"--mix {entry!r}: write WIDTHxHEIGHT:STEPS or WIDTHxHEIGHT:STEPS:SHARE", param="mix")
    width, height, steps = (int(part) for part in found.groups()[:3])
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in (width, height)) or not 1 <= steps <= MAX_STEPS:
        limits = f"sides are {MIN_SIDE}..{MAX_SIDE} pixels, steps 1..{MAX_STEPS}"
        raise ConfigError(f"--mix {entry!r}: {limits}", param="mix")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ConfigError(f"--mix {entry!r}: the longer side is at most {MAX_RATIO} times the shorter", param="mix")
    share = positive("mix share", found.group(4) or "1", most=1e9)
    return Kind(width, height, steps, share)


def positive(what: str, value: str | float, *, most: float) -> float:
    """`value` as a number in 0 < value <= most. Raises ConfigError that names `what`."""
    try:
        number = float(value)
    except ValueError as error:
        raise ConfigError(f"{what}: {value!r} is not a number", param=what) from error
    if not 0 < number <= most:  # NaN fails too
        raise ConfigError(f"{what}: {number} is not above 0 and at most {most:g}", param=what)
    return number
