"""Our own configurations, one role at a time, and the one line that stops a start."""

from pathlib import Path

import pytest
import yaml

from services.stages import inspect, literal_document, resolve, write_literal
from services.wire.errors import ConfigError
from tests.unit.stages.files import MINIMAL, ROOT, Check

OURS = sorted((ROOT / "stage_configs").glob("*.yaml"))


def test_there_are_five() -> None:
    names = ["glm_image.yaml", *(f"glm_image_{name}.yaml" for name in ("cpu", "scaled", "single_gpu", "two_node"))]
    assert [path.name for path in OURS] == names


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
@pytest.mark.parametrize("role", ["ar", "dit", "all"])
def test_ours_pass_without_any_variable(path: Path, role: str) -> None:
    inspection = inspect(path, role=role, environ={})  # type: ignore[arg-type]
    assert [item for item in inspection.findings if item.level != "note"] == []


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_ours_follow_the_environment(path: Path) -> None:
    environ = {
        "MODEL": "zai-org/GLM-Image",
        "AR_TP": "2",
        "DIT_TP": "4",
        "AR_DEVICES": "0,1",
        "DIT_DEVICES": "2,3,4,5",
        "AR_MAX_NUM_SEQS": "5",
    }
    found = resolve(path, role="all", environ=environ)
    assert found.findings == ()
    assert found.ar is not None
    assert found.dit is not None
    assert (found.ar.model, found.dit.model) == ("zai-org/GLM-Image", "zai-org/GLM-Image")
    assert (found.ar.devices, found.ar.tensor_parallel_size, found.ar.max_num_seqs) == ("0,1", 2, 5)
    assert (found.dit.devices, found.dit.tensor_parallel_size, found.dit.max_num_seqs) == ("2,3,4,5", 4, 1)
    assert str(found.ar.sources["devices"]) == "AR_DEVICES (environment)"
    assert found.ar.default_sampling_params["stop_token_ids"] == [16385]


def test_on_a_cpu_the_devices_follow_tp_by_themselves() -> None:
    path = ROOT / "stage_configs" / "glm_image_cpu.yaml"
    environ = {"AR_TP": "2", "DIT_TP": "2", "AR_DEVICES": "", "MODEL": "zai-org/GLM-Image"}
    found = resolve(path, role="all", environ=environ)
    assert found.ar is not None
    assert found.dit is not None
    assert (found.ar.devices, found.dit.devices) == ("0,1", "0,1")
    assert "AR_TP" in str(found.ar.sources["devices"])


def test_on_gpus_tp_without_devices_is_an_error_that_names_the_variable() -> None:
    path = ROOT / "stage_configs" / "glm_image.yaml"
    with pytest.raises(ConfigError) as caught:
        resolve(path, role="ar", environ={"AR_TP": "2"})
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "AR_DEVICES" in text and "$" in text)
    assert str(caught.value) == (
        f"{path}:{line}: stages[0].devices: '0' names 1 but tensor_parallel_size 2 needs 2; "
        "set AR_DEVICES=0,1, or AR_TP=1"
    )


NEEDY = """
model: ${env.str:MODEL}
stages:
  - stage_id: 0
    tensor_parallel_size: ${env.int:AR_TP}
    devices: ${env.devices:AR_DEVICES}
    max_num_seqs: ${oc.env:AR_WRONG}
    bogus: 1
  - stage_id: 1
    tensor_parallel_size: ${env.int:DIT_TP}
    devices: ${env.devices:DIT_DEVICES}
platforms:
  cuda:
    stages:
      - stage_id: 0
        env: {A: "${oc.env:AR_SECRET}"}
"""


def test_each_node_needs_its_own_variables_only(check: Check) -> None:
    dit = check(NEEDY, role="dit", environ={"MODEL": "zai-org/GLM-Image", "DIT_TP": "2", "DIT_DEVICES": "0,1"})
    assert dit.findings == ()
    assert dit.deployment is not None
    assert dit.deployment.ar is None
    ar = check(NEEDY, role="ar", environ={"MODEL": "zai-org/GLM-Image", "AR_TP": "1", "AR_DEVICES": "0", "DIT_TP": "x"})
    assert [item.key for item in ar.errors] == [
        "stages[0].max_num_seqs",
        "stages[0].bogus",
        "platforms.cuda.stages[0].env.A",
    ]


