"""Read vLLM-Omni's and vLLM's schema out of their installed source, without importing them.

Importing `vllm_omni` takes about nine seconds; reading a few source files takes a fraction of one. Nothing is copied
by hand: field names, types, defaults and documentation come from the syntax tree of the installed version.
"""

import ast
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from services.wire.errors import ConfigError


@dataclass(frozen=True, slots=True)
class UpstreamField:
    """A field of an upstream dataclass: its annotation and default as written, and what the source says about it."""

    name: str
    annotation: str
    default: str | None
    doc: str
    init: bool = True


@cache
def root_of(package: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"{package} is not installed here; the checker reads its schema (make install)")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def source_of(module: str) -> str:
    """The source text of an upstream module, by dotted name."""
    package, *parts = module.split(".")
    path = root_of(package).joinpath(*parts)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; install the pinned {package}") from error


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of an upstream module."""
    return ast.parse(source_of(module))


@cache
def class_of(module: str, name: str) -> ast.ClassDef:
    """The definition of a class at the top level of an upstream module."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise ConfigError(f"{module} has no class {name}: the installed version is not the pinned one (make install)")


@cache
def fields_of(module: str, name: str) -> tuple[UpstreamField, ...]:
    """The annotated fields that a class itself defines, in order."""
    found = []
    lines = source_of(module).splitlines()
    body = class_of(module, name).body
    for i, node in enumerate(body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        annotation = ast.unparse(node.annotation)
        if annotation.startswith(("ClassVar", "InitVar")):  # neither is a field to `dataclasses.fields`
            continue
        following = body[i + 1] if i + 1 < len(body) else None
        default = ast.unparse(node.value) if node.value is not None else None
        found.append(
            UpstreamField(
                node.target.id, annotation, default, _doc(lines, node, following), "init=False" not in (default or "")
            )
        )
    return tuple(found)


def _doc(lines: list[str], node: ast.AnnAssign, following: ast.stmt | None) -> str:
    """The docstring after a field, or else the comment lines right above it."""
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return " ".join(str(following.value.value).split())
    above = []
    for line in reversed(lines[: node.lineno - 1]):
        text = line.strip()
        if not text.startswith("#") or text.startswith("# ==="):
            break
        above.append(text.lstrip("# "))
    return " ".join(reversed(above))


@cache
def imported_names(module: str) -> dict[str, tuple[str, str]]:
    """Local name -> (module, name) for everything that a module imports with `from ... import`."""
    found: dict[str, tuple[str, str]] = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
    return found


def defined_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


@cache
def definitions(module: str) -> dict[str, ast.stmt]:
    """Every name that a module defines at its top level, and the statement that does (the last one, if several)."""
    return {name: node for node in tree_of(module).body for name in defined_names(node)}


@cache
def origin_of(module: str, name: str) -> tuple[str, str] | None:
    """Where a name that `module` uses is really defined, through re-exports; None if that is outside vllm(_omni)."""
    for _ in range(8):
        if name in definitions(module):
            return module, name
        found = imported_names(module).get(name)
        if found is None or found[0].split(".")[0] not in ("vllm", "vllm_omni"):
            return None
        module, name = found
    return None


@cache
def all_fields_of(module: str, name: str) -> tuple[UpstreamField, ...]:
    """The fields of a dataclass with those of its bases; what a class redefines keeps its base's position."""
    found: dict[str, UpstreamField] = {}
    for base in reversed(class_of(module, name).bases):
        origin = origin_of(module, base.id) if isinstance(base, ast.Name) else None
        if origin is not None:
            found |= {field.name: field for field in all_fields_of(*origin)}
    return tuple((found | {field.name: field for field in fields_of(module, name)}).values())
