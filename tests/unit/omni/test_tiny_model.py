"""The tiny checkpoint: the same bytes for the same recipe, whole or not there."""

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from services.cli import main
from services.omni import tiny_model
from services.omni.tiny_model import write_tiny_model
from services.omni.tiny_sizes import TinySize
from services.wire.errors import ConfigError


def digest(directory: Path) -> dict[str, str]:
    files = (file for file in sorted(directory.rglob("*")) if file.is_file())
    return {str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_two_builds_are_the_same_bytes_and_another_seed_is_not(tiny: Path, tmp_path: Path) -> None:
    again = digest(write_tiny_model(tmp_path / "again"))
    assert again == digest(tiny)
    other = digest(write_tiny_model(tmp_path / "other", seed=2))
    assert other["transformer/diffusion_pytorch_model.safetensors"] not in again.values()


def test_it_is_17_megabytes(tiny: Path) -> None:
    assert 16e6 < sum(file.stat().st_size for file in tiny.rglob("*") if file.is_file()) < 19e6


def test_a_finished_one_is_kept(tiny: Path) -> None:
    marker = tiny / "model_index.json"
    before = marker.stat().st_mtime_ns
    assert write_tiny_model(tiny) == tiny
    assert marker.stat().st_mtime_ns == before


def test_another_recipe_in_its_place_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="another seed or size"):
        write_tiny_model(tiny, size=TinySize(ar_layers=3))


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="no tiny checkpoint"):
        write_tiny_model(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(directory: Path, seed: int, size: TinySize) -> None:
        (directory / "half").write_text("")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tiny_model, "_build", full_disk)
    with pytest.raises(ConfigError, match="No space left"):
        write_tiny_model(tmp_path / "tiny")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_where_it_is_or_why_not(tiny: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["tiny-model", str(tiny)])
    assert done.exit_code == 0
    assert done.output == f"tiny checkpoint: {tiny}\n"
    (tmp_path / "notes.txt").write_text("mine")
    refused = CliRunner().invoke(main, ["tiny-model", str(tmp_path)])
    assert refused.exit_code == 1
    assert refused.output.startswith(f"Error: {tmp_path} exists and is no tiny checkpoint")


@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_the_rotary_sections_fill_half_the_head(head_dim: int) -> None:
    assert sum(TinySize(ar_head_dim=head_dim).rotary_sections()) == head_dim // 2
