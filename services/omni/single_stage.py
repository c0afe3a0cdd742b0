"""One stage of GLM-Image cut out of vLLM-Omni's pipeline, with the deploy file that starts it alone."""

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml

from services.omni.register import AR_ARCH, DIT_ARCH

Stage = Literal[0, 1]
ARCHITECTURES = (AR_ARCH, DIT_ARCH)


def register_single_stage(stage: Stage) -> str:
    """Register a pipeline of this stage alone and return its key. Registering it again replaces it."""
    from vllm_omni.config import register_pipeline
    from vllm_omni.model_executor.models.glm_image.pipeline import GLM_IMAGE_PIPELINE

    cut = dataclasses.replace(
        GLM_IMAGE_PIPELINE.stages[stage],
        stage_id=0,
        input_sources=(),
        final_output=True,
        custom_process_input_func=None,
        model_arch=ARCHITECTURES[stage],
    )
    key = f"diptych_glm_image_{'ar' if stage == 0 else 'dit'}"
    # The stock pipeline claims GLM-Image's architecture names; ours is found by its key only.
    pipeline = dataclasses.replace(
        GLM_IMAGE_PIPELINE,
        model_type=key,
        stages=(cut,),
        hf_architectures=(),
        diffusers_class_name=None,
        default_deploy_config_name=None,
    )
    register_pipeline(pipeline)
    return key


@contextmanager
def deploy_file(
    key: str, engine_args: Mapping[str, Any], platforms: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Path]:
    """A deploy YAML with one stage, removed afterwards. All values are literal: nothing in it is interpolated.

    platforms: what changes on a named platform, of which vLLM-Omni applies the one that it runs on.
    """
    document: dict[str, Any] = {"pipeline": key, "async_chunk": False, "stages": [{"stage_id": 0, **engine_args}]}
    if platforms:
        blocks = {name: {"stages": [{"stage_id": 0, **changes}]} for name, changes in platforms.items()}
        document["platforms"] = blocks
    text = yaml.safe_dump(document)
    with tempfile.TemporaryDirectory(prefix="diptych-") as directory:
        path = Path(directory) / f"{key}.yaml"
        path.write_text(text)
        yield path
