"""What is read out of vLLM-Omni's source equals what an import gives: the imported modules are the witness."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.stages import ResolvedStage, resolve, write_literal
from services.stages.pairing import resolve_pair
from services.stages.schema import (
    STAGE_CONFIG,
    connector_names,
    nested_fields,
    pipeline_wide_keys,
    stage_fields,
    top_fields,
)
from services.stages.source_reader import fields_of, origin_of
from services.stages.topology import stage_kinds
from services.stages.upstream import upstream_value
from services.wire.errors import ConfigError
from tests.unit.stages.files import ROOT

# Imports the real thing (about ten seconds) and prints what the tests compare.
WITNESS = """
import dataclasses, json, sys
from vllm.sampling_params import SamplingParams
from vllm_omni.config import omni_config as o, stage_config as s
from vllm_omni.diffusion.data import OmniDiffusionConfig
from vllm_omni.inputs.data import OmniDiffusionSamplingParams
from vllm_omni.distributed.omni_connectors.factory import OmniConnectorFactory
from vllm_omni.model_executor.models.glm_image.pipeline import GLM_IMAGE_PIPELINE as P
names = lambda c: [f.name for f in dataclasses.fields(c)]
def built(path, stage_id, model):
    # What vLLM-Omni makes of a literal file: the one stage of it, cut out of its own pipeline.
    cut = dataclasses.replace(P.stages[stage_id], stage_id=0, input_sources=(), final_output=True,
                              custom_process_input_func=None)
    pipeline = dataclasses.replace(P, model_type="one", stages=(cut,), default_deploy_config_name=None)
    config = o.VllmOmniConfig.from_pipeline_config(
        pipeline, user_deploy_config=s.load_deploy_config(path), deploy_config_path=path,
        cli_overrides={"model": model})
    stage = config.stage_configs[0]
    return [stage.scheduler_cls, stage.parallel_config.tensor_parallel_size, stage.scheduler_config.max_num_seqs,
            stage.runtime_config.devices, stage.cache_config.enable_prefix_caching]
