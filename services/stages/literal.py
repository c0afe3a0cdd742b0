"""Interpolations -> literal values, a leaf at a time, and for each leaf the record of where it came from.

Only what is asked for is resolved. That is what lets the DiT node read a file whose AR half needs variables that it
does not have.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from services.stages.environment import Trace, register, tracing
from services.stages.findings import Findings, Key, Place, Refused, one_line, shown
from services.stages.yaml_tree import MAX_SCALAR, Node

MAX_INTERPOLATED = 500  # characters of a value with ${...}: the grammar's parser is slow and recursive
MAX_BRACES = 16  # ${...} in one value
MAX_EXPANSION = 10_000  # what references to references may multiply to
MAX_VALUES = 10_000
MAX_REFERRED_DEPTH = 8  # of a mapping or list that a value refers to

_REFERENCE = re.compile(r"\$\{(?!\s*[\w.]+\s*:)|\$\{\s*oc\.(?:select|deprecated|dict\.\w+)\s*:")
_OC_ENV = re.compile(r"(?<!\\)\$\{\s*oc\.env\s*:")


@dataclass(frozen=True, slots=True)
class Source:
    """Where one value came from: written in the file, from a variable, or a default because the variable is unset."""

    kind: Literal["file", "env", "default"]
    place: Place
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "file":
            return str(self.place)
        names = ", ".join(self.variables)
        return f"{names} (environment)" if self.kind == "env" else f"{self.place} (default, {names} unset)"


class Literals:
    """The merged tree with its interpolations, resolved on demand against one environment."""

    def __init__(self, root: Node, environ: Mapping[str, str], findings: Findings) -> None:
        register()
        self.root = root
        self.environ = environ
        self.findings = findings
        self.sources: dict[Key, Source] = {}
        self._left = MAX_VALUES
        plain = self._checked(root, ())
        bound = _expansion(root)
        if bound > MAX_EXPANSION:
            findings.error(root.place, "", "references multiply one another to more values than fit; write values out")
            plain = {}
        self._config = OmegaConf.create(plain)
        self._hollow = bound > MAX_EXPANSION

    def value(self, key: Key) -> Any:
        """The literal value at `key` (dicts, lists, scalars). What cannot be resolved is left out, with a finding."""
        node, container = self.root, self._config
        if self._hollow:
            return None
        for i, part in enumerate(key):
            child = _child(node, part)
            if child is None:
                return None
            if i == len(key) - 1:
                return _present(self._leaf(child, container, part, key))
            found = _present(self._raw(child, container, part, key[: i + 1]))
            if not isinstance(found, DictConfig | ListConfig):
                return None
            node, container = child, found
        return _present(self._walk(node, container, key))

    def _checked(self, node: Node, key: Key) -> Any:
        """The plain tree with every value that OmegaConf could not even parse replaced by null."""
        if isinstance(node.value, dict):
            return {name: self._checked(child, (*key, name)) for name, child in node.value.items()}
        if isinstance(node.value, list):
            return [self._checked(child, (*key, i)) for i, child in enumerate(node.value)]
        if isinstance(node.value, str) and "${" in node.value:
            text = _OC_ENV.sub("${env.plain:", node.value)
            problem = _unparsable(text)
            if problem:
                self.findings.error(node.place, key, problem)
                return None
            return text
        if node.value == "???":
            self.findings.error(node.place, key, "a value is still missing (???); write it")
            return None
        return node.value

    def _walk(self, node: Node, container: Any, key: Key) -> Any:
        if isinstance(node.value, dict):
            found = {k: self._leaf(child, container, k, (*key, k)) for k, child in node.value.items()}
            return {name: value for name, value in found.items() if value is not _FAILED}
        if isinstance(node.value, list):
            items = [self._leaf(child, container, i, (*key, i)) for i, child in enumerate(node.value)]
            return [item for item in items if item is not _FAILED]
        return node.value

    def _leaf(self, node: Node, container: Any, part: str | int, key: Key) -> Any:
        raw = self._raw(node, container, part, key)
        if raw is _FAILED or not isinstance(raw, DictConfig | ListConfig):
            return raw
        if isinstance(node.value, dict | list):
            return self._walk(node, raw, key)
        return self._expand(raw, node, key, MAX_REFERRED_DEPTH)

    def _raw(self, node: Node, container: Any, part: str | int, key: Key) -> Any:
        """One value: a scalar, or a container of OmegaConf's that still has its interpolations."""
        self._left -= 1
        if self._left < 0:
            raise Refused(node.place, key, f"more than {MAX_VALUES} values after resolving; cut the file down")
        trace = Trace(self.environ)
        try:
            with tracing(trace):
                value = container[part]
        except (OmegaConfBaseException, RecursionError, ValueError, TypeError, LookupError, OverflowError) as error:
            self.findings.error(node.place, key, _reason(trace, node, error))
            return _FAILED
        self.sources[key] = _source(node, trace)
        return self._acceptable(value, node, key)

    def _acceptable(self, value: Any, node: Node, key: Key) -> Any:
        if value is None or isinstance(value, DictConfig | ListConfig | bool):
            return value
        fits = (
            (isinstance(value, str) and len(value) <= MAX_SCALAR)
            or (isinstance(value, int) and abs(value) < 2**63)
            or (isinstance(value, float) and math.isfinite(value))
        )
        if fits and isinstance(value, str) and "${" in value:
            self.findings.error(
                node.place, key, f"{shown(value)} would be resolved once more by vLLM-Omni; write it out"
            )
            return _FAILED
        if fits:
            return value
        self.findings.error(node.place, key, f"resolves to {shown(value)}, which no setting takes")
        return _FAILED

    def _expand(self, container: Any, node: Node, key: Key, depth: int) -> Any:
        """A container that a leaf refers to, resolved under the leaf's own place."""
        if not depth:
            message = f"refers to more than {MAX_REFERRED_DEPTH} levels of mappings; write the values out"
            raise Refused(node.place, key, message)
        parts: list[Any] | range = (
            list(container.keys()) if isinstance(container, DictConfig) else range(len(container))
        )
        found = {}
        for part in parts:
            raw = self._raw(node, container, part, (*key, part))
            inside = isinstance(raw, DictConfig | ListConfig)
            value = self._expand(raw, node, (*key, part), depth - 1) if inside else raw
            if value is not _FAILED:
                found[part] = value
        return found if isinstance(container, DictConfig) else list(found.values())


