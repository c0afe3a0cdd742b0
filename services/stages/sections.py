"""Which entries of a file speak about which stage: the `stages:` list, and the `platforms:` blocks."""

from services.stages.findings import Findings, Key, Refused, shown
from services.stages.keys import check_platform_name
from services.stages.literal import Literals
from services.stages.model import Role
from services.stages.schema import GROUPS, nearest, pipeline_wide_keys
from services.stages.topology import StageKind, stage_kinds
from services.stages.view import StageView, view_stage
from services.stages.yaml_tree import Node

_MAX_STAGES = 16  # of any pipeline that vLLM-Omni has
_MAX_PLATFORMS = 16


def stage_views(root: Node, role: Role, literals: Literals, findings: Findings) -> dict[str, StageView]:
    """The stages that `role` runs, by role; pipeline-wide keys of the file are in each, under the stage's own."""
    found: dict[int, tuple[Node, Key]] = {}
    node = root.value.get("stages") if isinstance(root.value, dict) else None
    entries = node.value if node and isinstance(node.value, list) else []
    if node and len(entries) > _MAX_STAGES:
        raise Refused(node.place, "stages", f"{len(entries)} entries; GLM-Image has {len(stage_kinds())} stages")
    for i, entry in enumerate(entries):
        stage_id = _stage_id(entry, ("stages", i), literals, findings)
        if stage_id is None:
            continue
        if stage_id in found:
            findings.error(entry.place, ("stages", i), f"stage_id {stage_id} is given twice; merge the two entries")
        found.setdefault(stage_id, (entry, ("stages", i)))
    views: dict[str, StageView] = {}
    for kind in stage_kinds().values():
        if role not in (kind.role, "all"):
            continue
        if kind.stage_id not in found:
            if not (isinstance(root.value, dict) and "stage_args" in root.value):
                message = f"no entry with stage_id: {kind.stage_id}, the {kind.role} stage; add it"
                findings.error(node.place if node else root.place, "stages", message)
            continue
        views[kind.role] = _with_wide_keys(root, view_stage(*found[kind.stage_id], kind, literals, findings), literals)
    return views


def _stage_id(entry: Node, key: Key, literals: Literals, findings: Findings) -> int | None:
    if not isinstance(entry.value, dict):
        findings.error(entry.place, key, f"must be a mapping of keys, got {shown(entry.plain())}")
        return None
    node = entry.value.get("stage_id")
    stage_id = literals.value((*key, "stage_id")) if node else None
    if isinstance(stage_id, int) and not isinstance(stage_id, bool) and stage_id in stage_kinds():
        return stage_id
    known = ", ".join(f"{kind.stage_id} ({kind.role})" for kind in stage_kinds().values())
    message = f"must be one of {known}, got {shown(stage_id)}"
    findings.error(node.place if node else entry.place, (*key, "stage_id"), message)
    return None


def _with_wide_keys(root: Node, view: StageView, literals: Literals) -> StageView:
    entries = root.value if isinstance(root.value, dict) else {}
    for name in pipeline_wide_keys():
        value = literals.value((name,)) if name in entries and name not in view.values else None
        if value is not None:
            view.put(name, value, (name,), entries[name].place, literals.sources.get((name,)))
    return view


def platform_views(kind: StageKind, root: Node, literals: Literals, findings: Findings) -> dict[str, StageView]:
    """What each `platforms:` block says about one stage, by platform."""
    node = root.value.get("platforms") if isinstance(root.value, dict) else None
    views = {}
    if node and isinstance(node.value, dict) and len(node.value) > _MAX_PLATFORMS:
        raise Refused(node.place, "platforms", f"{len(node.value)} entries; vLLM-Omni knows fewer platforms")
    for name, block in node.value.items() if node and isinstance(node.value, dict) else ():
        key: Key = ("platforms", name)
        check_platform_name(name, block.place, key, findings)
        for i, entry in enumerate(_entries(block, key, findings)):
            at = (*key, "stages", i)
            if _stage_id(entry, at, literals, findings) == kind.stage_id:
                _check_layout(entry, at, findings)
                views[name] = view_stage(entry, at, kind, literals, findings)
    return views


def _entries(block: Node, key: Key, findings: Findings) -> list[Node]:
    if not isinstance(block.value, dict):
        findings.error(block.place, key, f"must be a mapping with stages, got {shown(block.plain())}")
        return []
    for name in block.value.keys() - {"stages", "model_runner"}:
        place = block.value[name].place
        findings.error(place, (*key, name), f"a platform has stages and model_runner only{nearest(name, ['stages'])}")
    stages = block.value.get("stages")
    if stages is not None and isinstance(stages.value, list) and len(stages.value) > _MAX_STAGES:
        raise Refused(stages.place, (*key, "stages"), f"{len(stages.value)} entries; cut them down")
    if stages is not None and not isinstance(stages.value, list):
        findings.error(stages.place, (*key, "stages"), f"must be a list, got {shown(stages.plain())}")
    return stages.value if stages is not None and isinstance(stages.value, list) else []


def _check_layout(entry: Node, key: Key, findings: Findings) -> None:
    """vLLM-Omni reads either the flat keys of a platform's stage or its engine_args and runtime, never both."""
    names = entry.value.keys() - {"stage_id"} if isinstance(entry.value, dict) else set()
    flat = sorted(names - GROUPS)
    if "engine_args" in names and flat:
        message = f"is ignored beside engine_args on a platform; move {flat[0]} into engine_args"
        findings.error(entry.place, (*key, flat[0]), message)
