"""A checkpoint is checked before an engine is built on it."""

import json
import shutil
from pathlib import Path

import pytest

from services.omni.checkpoint import CONFIGS, WEIGHTS, open_checkpoint
from services.wire.errors import ConfigError


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny, tmp_path / "copy")


def test_both_stages_see_the_same_fingerprint(tiny: Path) -> None:
    ar, dit = open_checkpoint(str(tiny), 0), open_checkpoint(str(tiny), 1)
    assert ar.fingerprint == dit.fingerprint
    assert len(ar.fingerprint) == 32
    assert ar.max_positions() == 131072


def test_the_fingerprint_ignores_where_it_lies_and_what_lies_beside_it(tiny: Path, copy: Path) -> None:
    (copy / "README.md").write_text("hello")
    assert open_checkpoint(str(copy), 0).fingerprint == open_checkpoint(str(tiny), 0).fingerprint


def test_hosts_that_hold_the_weights_of_one_stage_each_agree(tiny: Path, copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tiny, tmp_path / "other")
    (copy / "vision_language_encoder" / "model.safetensors").unlink()
    for part in ("transformer", "vae", "text_encoder"):
        (other / part / f"{WEIGHTS[part]}.safetensors").unlink()
    assert open_checkpoint(str(other), 0).fingerprint == open_checkpoint(str(copy), 1).fingerprint


@pytest.mark.parametrize("part", CONFIGS)
def test_another_configuration_of_any_part_is_another_model(tiny: Path, copy: Path, part: str) -> None:
    config = copy / part / CONFIGS[part]
    config.write_text(json.dumps(json.loads(config.read_text()) | {"_another": 1}))
    for stage in (0, 1):
        assert open_checkpoint(str(copy), stage).fingerprint != open_checkpoint(str(tiny), stage).fingerprint


PARTS_OF_STAGE = [(0, "vision_language_encoder"), (0, "processor")]
PARTS_OF_STAGE += [(1, part) for part in ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")]


@pytest.mark.parametrize(("stage", "part"), PARTS_OF_STAGE)
def test_a_missing_configuration_is_named(copy: Path, stage: int, part: str) -> None:
    (copy / part / CONFIGS[part]).unlink()
    with pytest.raises(ConfigError, match=f"{part}/{CONFIGS[part]} is missing.*tiny-model") as caught:
        open_checkpoint(str(copy), stage)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(("stage", "part"), [pair for pair in PARTS_OF_STAGE if pair[1] in WEIGHTS])
def test_missing_weights_are_named(copy: Path, stage: int, part: str) -> None:
    (copy / part / f"{WEIGHTS[part]}.safetensors").unlink()
    with pytest.raises(ConfigError, match=rf"{part}/{WEIGHTS[part]}.safetensors is missing"):
        open_checkpoint(str(copy), stage)


def test_a_missing_shard_is_named(copy: Path) -> None:
    part = copy / "transformer"
    (part / "diffusion_pytorch_model.safetensors").rename(part / "shard-1.safetensors")
    index = {"weight_map": {"a": "shard-1.safetensors", "b": "shard-2.safetensors"}}
    (part / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"transformer/shard-2.safetensors is missing"):
        open_checkpoint(str(copy), 1)
    (part / "shard-2.safetensors").write_bytes(b"x")
    open_checkpoint(str(copy), 1)


def test_each_stage_may_lack_the_weights_of_the_other(copy: Path) -> None:
    (copy / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    open_checkpoint(str(copy), 0)


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_broken_file_is_named(copy: Path, text: str) -> None:
    (copy / "vae" / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"vae/config\.json"):
        open_checkpoint(str(copy), 1)


def test_another_models_checkpoint_is_refused(copy: Path) -> None:
    (copy / "model_index.json").write_text(json.dumps({"_class_name": "QwenImagePipeline"}))
    with pytest.raises(ConfigError, match="QwenImagePipeline"):
        open_checkpoint(str(copy), 0)


def test_a_path_that_is_not_there_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="is no directory: name one"):
        open_checkpoint(str(tmp_path / "nothing"), 0)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="cannot be had") as caught:
        open_checkpoint("diptych-tests/not-cached", 0)
    assert "\n" not in caught.value.message