def test_a_note_that_no_checkpoint_is_named_and_where_it_comes_from(check: Check) -> None:
    text = MINIMAL.replace("model: zai-org/GLM-Image\n", "")
    inspection = check(text, role="ar", environ={"MODEL": "some/model"})
    assert inspection.deployment is not None
    assert inspection.deployment.ar is not None
    assert inspection.deployment.ar.model == "some/model"
    assert "is not written; some/model is used" in inspection.findings[0].message


def test_a_stage_may_have_its_own_checkpoint_and_inherits_the_wide_keys(check: Check) -> None:
    text = (
        MINIMAL.replace('devices: "1"', 'devices: "1"\n    model: other/model\n    dtype: float32')
        + "dtype: bfloat16\n"
    )
    deployment = check(text).deployment
    assert deployment is not None
    assert deployment.ar is not None
    assert deployment.dit is not None
    assert (deployment.ar.model, deployment.dit.model) == ("zai-org/GLM-Image", "other/model")
    assert (deployment.ar.engine_args["dtype"], deployment.dit.engine_args["dtype"]) == ("bfloat16", "float32")
    assert "model" not in deployment.dit.engine_args


def test_groups_are_folded_in_with_upstreams_precedence(check: Check) -> None:
    groups = """
    engine_extras: {seed: 1, max_model_len: 1, enforce_eager: false}
    max_model_len: 2
    engine_args: {enforce_eager: true, default_sampling_params: {top_k: 5}}
    default_sampling_params: {top_p: 0.5}
    runtime: {devices: "6"}
"""
    deployment = check(MINIMAL.replace('    devices: "0"\n', groups), role="ar").deployment
    assert deployment is not None
    assert deployment.ar is not None
    assert deployment.ar.engine_args == {
        "seed": 1,
        "max_model_len": 2,
        "enforce_eager": True,
        "default_sampling_params": {"top_p": 0.5, "top_k": 5},
        "devices": "6",
    }


def test_the_literal_file_holds_one_stage_and_its_platforms(check: Check, tmp_path: Path) -> None:
    block = "platforms: {cuda: {stages: [{stage_id: 1, enforce_eager: true}, {stage_id: 0, enforce_eager: false}]}}\n"
    deployment = check(MINIMAL + block, role="dit").deployment
    assert deployment is not None
    assert deployment.dit is not None
    path = tmp_path / "literal.yaml"
    write_literal(deployment.dit, path, pipeline="one")
    assert yaml.safe_load(path.read_text()) == literal_document(deployment.dit, "one")
    assert literal_document(deployment.dit, "one") == {
        "pipeline": "one",
        "async_chunk": False,
        "stages": [{"stage_id": 0, "devices": "1"}],
        "platforms": {"cuda": {"stages": [{"stage_id": 0, "enforce_eager": True}]}},
    }


@pytest.mark.parametrize("text", ["a: '\\${oc.env:HOME}'", 'a: "${oc.env:X}"'])
def test_no_interpolation_is_left_for_vllm_omni(check: Check, text: str) -> None:
    inspection = check(
        MINIMAL.replace('devices: "0"', f'devices: "0"\n    env: {{{text}}}'),
        role="ar",
        environ={"X": "${oc.env:HOME}"},
    )
    assert "would be resolved once more" in inspection.errors[0].message


def test_the_error_is_one_line_with_file_line_key_and_mend(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(MINIMAL + "dytpe: bfloat16\nplacement: near\n")
    with pytest.raises(ConfigError) as caught:
        resolve(path, role="all", environ={})
    assert str(caught.value) == f"{path}:9: dytpe: no such key at the top of a file; did you mean dtype?"
    assert caught.value.param == "dytpe"
    with pytest.raises(ConfigError, match="No such file or directory; name a file that can be read"):
        resolve(tmp_path / "nowhere.yaml", role="all", environ={})
