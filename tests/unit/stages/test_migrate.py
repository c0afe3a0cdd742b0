"""The legacy `stage_args` schema, migrated and through the checker again."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.stages import inspect
from services.stages.migrate import migrate
from services.wire.errors import ConfigError

LEGACY = """
stage_args:
  - stage_id: 0
    stage_type: llm
    runtime: {process: true, devices: "${oc.env:AR_GPUS,0}", requires_multimodal_data: true, max_batch_size: 4}
    engine_args:
      model_stage: ar
      model_arch: GlmImageForConditionalGeneration
      worker_type: ar
      scheduler_cls: vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler
      gpu_memory_utilization: ${oc.env:AR_MEMORY,0.6}
      tensor_parallel_size: ${oc.decode:${oc.env:AR_TP,'1'}}
      enforce_eager: ${oc.decode:${oc.env:EAGER,false}}
      engine_output_type: token_ids
      gpu_mem: 3
    engine_input_source: []
    final_output: false
    default_sampling_params: {temperature: 0.9, stop_token_ids: [16385], max_tokens: 4353, nonsense: 1}
    output_connectors: {to_stage_1: nixl}
  - stage_id: 1
    stage_type: diffusion
    runtime: {process: true, devices: 1, num_replicas: 2}
    engine_args: {model_stage: dit, max_num_seqs: 4, enforce_eager: true, model: zai-org/GLM-Image}
    engine_input_source: [0]
    custom_process_input_func: vllm_omni.model_executor.stage_input_processors.glm_image.ar2diffusion
    final_output: true
    final_output_type: image
    input_connectors: {from_stage_0: nixl}
async_chunk: true
mode: omni
runtime:
  enabled: true
  defaults: {window_size: -1}
  connectors: {nixl: {name: NixlConnector, extra: {host: auto, zmq_port: 50071}}}
  edges: [{from: 0, to: 1}]
"""


def migrated(tmp_path: Path, text: str) -> tuple[str, Path]:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(text, encoding="utf-8")
    found = migrate(old)
    new.write_text(found, encoding="utf-8")
    return found, new


def test_the_result_passes_the_checker_and_keeps_what_counts(tmp_path: Path) -> None:
    _, path = migrated(tmp_path, LEGACY)
    inspection = inspect(path, role="all", environ={"AR_TP": "2", "AR_GPUS": "2,3", "EAGER": ""})
    assert inspection.errors == ()
    found = inspection.deployment
    assert found is not None
    assert found.ar is not None
    assert found.dit is not None
    assert (found.ar.devices, found.ar.tensor_parallel_size, found.ar.max_num_seqs) == ("2,3", 2, 4)
    assert found.ar.engine_args["gpu_memory_utilization"] == 0.6
    assert found.ar.engine_args["enforce_eager"] is False
    assert found.ar.default_sampling_params == {"temperature": 0.9, "stop_token_ids": [16385], "max_tokens": 4353}
    assert (found.dit.devices, found.dit.max_num_seqs) == ("1", 4)
    assert found.connector.extra == {"host": "auto", "zmq_port": 50071}


@pytest.mark.parametrize(
    "comment",
    [
        "dropped scheduler_cls: OmniARScheduler with async scheduling on kills the engine at the first request",
        "dropped engine_input_source: the pipeline itself declares where a stage's input comes from",
        "dropped model_stage: the pipeline itself declares this",
        "dropped process: ",
        "dropped requires_multimodal_data: the pipeline itself declares this",
        "dropped final_output_type: the pipeline itself declares this",
        "dropped custom_process_input_func: the pipeline itself declares this",
        "dropped gpu_mem: no key of the ar stage in this version",
        "dropped default_sampling_params.nonsense: no such key in this version",
        "dropped runtime.edges: the pipeline itself declares its edges",
        "dropped runtime.enabled: ",
        "dropped runtime.defaults: ",
        "dropped async_chunk: GLM-Image has no chunk producer",
        "dropped mode: no key of a file any more",
        "dropped num_replicas: one service is one replica",
        "dropped model: the checkpoint is named once, at the top",
        "max_batch_size is called max_num_seqs now",
    ],
)
def test_each_thing_dropped_has_its_reason(tmp_path: Path, comment: str) -> None:
    text, _ = migrated(tmp_path, LEGACY)
    assert any(line.strip().startswith(f"# {comment}") for line in text.splitlines())


def test_a_pinned_scheduler_that_fits_is_dropped_without_alarm(tmp_path: Path) -> None:
    engine = "{scheduler_cls: vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler, async_scheduling: false}"
    text, path = migrated(tmp_path, f"stage_args: [{{stage_id: 0, engine_args: {engine}, runtime: {{devices: '0'}}}}]")
    assert "dropped scheduler_cls: vLLM-Omni chooses the scheduler by itself" in text
    ar = inspect(path, role="ar", environ={}).deployment
    assert ar is not None
    assert ar.ar is not None
    assert str(ar.ar.scheduler) == "OmniARScheduler, async off"


def test_shared_and_missing_devices_are_said(tmp_path: Path) -> None:
    text, path = migrated(tmp_path, "stage_args: [{stage_id: 0}, {stage_id: 1}]")
    assert "share_devices: true" in text
    assert text.count("devices was not written; 0 is a guess") == 2
    assert inspect(path, role="all", environ={}).errors == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stages: []", "has no stage_args list"),
        ("stage_args: {a: 1}", "has no stage_args list"),
        ("stage_args: [1]", "stage_id must be 0"),
        ("stage_args: [{stage_id: 7}]", "stage_id must be 0"),
        ("stage_args: [{stage_id: [0]}]", "stage_id must be 0"),
        ("stage_args: [{stage_id: 0}, {stage_id: 0}]", "stage_id 0 is given twice"),
        ("a: &a [*a]", "contains itself"),
    ],
)
def test_what_cannot_be_migrated_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        migrate(path)


KEYS = st.sampled_from(
    ["scheduler_cls", "devices", "engine_args", "max_num_seqs", "model_stage", "process", "x\n# y", "connectors", "env"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=8)
    | st.sampled_from(["${oc.env:A,1}", "${", "0,1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ar=st.dictionaries(KEYS, VALUES, max_size=5), dit=st.dictionaries(KEYS, VALUES, max_size=5), runtime=VALUES)
def test_whatever_is_migrated_is_yaml_on_the_new_schema(tmp_path: Path, ar: dict, dit: dict, runtime: object) -> None:
    old = {"stage_args": [{**ar, "stage_id": 0}, {**dit, "stage_id": 1}], "runtime": runtime}
    text = yaml.safe_dump(old, allow_unicode=True)
    path = tmp_path / "old.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        new = migrate(path)
    except ConfigError as error:
        assert "\n" not in error.message
        return
    parsed = yaml.safe_load(new)
    assert [stage["stage_id"] for stage in parsed["stages"]] == [0, 1]
    assert "scheduler_cls" not in parsed["stages"][0]
    (tmp_path / "new.yaml").write_text(new, encoding="utf-8")
    keys = {item.key for item in inspect(tmp_path / "new.yaml", role="all", environ={}).errors}
    assert not any(re.fullmatch(r"stages\[\d\]\.(scheduler_cls|model_stage|process)", key) for key in keys)
