"""Which stages GLM-Image has, and what each one is: read from vLLM-Omni's pipeline declaration."""

import ast
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

from services.stages.source_reader import tree_of
from services.wire.errors import ConfigError

_PIPELINE = "vllm_omni.model_executor.models.glm_image.pipeline"
PIPELINE_NAME = "glm_image"


@dataclass(frozen=True, slots=True)
class StageKind:
    """A stage of the pipeline. part: the folder of the checkpoint that holds its large model."""

    stage_id: int
    role: Literal["ar", "dit"]
    execution_type: str
    part: str


@cache
def stage_kinds() -> dict[int, StageKind]:
    """The stages by id. Raises `ConfigError` if the installed pipeline is not the two-stage one."""
    kinds = {}
    for call in ast.walk(tree_of(_PIPELINE)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "StagePipelineConfig":
            given = {word.arg: word.value for word in call.keywords if word.arg}
            role = _text(given, "model_stage")
            if role not in ("ar", "dit"):
                continue
            stage_id = int(_text(given, "stage_id"))
            execution = given["execution_type"]
            name = execution.attr.lower() if isinstance(execution, ast.Attribute) else ""
            part = _text(given, "model_subdir") or "transformer"
            kinds[stage_id] = StageKind(stage_id, cast(Literal["ar", "dit"], role), name, part)
    if sorted(kind.role for kind in kinds.values()) != ["ar", "dit"]:
        raise ConfigError(f"{_PIPELINE} does not declare one ar and one dit stage: install the pinned vllm-omni")
    return kinds


def _text(given: dict[str, ast.expr], name: str) -> str:
    value = given.get(name)
    return str(value.value) if isinstance(value, ast.Constant) else ""
