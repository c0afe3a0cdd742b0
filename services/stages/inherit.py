"""`base_config` inheritance: an overlay file on top of the file that it names, as vLLM-Omni merges them.

One difference, on purpose: files are merged first and interpolations resolved afterwards, so that an overlay which
changes a value also changes what the base derives from it.
"""

from collections.abc import Callable
from pathlib import Path

from services.stages.findings import Place, Refused, shown
from services.stages.yaml_tree import Node, read_tree

MAX_FILES = 8

# vLLM-Omni's `_DEEP_MERGE_KEYS` (config/stage_config.py): inside a stage these merge, all others are replaced.
DEEP_STAGE_KEYS = frozenset(
    {"default_sampling_params", "default_pooling_params", "subtalker_sampling_params", "engine_extras", "engine_args"}
)


def load_merged(path: Path, base_path: Callable[[Node], str]) -> Node:
    """The tree of `path` with all of its bases merged in; `base_path` makes a `base_config` value literal.

    Raises `Refused` for an unreadable file, for bases that name each other in a ring, and for a chain of more
    than 8 files.
    """
    return _load(path, base_path, ())


def _load(path: Path, base_path: Callable[[Node], str], seen: tuple[Path, ...]) -> Node:
    real = _real(path)
    if real in seen:
        ring = " -> ".join(str(p.name) for p in (*seen[seen.index(real) :], real))
        raise Refused(Place(path), "base_config", f"goes in a ring: {ring}; let one of them stand alone")
    if len(seen) >= MAX_FILES:
        raise Refused(Place(path), "base_config", f"more than {MAX_FILES} files on top of each other; merge some")
    tree = read_tree(path)
    own = dict(_mapping(tree))
    base = own.pop("base_config", None)
    if base is None:
        return tree
    name = base_path(base)
    return Node(_merge_files(_mapping(_load(path.parent / name, base_path, (*seen, real))), own), tree.place)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of symlinks, a NUL
        raise Refused(Place(path), "", f"{error}; name a file that can be read") from error


def _mapping(node: Node) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise Refused(node.place, "", f"the file must be a mapping of keys, got {shown(node.plain())}")
    return node.value


def _merge_files(base: dict[str, Node], own: dict[str, Node]) -> dict[str, Node]:
    merged = base | own
    for key, merge in (("stages", _merge_stages), ("platforms", _merge_platforms), ("connectors", merge_deep)):
        if key in base and key in own:
            merged[key] = merge(base[key], own[key])
    return merged


def merge_deep(base: Node, own: Node) -> Node:
    """`own` over `base`, mapping by mapping."""
    if not (isinstance(base.value, dict) and isinstance(own.value, dict)):
        return own
    merged = dict(base.value)
    for key, node in own.value.items():
        merged[key] = merge_deep(merged[key], node) if key in merged else node
    return Node(merged, own.place)


def merge_stage(base: Node, own: Node) -> Node:
    """One stage over another: `own` wins a key at a time, and deeper for the keys that vLLM-Omni merges deeply."""
    if not (isinstance(base.value, dict) and isinstance(own.value, dict)):
        return own
    merged = base.value | own.value
    for key in DEEP_STAGE_KEYS & base.value.keys() & own.value.keys():
        merged[key] = merge_deep(base.value[key], own.value[key])
    return Node(merged, own.place)


def _stage_id(node: Node) -> object:
    found = node.value.get("stage_id") if isinstance(node.value, dict) else None
    return found.value if found is not None else None


def _merge_stages(base: Node, own: Node) -> Node:
    if not (isinstance(base.value, list) and isinstance(own.value, list)):
        return own
    merged = list(base.value)
    for stage in own.value:
        same = [i for i, other in enumerate(base.value) if _stage_id(other) == _stage_id(stage) is not None]
        if same:
            merged[same[0]] = merge_stage(merged[same[0]], stage)
        else:
            merged.append(stage)
    return Node(merged, own.place)


def _merge_platforms(base: Node, own: Node) -> Node:
    if not (isinstance(base.value, dict) and isinstance(own.value, dict)):
        return own
    merged = dict(base.value)
    for name, block in own.value.items():
        under = merged.get(name)
        if under is not None and isinstance(under.value, dict) and isinstance(block.value, dict):
            both = under.value | block.value
            if "stages" in under.value and "stages" in block.value:
                both["stages"] = _merge_stages(under.value["stages"], block.value["stages"])
            merged[name] = Node(both, block.place)
        else:
            merged[name] = block
    return Node(merged, own.place)