kinds = {k.value: k for k in s.StageExecutionType}
print("WITNESS" + json.dumps({
    "deploy": names(s.DeployConfig),
    "stage": names(s.StageDeployConfig),
    "engine": {v: sorted(o._STAGE_ENGINE_FIELDS_BY_EXECUTION_TYPE[k]) for v, k in kinds.items()},
    "parallel": {v: sorted(o._PARALLEL_CONFIG_FIELDS_BY_EXECUTION_TYPE[k]) for v, k in kinds.items()},
    "diffusion": names(OmniDiffusionConfig),
    "wide": list(s.PIPELINE_WIDE_ENGINE_FIELDS),
    "shared_only": sorted(o._DIFFUSION_SHARED_ONLY_ENGINE_FIELDS),
    "reserved": sorted(s._STAGE_RESERVED_KEYS),
    "sampling": sorted(n for n in SamplingParams.__struct_fields__ if not n.startswith("_")),
    "diffusion_sampling": sorted(n for n in names(OmniDiffusionSamplingParams) if not n.startswith("_")),
    "connectors": sorted(OmniConnectorFactory._registry),
    "schedulers": {v: {str(a): o._resolve_scheduler_path(k, a) for a in (True, False)} for v, k in kinds.items()},
    "built": [built(*arguments) for arguments in json.loads(sys.argv[1])],
    "stages": [[t.stage_id, t.model_stage, t.execution_type.value, t.model_subdir] for t in P.stages],
}))
"""


ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {},
    {"AR_TP": "2", "DIT_TP": "2", "AR_DEVICES": "2,3", "DIT_DEVICES": "4,5", "AR_MAX_NUM_SEQS": "3"},
)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, ResolvedStage]:
    """The literal file of every stage of every configuration of ours, written as the services hand it on."""
    folder, found = tmp_path_factory.mktemp("literal"), {}
    for path in sorted((ROOT / "stage_configs").glob("*.yaml")):
        for i, environ in enumerate(ENVIRONMENTS):
            deployment = resolve(path, role="all", environ=environ)
            for stage in (deployment.ar, deployment.dit):
                assert stage is not None
                literal = folder / f"{path.stem}-{stage.role}-{i}.yaml"
                write_literal(stage, literal, pipeline="one")
                found[literal] = stage
    return found


@pytest.fixture(scope="module")
def imported(stages: dict[Path, ResolvedStage]) -> dict[str, Any]:
    arguments = json.dumps([[str(path), stage.stage_id, stage.model] for path, stage in stages.items()])
    environ = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WITNESS, arguments], capture_output=True, text=True, env=environ, timeout=280
    )
    line = next((text for text in done.stdout.splitlines() if text.startswith("WITNESS")), None)
    assert line is not None, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(line.removeprefix("WITNESS"))
    return found


def test_the_keys_of_the_schema(imported: dict[str, Any]) -> None:
    assert [f.name for f in fields_of(STAGE_CONFIG, "DeployConfig")] == imported["deploy"]
    assert [f.name for f in fields_of(STAGE_CONFIG, "StageDeployConfig")] == imported["stage"]
    assert list(pipeline_wide_keys()) == imported["wide"]
    assert set(imported["deploy"]) <= set(top_fields())


def test_the_keys_that_each_stage_owns(imported: dict[str, Any]) -> None:
    wrapper = set(imported["reserved"]) - {"engine_args", "engine_extras", "runtime"}
    assert set(stage_fields("llm_ar")) == set(imported["engine"]["llm_ar"]) | wrapper
    owned = set(imported["engine"]["diffusion"]) | set(imported["diffusion"]) | set(imported["wide"])
    fields = set(imported["stage"]) - set(imported["reserved"])
    assert set(stage_fields("diffusion")) == (owned | fields) - set(imported["shared_only"]) | wrapper


def test_the_keys_inside(imported: dict[str, Any]) -> None:
    assert sorted(nested_fields("llm_ar", "default_sampling_params") or ()) == imported["sampling"]
    assert sorted(nested_fields("diffusion", "default_sampling_params") or ()) == imported["diffusion_sampling"]
    for kind in ("llm_ar", "diffusion"):
        assert set(imported["parallel"][kind]) <= set(nested_fields(kind, "parallel_config") or ())
    assert sorted(connector_names()) == imported["connectors"]


def test_the_scheduler_pairs(imported: dict[str, Any]) -> None:
    for kind, pairs in imported["schedulers"].items():
        for flag in (True, False):
            assert resolve_pair(kind, flag).scheduler_cls == pairs[str(flag)]
        assert resolve_pair(kind, None) == resolve_pair(kind, True)


def test_the_stages_of_the_pipeline(imported: dict[str, Any]) -> None:
    found = [[kind.stage_id, kind.role, kind.execution_type] for kind in stage_kinds().values()]
    assert found == [stage[:3] for stage in imported["stages"]]
    assert stage_kinds()[0].part == imported["stages"][0][3]


def test_vllm_omni_takes_our_literal_files_as_we_resolved_them(
    stages: dict[Path, ResolvedStage], imported: dict[str, Any]
) -> None:
    assert len(stages) == 20
    for (path, stage), built in zip(stages.items(), imported["built"], strict=True):
        scheduler, tp, sequences, devices, caching = built
        assert (scheduler, tp) == (stage.scheduler.scheduler_cls, stage.tensor_parallel_size), path
        assert (sequences, devices) == (stage.max_num_seqs, stage.devices), path
        assert caching in (False, None) or stage.role == "dit", path


def test_a_version_without_the_name_is_an_error_with_the_mend() -> None:
    with pytest.raises(ConfigError, match="make install"):
        upstream_value(STAGE_CONFIG, "_resolve_schedulers")
    with pytest.raises(ConfigError, match="make install"):
        fields_of(STAGE_CONFIG, "NoSuchConfig")
    assert origin_of(STAGE_CONFIG, "Path") is None


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, pathlib; from services.stages import inspect\n"
        "inspect(pathlib.Path('stage_configs/glm_image.yaml'), role='all', environ={})\n"
        "print([m for m in ('vllm', 'vllm_omni', 'torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
