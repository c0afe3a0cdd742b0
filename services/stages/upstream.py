"""Values that vLLM-Omni computes at import, computed here from the same statements without that import.

The definitions asked for, and those that they need, are taken out of the installed source and run by themselves.
Classes whose contents do not matter are replaced by empty stand-ins of the same module and name; `fields()` of a
stand-in reads the source. `tests/unit/stages/test_upstream.py` holds the results against the imported modules.
"""

import ast
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypedDict

from services.stages.source_reader import UpstreamField, all_fields_of, definitions, origin_of
from services.wire.errors import ConfigError


def _fields(of: type) -> tuple[UpstreamField, ...]:
    return all_fields_of(of.__module__, of.__name__)


_PROVIDED: dict[str, Any] = {
    "Any": Any,
    "Enum": Enum,
    "Mapping": Mapping,
    "TypedDict": TypedDict,
    "cast": lambda _kind, value: value,
    "fields": _fields,
}


@cache
def upstream_value(module: str, name: str) -> Any:
    """The value that `module.name` has after an import: a constant, a set, a mapping, an enum, or a pure function.

    Raises `ConfigError` if the installed version does not define it that way.
    """
    origin = origin_of(module, name)
    if origin is None:
        raise ConfigError(f"{module} has no {name}: the installed version is not the pinned one (make install)")
    module, name = origin
    node = definitions(module)[name]
    if isinstance(node, ast.ClassDef) and not _is_plain(module, node):
        return type(name, (), {"__module__": module})
    namespace = dict(_PROVIDED)
    for needed in _needs(node):
        if needed not in namespace and origin_of(module, needed) is not None:
            namespace[needed] = upstream_value(module, needed)
    future = ast.parse("from __future__ import annotations").body
    code = compile(ast.fix_missing_locations(ast.Module([*future, node], [])), module, "exec")
    try:
        exec(code, namespace)  # noqa: S102 - a definition of the installed package: importing it would run the same
    except (NameError, TypeError, AttributeError, KeyError, ValueError) as error:
        raise ConfigError(f"{module}.{name} is not of the pinned version ({error}); make install") from error
    return namespace[name]


def _is_plain(module: str, node: ast.ClassDef) -> bool:
    """Whether a class is one that can run by itself: an enum, or a typed dict."""
    for base in node.bases:
        if not isinstance(base, ast.Name):
            continue
        if base.id in ("Enum", "TypedDict"):
            return True
        origin = origin_of(module, base.id)
        if origin is not None:
            above = definitions(origin[0])[origin[1]]
            if isinstance(above, ast.ClassDef) and _is_plain(origin[0], above):
                return True
    return False


def _needs(node: ast.stmt) -> Iterator[str]:
    """The names that running a definition looks up; annotations do not run."""
    if isinstance(node, ast.ClassDef):
        yield from (base.id for base in node.bases if isinstance(base, ast.Name))
        return
    running: list[ast.AST] = [node]
    if isinstance(node, ast.FunctionDef):
        running = [*node.body, *(default for default in node.args.kw_defaults if default), *node.args.defaults]
    elif isinstance(node, ast.AnnAssign):
        running = [node.value] if node.value else []
    own = node.name if isinstance(node, ast.FunctionDef) else None
    for part in running:
        for inner in ast.walk(part):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id != own:
                yield inner.id
