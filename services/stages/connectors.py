"""The `connectors:` block: names and settings that vLLM-Omni knows, references that lead somewhere."""

from collections.abc import Mapping
from typing import Any

from services.stages.findings import Findings, Key, shown
from services.stages.literal import Literals
from services.stages.model import ConnectorSettings
from services.stages.schema import connector_names, nearest, nixl_extra_keys
from services.stages.view import StageView
from services.stages.yaml_tree import Node

NIXL = "NixlConnector"
USED = frozenset({"host", "transfer_timeout_s", "backends"})  # services/handoff/settings.py
_TEXTS = frozenset({"host", "sender_host", "agent_name", "receive_device", "memory_type", "role"})


def read_connectors(root: Node, literals: Literals, findings: Findings) -> ConnectorSettings:
    """Check every connector; give the settings of the first NIXL one (none is written: empty settings)."""
    node = root.value.get("connectors") if isinstance(root.value, dict) else None
    settings: ConnectorSettings | None = None
    for name, child in node.value.items() if node and isinstance(node.value, dict) else ():
        key: Key = ("connectors", name)
        block = literals.value(key)
        if not isinstance(block, dict):
            findings.error(child.place, key, f"must be a mapping with name and extra, got {shown(block)}")
            continue
        _check_block(block, child, key, findings)
        extra = block.get("extra")
        if settings is None and block.get("name") == NIXL:
            settings = ConnectorSettings(extra=extra if isinstance(extra, dict) else {})
    return settings or ConnectorSettings()


def _check_block(block: Mapping[str, Any], node: Node, key: Key, findings: Findings) -> None:
    children = node.value if isinstance(node.value, dict) else {}
    for name in block.keys() - {"name", "extra"}:
        findings.error(
            children[name].place, (*key, name), f"a connector has name and extra only{nearest(name, ['name', 'extra'])}"
        )
    kind, extra = block.get("name"), block.get("extra")
    if not isinstance(kind, str) or kind not in connector_names():
        hint = nearest(str(kind), connector_names()) if kind else "; name one, such as NixlConnector"
        findings.error(node.place, (*key, "name"), f"vLLM-Omni has no connector {shown(kind)}{hint}")
    elif kind != NIXL:
        findings.warn(node.place, (*key, "name"), f"Diptych hands over by NIXL and does not use {kind}")
    if extra is not None and not isinstance(extra, dict):
        findings.error(node.place, (*key, "extra"), f"must be a mapping of settings, got {shown(extra)}")
    elif extra and kind == NIXL:
        inner = children["extra"].value if "extra" in children else None
        for name, value in extra.items():
            place = inner[name].place if isinstance(inner, dict) and name in inner else node.place
            problem = _extra_problem(name, value)
            if problem:
                findings.error(place, (*key, "extra", name), problem)
            elif name == "backends" and value != ["UCX"]:
                findings.warn(place, (*key, "extra", name), "Diptych's hand-off runs on UCX, whatever this says")
            elif name not in USED:
                used = ", ".join(sorted(USED))
                findings.note(place, (*key, "extra", name), f"Diptych's hand-off does not use it; it reads {used}")


def _extra_problem(name: str, value: Any) -> str | None:
    if name not in nixl_extra_keys():
        return f"NixlConnector has no such setting{nearest(name, nixl_extra_keys())}"
    if isinstance(value, str) and "${" in value:
        return f"{shown(value)} would be taken literally; write an interpolation such as ${{env.str:NAME,DEFAULT}}"
    if name in _TEXTS:
        return None if isinstance(value, str) and value else f"must be text, got {shown(value)}"
    if name.endswith("port"):
        fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535
        return None if fits else f"must be a port from 1 to 65535, got {shown(value)}"
    if name == "backends":
        fits = isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)
        return None if fits else f"must be a list of NIXL backends such as [UCX], got {shown(value)}"
    if name == "transfer_timeout_s" and value == 0:
        return "must be a number above 0, got 0"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and value >= 0 else f"must be a number of 0 or more, got {shown(value)}"


def check_references(view: StageView, names: frozenset[str], findings: Findings) -> None:
    """`input_connectors` and `output_connectors` must name connectors of this file."""
    for key in ("input_connectors", "output_connectors"):
        wiring = view.values.get(key)
        for edge, name in wiring.items() if isinstance(wiring, dict) else ():
            if isinstance(name, str) and name not in names:
                place = view.place_of(key)
                findings.error(
                    place, (*view.key_of(key), edge), f"no connector {shown(name)} in this file{nearest(name, names)}"
                )
