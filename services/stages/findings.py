"""What the checker has to say, and where in which file it says it."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

Key = tuple[str | int, ...]
"""A path into the tree: names of mappings, indices of lists."""


class Level(StrEnum):
    """How much a finding matters: only an error stops a start or fails a check."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file (the first line is 1; 0 when the file as a whole is meant)."""

    file: Path
    line: int = 0

    def __str__(self) -> str:
        name = one_line(str(self.file), 300)
        return f"{name}:{self.line}" if self.line else name


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or worth knowing, with the mend in `message`."""

    level: Level
    place: Place
    key: str
    message: str

    def __str__(self) -> str:
        subject = f"{self.key}: " if self.key else ""
        return f"{self.place}: {self.level}: {subject}{self.message}"


class Refused(Exception):
    """A file that cannot be read any further: the one finding that ends a check."""

    def __init__(self, place: Place, key: Key | str, message: str) -> None:
        super().__init__(message)
        self.place, self.key, self.message = place, key, message

    def __str__(self) -> str:
        subject = f"{dotted(self.key)}: " if self.key else ""
        return f"{self.place}: {subject}{one_line(self.message)}"


@dataclass(slots=True)
class Findings:
    """The findings of one check, in the order in which they came up. Bounded a level: no flood, no lost error."""

    items: list[Finding] = field(default_factory=list)
    limit: int = 200

    def add(self, level: Level, place: Place, key: Key | str, message: str) -> None:
        """Note one finding; what comes past the limit of its level is dropped."""
        finding = Finding(level, place, one_line(dotted(key), 200), one_line(message))
        if sum(item.level is level for item in self.items) < self.limit and finding not in self.items:
            self.items.append(finding)

    def error(self, place: Place, key: Key | str, message: str) -> None:
        """Note what must be mended before a start."""
        self.add(Level.ERROR, place, key, message)

    def warn(self, place: Place, key: Key | str, message: str) -> None:
        """Note what works, at a price."""
        self.add(Level.WARNING, place, key, message)

    def note(self, place: Place, key: Key | str, message: str) -> None:
        """Note what could not be checked, or what happens silently."""
        self.add(Level.NOTE, place, key, message)

    @property
    def errors(self) -> list[Finding]:
        """The findings that stop a start."""
        return [item for item in self.items if item.level is Level.ERROR]


def dotted(key: Key | str) -> str:
    """`("stages", 0, "devices")` as `stages[0].devices`."""
    if isinstance(key, str):
        return key
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def one_line(text: str, limit: int = 600) -> str:
    """`text` without line breaks and control characters, at most `limit` characters long."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def shown(value: object) -> str:
    """A value as it may stand in a message: its repr, on one line, never long."""
    if isinstance(value, str):
        return one_line(repr(value[:80]), 100)
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    return one_line(repr(value), 100)
