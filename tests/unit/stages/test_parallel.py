"""TP, devices and the checkpoint's sizes."""

import json
from pathlib import Path

import pytest

from services.stages.checkpoint import PartSizes, part_sizes
from services.stages.parallel import world_size
from services.wire.errors import ConfigError
from tests.unit.stages.files import MINIMAL, Check, messages


def with_tp(ar: int = 1, dit: int = 1, top: str = "") -> str:
    def devices(first: int, count: int) -> str:
        return ",".join(str(first + i) for i in range(count))

    text = MINIMAL.replace('devices: "0"', f'devices: "{devices(0, ar)}"\n    tensor_parallel_size: {ar}')
    return text.replace('devices: "1"', f'devices: "{devices(ar, dit)}"\n    tensor_parallel_size: {dit}') + top


@pytest.mark.parametrize(("ar", "dit"), [(1, 1), (2, 1), (1, 2), (2, 8), (1, 32)])
def test_sizes_that_divide_pass(check: Check, ar: int, dit: int) -> None:
    assert check(with_tp(ar, dit)).findings == ()


def test_a_size_that_does_not_divide_is_refused_with_those_that_do(check: Check) -> None:
    assert messages(check(with_tp(dit=3))) == [
        "10 stages[1].tensor_parallel_size: 3 does not divide 32 attention heads and 4096 hidden units and 16384 FFN "
        "units (the published sizes); these sizes work: 1, 2, 4, 8, 16, 32"
    ]
    assert "3 does not divide 32 attention heads and 2 key-value heads" in messages(check(with_tp(ar=3)))[0]


def test_copied_key_value_heads_are_a_warning(check: Check) -> None:
    inspection = check(with_tp(ar=8))
    assert messages(inspection) == []
    assert [item.level.value for item in inspection.findings] == ["warning"]
    assert "2 key-value heads over 8 ranks: each head is held 4 times" in inspection.findings[0].message


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        (
            'devices: "${env.devices:AR_DEVICES,0}"\n    tensor_parallel_size: ${env.int:AR_TP,1}',
            {"AR_TP": "2"},
            "'0' names 1 but tensor_parallel_size 2 needs 2; set AR_DEVICES=0,1, or AR_TP=1",
        ),
        (
            'devices: "${env.devices:AR_DEVICES,0}"\n    tensor_parallel_size: ${env.int:AR_TP,1}',
            {"AR_DEVICES": "2,3"},
            "'2,3' names 2 but tensor_parallel_size 1 needs 1; set AR_DEVICES=0, or AR_TP=2",
        ),
        ('devices: "0"\n    data_parallel_size: 2', {}, "'0' names 1 but the parallel sizes (together 2) needs 2"),
        ('devices: "0,x"', {}, "must be device numbers with commas between, such as 0,1, got '0,x'"),
        ('devices: "0,0"', {}, "names a device twice"),
        ("max_num_seqs: 1", {}, 'is missing; name the devices, such as devices: "0"'),
        ('devices: "0"\n    num_replicas: 2', {}, "must be 1: Diptych runs one replica a service"),
    ],
)
def test_devices_must_fit(check: Check, text: str, environ: dict[str, str], says: str) -> None:
    found = messages(check(MINIMAL.replace('devices: "0"', text), environ=environ, role="ar"))
    assert len(found) == 1
    assert says in found[0]


def test_two_stages_on_one_device(check: Check) -> None:
    text = MINIMAL.replace('devices: "1"', 'devices: "0"')
    found = messages(check(text))
    assert len(found) == 1
    assert "8 stages[1].devices: device 0 is claimed by the ar stage too" in found[0]
    assert "share_devices: true" in found[0]
    assert messages(check(text + "share_devices: true\n")) == []
    assert messages(check(text + "placement: separate_nodes\n")) == []
    assert messages(check(text, role="ar")) == []
    block = "platforms: {cuda: {stages: [{stage_id: 0, devices: '1'}, {stage_id: 1, enforce_eager: true}]}}\n"
    assert "device 1 is claimed" in messages(check(MINIMAL + block))[0]


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({}, 1),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 3}, 6),
        ({"parallel_config": {"tensor_parallel_size": 1, "sequence_parallel_size": 4, "ulysses_degree": 4}}, 4),
        ({"ulysses_degree": 2, "ring_degree": 2, "cfg_parallel_size": 2}, 8),
        ({"tensor_parallel_size": 4, "parallel_config": {"tensor_parallel_size": 2}}, 2),
        ({"tensor_parallel_size": "x", "data_parallel_size": True, "ring_degree": -1}, 1),
    ],
)
def test_the_world_of_a_stage(values: dict[str, object], size: int) -> None:
    assert world_size(values) == size