_FAILED = object()


def _present(value: Any) -> Any:
    return None if value is _FAILED else value


def _child(node: Node, part: str | int) -> Node | None:
    if isinstance(node.value, dict) and isinstance(part, str):
        return node.value.get(part)
    if isinstance(node.value, list) and isinstance(part, int) and 0 <= part < len(node.value):
        return node.value[part]
    return None


def _unparsable(text: str) -> str | None:
    if len(text) > MAX_INTERPOLATED or text.count("${") > MAX_BRACES:
        return f"an interpolation may have {MAX_INTERPOLATED} characters and {MAX_BRACES} pairs of braces; simplify it"
    try:
        OmegaConf.create({"x": text})
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        problem = one_line(str(error).split("\n", 1)[0], 160)
        return f"not a valid interpolation: {problem}; see docs/stage-configs.md for the forms"
    return None


def _strings(node: Node) -> Iterator[str]:
    if isinstance(node.value, dict):
        for child in node.value.values():
            yield from _strings(child)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _strings(child)
    elif isinstance(node.value, str):
        yield node.value


def _expansion(root: Node) -> int:
    """An upper bound of what one value can grow to when each reference is followed, as a multiple of its length."""
    bound = 1
    for text in _strings(root):
        bound *= max(1, len(_REFERENCE.findall(text)))
        if bound > MAX_EXPANSION:
            break
    return bound


def _source(node: Node, trace: Trace) -> Source:
    given = tuple(dict.fromkeys(name for name, was_set in trace.reads if was_set))
    outer = _outer_variable(node.value) if isinstance(node.value, str) else None
    if outer in given:
        return Source("env", node.place, (str(outer),))  # what its default would have read plays no part
    unset = tuple(dict.fromkeys(name for name, was_set in trace.reads if not was_set))
    if given:
        return Source("env", node.place, given)
    return Source("default", node.place, unset) if unset else Source("file", node.place)


def _outer_variable(text: str) -> str | None:
    """NAME of a value that is `${env.kind:NAME,...}` as a whole."""
    found = re.match(r"\$\{\s*(?:env\.\w+|oc\.env)\s*:\s*(\w+)\s*[,}]", text)
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == "}" and depth == 0:
            return found[1] if found and i == len(text) - 1 else None
    return None


def _reason(trace: Trace, node: Node, error: Exception) -> str:
    if trace.problem:
        return trace.problem
    if isinstance(error, RecursionError):
        return "refers to itself, or too many levels deep; write the value out"
    first = str(error).split("\n", 1)[0]
    return one_line(f"{shown(node.value)} cannot be resolved: {first}")
