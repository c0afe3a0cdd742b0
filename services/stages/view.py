"""One stage of the file, literal and flat: `engine_args`, `runtime` and `engine_extras` folded in as upstream does."""

from dataclasses import dataclass, field
from typing import Any

from services.stages.findings import Findings, Key, Place, shown
from services.stages.literal import Literals, Source
from services.stages.topology import StageKind
from services.stages.yaml_tree import Node

_RUNTIME_KEYS = ("devices", "num_replicas", "env")


@dataclass(slots=True)
class StageView:
    """The literal keys of one stage and, for each, the node of the file that gave it."""

    kind: StageKind
    key: Key
    place: Place
    values: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    inner_sources: dict[tuple[str, str], Source] = field(default_factory=dict)
    unresolved: set[str] = field(default_factory=set)  # written, but what is wrong with them has been said already

    def place_of(self, name: str) -> Place:
        """Where `name` is written; the stage itself if it is not."""
        return self.places.get(name, self.place)

    def key_of(self, name: str) -> Key:
        """The full key of `name`."""
        return self.keys.get(name, (*self.key, name))

    def overlaid(self, own: "StageView") -> "StageView":
        """This stage with what a platform changes on top."""
        view = StageView(self.kind, own.key, own.place)
        for part in (self, own):
            for name, value in part.values.items():
                view.put(name, value, part.keys[name], part.places[name], part.sources.get(name))
            view.inner_sources |= part.inner_sources
            view.unresolved |= part.unresolved
        return view

    def put(self, name: str, value: Any, key: Key, place: Place, source: Source | None) -> None:
        """Take one literal value; a mapping goes over one that is there already."""
        before = self.values.get(name)
        self.values[name] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
        self.keys[name], self.places[name] = key, place
        if source is not None:
            self.sources[name] = source


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def view_stage(node: Node, key: Key, kind: StageKind, literals: Literals, findings: Findings) -> StageView:
    """The view of one entry of a `stages:` list. Order of precedence as upstream: extras < flat keys < engine_args."""
    view = StageView(kind, key, node.place)
    own = node.value if isinstance(node.value, dict) else {}
    for group in ("engine_extras", None, "engine_args", "runtime"):
        for name, child, child_key in _group(own, group, key, findings):
            if group != "runtime" or name in _RUNTIME_KEYS:
                _take(view, name, child, child_key, literals)
            else:
                findings.error(child.place, child_key, "the pipeline itself declares this; remove the line")
    return view


def _group(own: dict[str, Node], group: str | None, key: Key, findings: Findings) -> list[tuple[str, Node, Key]]:
    if group is None:
        nested = ("engine_extras", "engine_args", "runtime", "stage_id")
        return [(name, child, (*key, name)) for name, child in own.items() if name not in nested]
    node = own.get(group)
    if node is None or node.value is None:
        return []
    if not isinstance(node.value, dict):
        findings.error(node.place, (*key, group), f"must be a mapping of keys, got {shown(node.plain())}")
        return []
    return [(name, child, (*key, group, name)) for name, child in node.value.items()]


def _take(view: StageView, name: str, node: Node, key: Key, literals: Literals) -> None:
    value = literals.value(key)
    if value is None and node.value is not None:
        view.unresolved.add(name)
    if value is not None:  # null means "not given" to vLLM-Omni too
        view.put(name, value, key, node.place, literals.sources.get(key))
        for inner in value if isinstance(value, dict) else ():
            source = literals.sources.get((*key, inner))
            if source is not None:
                view.inner_sources[name, inner] = source