def checkpoint(folder: Path, heads: int = 6, kv: int = 3) -> Path:
    parts = {
        "transformer": {"num_attention_heads": heads, "attention_head_dim": 16},
        "vision_language_encoder": {
            "text_config": {"num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": 96},
            "vision_config": {"num_heads": 12},
        },
    }
    for part, config in parts.items():
        (folder / part).mkdir(parents=True)
        (folder / part / "config.json").write_text(json.dumps(config))
    return folder


def test_the_sizes_come_from_the_checkpoint(check: Check, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    text = with_tp(2, 2).replace("zai-org/GLM-Image", str(folder))
    found = messages(check(text))
    assert len(found) == 1
    assert "2 does not divide 3 key-value heads" in found[0]
    assert "these sizes work: 1, 3, 6" in found[0]
    assert str(folder / "vision_language_encoder" / "config.json") in found[0]


def test_a_hub_model_is_found_in_its_cache(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--some--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc123\n")
    checkpoint(repository / "snapshots" / "abc123", heads=10)
    found = part_sizes("some/model", "dit", "transformer", {"HF_HOME": str(tmp_path)})
    assert found is not None
    assert found.whole == {"attention heads": 10, "hidden units": 160, "FFN units": 640}
    assert found.that_work() == [1, 2, 5, 10]
    assert part_sizes("some/other", "dit", "transformer", {"HF_HOME": str(tmp_path)}) is None


def test_a_checkpoint_that_is_not_here_is_a_note(check: Check) -> None:
    inspection = check(MINIMAL.replace("zai-org/GLM-Image", "./nowhere"))
    assert [item.level.value for item in inspection.findings] == ["note", "note"]
    assert "TP is not checked against its sizes" in inspection.findings[0].message


@pytest.mark.parametrize(
    "config", ["{", "[]", "{}", '{"num_attention_heads": "x"}', '{"num_attention_heads": 0}', "[" * 100_000]
)
def test_a_broken_checkpoint_is_an_error_with_the_mend(tmp_path: Path, config: str) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(config)
    with pytest.raises(ConfigError, match="download the checkpoint again"):
        part_sizes(str(tmp_path), "dit", "transformer", {})


def test_a_broken_checkpoint_is_a_finding(check: Check, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    (folder / "transformer" / "config.json").write_text("{")
    text = MINIMAL.replace("zai-org/GLM-Image", str(folder))
    assert "download the checkpoint again" in messages(check(text))[0]
    assert messages(check(text, role="ar")) == []


def test_key_value_heads_copied_or_split() -> None:
    sizes = PartSizes("here", {"query heads": 32}, 2)
    assert sizes.that_work() == [1, 2, 4, 8, 16, 32]
    assert sizes.in_the_way(64) == ["32 query heads"]
    assert PartSizes("here", {"query heads": 12}, 3).in_the_way(2) == ["3 key-value heads"]


def test_what_could_not_be_resolved_is_said_once(check: Check) -> None:
    text = MINIMAL.replace(
        'devices: "0"', "devices: ${env.devices:AR_DEVICES}\n    tensor_parallel_size: ${env.int:AR_TP}"
    )
    found = messages(check(text, environ={"AR_DEVICES": "a"}))
    assert len(found) == 2
    assert "AR_DEVICES must be device numbers" in found[0]
    assert "AR_TP is not set" in found[1]
