"""YAML text -> a tree in which every value knows its line. The file is hostile until read.

The scalar rules are OmegaConf's own YAML loader's (no timestamps, `1e3` is a number), so that a value means here
what it means to vLLM-Omni. What OmegaConf's loader does not give is places, and limits.
"""

import math
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf._yaml import get_yaml_loader

from services.stages.findings import Key, Place, Refused, shown

MAX_FILE_BYTES = 256 * 1024  # the largest deploy file that vLLM-Omni bundles has 9 KiB
MAX_NODES = 20_000  # after aliases are expanded: this is what stops an alias bomb
MAX_DEPTH = 40
MAX_SCALAR = 4096

_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

Scalar = str | int | float | bool | None


class _Loader(yaml.SafeLoader):
    """PyYAML's own parser (its recursion raises, where the C one may overflow the stack), OmegaConf's scalar rules."""

    yaml_implicit_resolvers = get_yaml_loader().yaml_implicit_resolvers
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Composing recurses: stop it at a line, long before the interpreter's own limit."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} levels deep; flatten it"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


@dataclass(slots=True)
class Node:
    """A value with its place: a scalar, a mapping of nodes, or a list of nodes."""

    value: "Scalar | dict[str, Node] | list[Node]"
    place: Place

    def plain(self) -> Any:
        """The value as dicts, lists and scalars, without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def read_tree(path: Path) -> Node:
    """The tree of one file.

    Raises `Refused`: no such file, not a regular file, too large, not UTF-8, not YAML, a duplicate or non-text key, an
    alias that contains itself or expands too far, a value that is no plain scalar, or a root that is no mapping.
    """
    text = _read_text(path)
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                raise Refused(Place(path), "", "the file is empty; a deployment needs at least `stages:`")
            tree = _Builder(path, loader).build(root, (), _place(path, root))
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _refused(path, error) from error
    if not isinstance(tree.value, dict):
        raise Refused(tree.place, "", f"the file must be a mapping of keys, got {shown(tree.plain())}")
    return tree


def _read_text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Refused(Place(path), "", "not a regular file; name one such as stage_configs/glm_image.yaml")
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise Refused(Place(path), "", f"{reason}; name a file that can be read") from error
    if len(raw) > MAX_FILE_BYTES:
        raise Refused(Place(path), "", f"larger than {MAX_FILE_BYTES // 1024} KiB; this is no stage configuration")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise Refused(Place(path, line), "", f"not UTF-8 (byte {error.start}); save the file as UTF-8") from error


def _refused(path: Path, error: Exception) -> Refused:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    tab = "; indent with spaces, not tabs" if "'\\t'" in problem else ""
    return Refused(Place(path, mark.line + 1 if mark else 0), "", f"not valid YAML: {problem}{tab}")


def _place(path: Path, node: yaml.Node) -> Place:
    return Place(path, node.start_mark.line + 1)


class _Builder:
    """Nodes of PyYAML -> our nodes, with aliases expanded and counted."""

    def __init__(self, path: Path, loader: Any) -> None:
        self.path = path
        self.loader = loader
        self.nodes = 0
        self.open: set[int] = set()

    def build(self, node: yaml.Node, key: Key, place: Place) -> Node:
        self._count(node, key, place)
        if isinstance(node, yaml.ScalarNode):
            return Node(self._scalar(node, key, place), place)
        if node.tag not in _COLLECTIONS:
            raise Refused(place, key, f"the YAML type {node.tag} is not taken; write a mapping or a list")
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return Node(self._mapping(node, key, place), place)
            items = [self.build(item, (*key, i), _place(self.path, item)) for i, item in enumerate(node.value)]
            return Node(items, place)
        finally:
            self.open.discard(id(node))

    def _count(self, node: yaml.Node, key: Key, place: Place) -> None:
        self.nodes += 1
        if id(node) in self.open:
            raise Refused(place, key, "an alias that contains itself; write the value out")
        if self.nodes > MAX_NODES:
            raise Refused(place, key, f"more than {MAX_NODES} values once aliases are expanded; cut the file down")
        if len(key) > MAX_DEPTH:
            raise Refused(place, key, f"nested more than {MAX_DEPTH} levels deep; flatten it")

    def _scalar(self, node: yaml.ScalarNode, key: Key, place: Place) -> Scalar:
        if len(node.value) > MAX_SCALAR:
            raise Refused(place, key, f"a value longer than {MAX_SCALAR} characters")
        value = self.loader.construct_object(node)
        if value is not None and not isinstance(value, str | int | float | bool):
            raise Refused(place, key, f"the YAML type {node.tag} is not taken; write text, a number or a flag")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise Refused(place, key, "a whole number that needs more than 64 bits")
        if isinstance(value, float) and not math.isfinite(value):
            raise Refused(place, key, f"must be a finite number, got {value}")
        return value

    def _mapping(self, node: yaml.MappingNode, key: Key, place: Place) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key_node, value_node in node.value:
            at = _place(self.path, key_node)
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged |= self._merged(value_node, key, at)
                continue
            name = self._name(key_node, key, at)
            if name in own:
                raise Refused(at, (*key, name), f"the key is given twice (first at {own[name].place}); keep one")
            own[name] = self.build(value_node, (*key, name), at)
        return merged | own

    def _name(self, node: yaml.Node, key: Key, at: Place) -> str:
        name = self.loader.construct_object(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(name, str) or len(name) > 200:
            raise Refused(at, key, "a key must be text; quote it")
        return name

    def _merged(self, node: yaml.Node, key: Key, at: Place) -> dict[str, Node]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Node] = {}
        for part in reversed(parts):  # the first mapping of a `<<` list wins
            if not isinstance(part, yaml.MappingNode):
                raise Refused(at, (*key, "<<"), "only a mapping can be merged in")
            built = self.build(part, key, at).value
            if isinstance(built, dict):
                merged |= built
        return merged
