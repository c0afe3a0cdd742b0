"""`diptych check` and `diptych migrate`, as a user meets them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from services.cli import main
from services.stages.source_reader import root_of
from tests.unit.stages.files import MINIMAL, ROOT

FILE = str(ROOT / "stage_configs" / "glm_image.yaml")


def diptych(*arguments: str, **environ: str) -> Result:
    names = ("MODEL", "AR_TP", "DIT_TP", "AR_DEVICES", "DIT_DEVICES", "AR_MAX_NUM_SEQS", "AR_MEMORY")
    return CliRunner().invoke(main, list(arguments), env={**dict.fromkeys(names), **environ})


def test_a_clean_file_shows_the_picture_and_exits_0() -> None:
    done = diptych("check", FILE, AR_MAX_NUM_SEQS="3")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].split() == ["STAGE", "MODEL", "PART", "DEVICES", "TP", "SEQS", "SCHEDULER", "CONNECTOR", "MODEL"]
    assert lines[1].split()[:6] == ["0", "ar", "vision_language_encoder", "0", "1", "3"]
    assert "OmniARAsyncScheduler, async on" in lines[1]
    assert lines[2].split() == ["1", "dit", "transformer", "1", "1", "1", "-", "NixlConnector", "zai-org/GLM-Image"]
    assert any(line.split() == ["ar.max_num_seqs", "3", "AR_MAX_NUM_SEQS", "(environment)"] for line in lines)
    assert any(line.startswith("dit.devices") and "(default, DIT_DEVICES unset)" in line for line in lines)
    assert any(line.startswith("ar.default_sampling_params.top_p") and ".yaml:" in line for line in lines)
    assert lines[-1] == f"{FILE} (role all): 0 errors, 0 warnings"


def test_errors_are_listed_with_file_and_line_and_exit_1() -> None:
    done = diptych("check", FILE, "--role", "dit", DIT_TP="3")
    assert done.exit_code == 1
    findings = [line for line in done.output.splitlines() if ": error: " in line]
    assert len(findings) == 2
    assert all(line.startswith(f"{FILE}:") for line in findings)
    assert "set DIT_DEVICES=0,1,2" in findings[0]


def test_the_bundled_file_fails() -> None:
    done = diptych("check", str(root_of("vllm_omni") / "deploy" / "glm_image.yaml"))
    assert done.exit_code == 1
    assert (
        "platforms.npu.stages[0].scheduler_cls: OmniARScheduler does not fit async_scheduling: true on npu"
        in done.output
    )


def test_json_for_programs() -> None:
    done = diptych("check", FILE, "--json", "--role", "ar", AR_TP="2", AR_DEVICES="2,3")
    found = json.loads(done.output)
    assert (done.exit_code, found["ok"], found["role"], found["findings"]) == (0, True, "ar", [])
    stage = found["stages"][0]
    assert (stage["devices"], stage["tensor_parallel_size"], stage["scheduler"]["async_scheduling"]) == ("2,3", 2, True)
    assert stage["sources"]["devices"]["variables"] == ["AR_DEVICES"]
    assert stage["sources"]["enforce_eager"]["kind"] == "file"
    broken = json.loads(diptych("check", FILE, "--json", AR_TP="two").output)
    assert broken["ok"] is False
    assert broken["findings"][0]["message"] == "AR_TP must be a whole number of 1 or more, got 'two'"
    assert broken["findings"][0]["line"] > 0


def test_a_file_that_is_not_there() -> None:
    done = diptych("check", "nowhere.yaml")
    assert done.exit_code == 1
    assert "nowhere.yaml: error: No such file or directory; name a file that can be read" in done.output
    assert json.loads(diptych("check", "nowhere.yaml", "--json").output)["stages"] == []


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("tensor_parallel_size", ["Must divide the checkpoint's heads", "ar stage: int | None, default 1"]),
        ("gpu_memory_utilization", ["default 0.92", "dit stage: float | None, default 0.9"]),
        ("default_sampling_params.top_p", ["ar stage: float, default 1.0", "top tokens to consider"]),
        ("default_sampling_params.num_inference_steps", ["dit stage: int"]),
        ("connectors.extra.lease_seconds", ["a setting of NixlConnector", "default 3600.0"]),
        ("share_devices", ["top of the file: bool, default False", "claim the same device"]),
        ("stages[0].devices", ["Device numbers within what this process may see"]),
        ("scheduler_cls", ["Never written: vLLM-Omni chooses the class", "no key of a stage"]),
        ("vae_use_slicing", ["dit stage: bool | None, default False"]),
    ],
)
def test_explain_says_what_a_key_does_and_its_default(key: str, says: list[str]) -> None:
    done = diptych("check", "--explain", key)
    assert done.exit_code == 0
    assert [text for text in says if text not in done.output] == []


def test_explain_suggests_the_nearest_key() -> None:
    done = diptych("check", "--explain", "max_num_seq")
    assert done.exit_code == 1
    assert "did you mean max_num_seqs?" in done.output


def test_migrate_prints_the_file_and_what_is_still_wrong(tmp_path: Path) -> None:
    old = tmp_path / "old.yaml"
    old.write_text("stage_args:\n- {stage_id: 0, runtime: {devices: '0'}}\n- {stage_id: 1, runtime: {devices: '1'}}\n")
    done = diptych("migrate", str(old))
    assert done.exit_code == 0
    assert done.stdout.startswith("# Migrated from old.yaml")
    old.write_text("stage_args: [{stage_id: 0, runtime: {devices: '0'}}]\n")
    done = diptych("migrate", str(old))
    assert done.exit_code == 1
    assert "no entry with stage_id: 1" in done.stderr
    old.write_text(MINIMAL)
    assert "has no stage_args list, so there is nothing to migrate" in diptych("migrate", str(old)).stderr
