"""`diptych plan`, as it is typed."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from services.cli import main


def _plan(*options: str) -> Result:
    return CliRunner().invoke(main, ["plan", "--jobs", "500", *options])


def test_the_answer_names_both_fleets_and_where_the_times_come_from() -> None:
    said = _plan("--profile", "a800", "--rate", "0.5").output
    for part in ("published by others, not measured by us", "Diptych", "monolith", "simulated", "times the GPUs"):
        assert part in said


def test_json_holds_the_same() -> None:
    found = json.loads(_plan("--json", "--rate", "0.5", "--gpu-price", "3.6").output)
    assert found["profile"]["origin"] == "published"
    assert found["diptych"]["gpus"] == found["diptych"]["ar_replicas"] + found["diptych"]["dit_replicas"]
    assert found["diptych"]["cost_per_image"] == pytest.approx(found["diptych"]["gpus"] * 3.6 / 3600 / 0.5)
    assert found["simulated"]["jobs"] == 500
    assert _plan("--no-simulate", "--json").output.count('"simulated": null') == 1


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_figure_is_drawn(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"plan.{kind}"
    assert _plan("--no-simulate", "--profile", "h200", "--plot", str(path)).exit_code == 0
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


@pytest.mark.parametrize("profile", ["a800", "h100", "h200", "ascend", "dit-tp"])
def test_every_shipped_profile_plans(profile: str) -> None:
    assert _plan("--profile", profile, "--no-simulate").exit_code == 0
    assert profile in _plan("--list").output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "nan"), "--rate"),
        (("--rate", "0"), "--rate"),
        (("--rate", "1e300"), "--rate"),
        (("--p95", "-1"), "--p95"),
        (("--max-load", "1"), "--max-load"),
        (("--gpu-price", "inf"), "--gpu-price"),
        (("--gpu-memory", "8"), "fits no GPU"),
        (("--mix", "big:50"), "--mix"),
        (("--batch", "0"), "--batch"),
        (("--profile", "nope"), "there are a800"),
        (("--plot", "/proc/none/x.png"), "--plot"),
        (("--plot", "plan.exe"), "must end in"),
        (("--jobs", "3"), "--jobs"),
        (("--surprise",), "No such option"),
    ],
)
def test_a_wrong_option_is_one_line_and_no_traceback(options: tuple[str, ...], said: str) -> None:
    result = _plan(*options)
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = _plan("--no-simulate", "--plot", str(tmp_path / "x.png"))
    assert "pip install matplotlib" in result.output
    assert result.exit_code == 1
