"""Which keys a stage configuration may have, and of which type: vLLM-Omni's deploy schema, and three keys of ours."""

import ast
import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal

from services.stages.source_reader import UpstreamField, all_fields_of, definitions, root_of, tree_of
from services.stages.upstream import upstream_value

STAGE_CONFIG = "vllm_omni.config.stage_config"
OMNI_CONFIG = "vllm_omni.config.omni_config"
_NIXL = "vllm_omni.distributed.omni_connectors.connectors.nixl_connector"
_FACTORY = "vllm_omni.distributed.omni_connectors.factory"
_DIFFUSION = "vllm_omni.diffusion.data"

OWN_KEYS: Mapping[str, UpstreamField] = {
    "model": UpstreamField(
        "model", "str", "${env.str:MODEL,zai-org/GLM-Image}", "The checkpoint: a folder or a hub id."
    ),
    "share_devices": UpstreamField(
        "share_devices", "bool", "False", "Whether both stages of one node may claim the same device."
    ),
    "placement": UpstreamField(
        "placement",
        "Literal['same_node', 'separate_nodes']",
        "'same_node'",
        "Whether the device numbers of the two stages are those of one node.",
    ),
}
"""Diptych's own top-level keys; everything else is vLLM-Omni's."""

GROUPS = frozenset({"engine_args", "engine_extras", "runtime"})


@cache
def top_fields() -> Mapping[str, UpstreamField]:
    """The keys that may stand at the top of a file."""
    base = UpstreamField("base_config", "str", "None", "Another file, relative to this one, that this one changes.")
    return {f.name: f for f in all_fields_of(STAGE_CONFIG, "DeployConfig")} | dict(OWN_KEYS) | {"base_config": base}


@cache
def pipeline_wide_keys() -> tuple[str, ...]:
    """The top-level keys that apply to every stage."""
    return tuple(upstream_value(STAGE_CONFIG, "PIPELINE_WIDE_ENGINE_FIELDS"))


@cache
def stage_fields(execution_type: str) -> Mapping[str, UpstreamField]:
    """The keys that a stage of this kind may have, each with the best description that upstream's source gives.

    Source: `_validate_stage_engine_override_ownership` (AR) and `extract_diffusion_stage_config_kwargs` (DiT) of
    vllm_omni/config/omni_config.py, which refuse every other key.
    """
    kind = upstream_value(STAGE_CONFIG, "StageExecutionType")(execution_type)
    described = {f.name: f for f in all_fields_of(STAGE_CONFIG, "StageDeployConfig")}
    reserved = upstream_value(STAGE_CONFIG, "_STAGE_RESERVED_KEYS")
    names = set(upstream_value(OMNI_CONFIG, "_STAGE_ENGINE_FIELDS_BY_EXECUTION_TYPE")[kind])
    if execution_type == "diffusion":
        described = _described(_DIFFUSION, "OmniDiffusionConfig") | described
        names |= {f.name for f in all_fields_of(_DIFFUSION, "OmniDiffusionConfig")}
        names |= set(upstream_value(STAGE_CONFIG, "_STAGE_DEPLOY_FIELDS")) | set(pipeline_wide_keys())
        names -= upstream_value(OMNI_CONFIG, "_DIFFUSION_SHARED_ONLY_ENGINE_FIELDS")
        names -= {"default_llama_model_id"}
    else:
        described = _described("vllm.engine.arg_utils", "EngineArgs") | described
    for group in ("_ParallelEngineOverrides", "_ModelEngineOverrides", "_CacheEngineOverrides"):
        for field in all_fields_of(OMNI_CONFIG, group):
            described.setdefault(field.name, field)
    names |= reserved - GROUPS
    return {name: described.get(name, UpstreamField(name, "Any", None, "")) for name in sorted(names)}


def _described(module: str, name: str) -> dict[str, UpstreamField]:
    return {field.name: field for field in all_fields_of(module, name)}


@cache
def nested_fields(execution_type: str, key: str) -> Mapping[str, UpstreamField] | None:
    """The keys inside a mapping-valued key, where the schema knows them; None where it does not."""
    diffusion = execution_type == "diffusion"
    if key == "default_sampling_params":
        ar, dit = ("vllm.sampling_params", "SamplingParams"), ("vllm_omni.inputs.data", "OmniDiffusionSamplingParams")
        return {name: f for name, f in _described(*(dit if diffusion else ar)).items() if not name.startswith("_")}
    if key == "parallel_config":
        kind = upstream_value(STAGE_CONFIG, "StageExecutionType")(execution_type)
        names = set(upstream_value(OMNI_CONFIG, "_PARALLEL_CONFIG_FIELDS_BY_EXECUTION_TYPE")[kind])
        names |= upstream_value(OMNI_CONFIG, "_PARALLEL_CONFIG_ENGINE_FIELDS_BY_EXECUTION_TYPE")[kind]
        described = _described(OMNI_CONFIG, "_ParallelConfigEngineOverrides")
        return {name: described.get(name, UpstreamField(name, "Any", None, "")) for name in sorted(names)}
    if key == "compilation_config":
        return _described("vllm.config.compilation", "CompilationConfig")
    if key == "profiler_config":
        return _described("vllm.config.profiler", "ProfilerConfig")
    if key == "duplex_session":
        return _described(STAGE_CONFIG, "DuplexSessionRuntimeConfig")
    return None


@cache
def nixl_extra_keys() -> Mapping[str, str | None]:
    """The settings that vLLM-Omni's `NixlConnector` reads from its `extra`, with the default written there."""
    found: dict[str, str | None] = {}
    for node in ast.walk(definitions(_NIXL)["NixlConnector"]):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and ast.unparse(node.func.value) == "self.config"
            and isinstance(node.args[0], ast.Constant)
        ):
            found[str(node.args[0].value)] = ast.unparse(node.args[1]) if len(node.args) > 1 else None
    return found


@cache
def connector_names() -> frozenset[str]:
    """The connectors that vLLM-Omni registers."""
    return frozenset(
        str(node.args[0].value)
        for node in ast.walk(tree_of(_FACTORY))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(".register_connector")
        and isinstance(node.args[0], ast.Constant)
    )


@cache
def platform_names() -> frozenset[str]:
    """The names that a `platforms:` block may use: vLLM-Omni's platform folders, and `cpu`, which Diptych adds."""
    folder = root_of("vllm_omni") / "platforms"
    return frozenset(path.parent.name for path in folder.glob("*/platform.py")) | {"cpu"}


@cache
def annotation_type(text: str) -> Any:
    """The type that an annotation of upstream's source means, if it is made of plain types; else `Any`."""
    scope = {"Any": Any, "Literal": Literal, "dict": dict, "list": list, "str": str, "int": int, "float": float}
    scope |= {"bool": bool, "tuple": tuple, "set": set, "Mapping": dict, "object": Any}
    try:
        return eval(text.strip("\"'"), {"__builtins__": {}}, scope)  # noqa: S307 - annotations of installed code
    except (NameError, TypeError, AttributeError, SyntaxError):
        return Any


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the closest known name, or nothing."""
    found = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
