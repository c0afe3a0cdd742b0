"""Profiles come from files that anybody may have written."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner import profile
from services.wire.errors import ConfigError


@pytest.mark.parametrize("name", profile.names())
def test_every_shipped_profile_loads_and_names_its_sources(name: str) -> None:
    found = profile.load(name)
    assert found.name == name
    assert found.origin == "published"
    assert all(len(source) > 20 for source in found.sources)


def test_the_published_tensor_parallel_table_is_shipped_as_published() -> None:
    runs = {run.tp: (run.seconds, run.memory_gib) for run in profile.load("dit-tp").dit.runs}
    assert runs == {1: (46.778, 23.14), 2: (38.317, 17.804), 4: (32.187, 14.798)}


def test_json_is_taken_too(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    assert profile.load(str(path)).ar.runs[0].seconds == {1: 10.0, 4: 20.0}


def _with(content: Any, path: str, value: Any) -> str:
    *parents, last = path.split(".")
    at = content
    for part in parents:
        at = at[int(part)] if part.isdigit() else at[part]
    at[last] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("dit.runs.0.seconds", float("nan"), "dit.runs.0.seconds"),
        ("dit.runs.0.seconds", float("inf"), "dit.runs.0.seconds"),
        ("dit.runs.0.seconds", 0, "dit.runs.0.seconds"),
        ("dit.runs.0.seconds", -1, "dit.runs.0.seconds"),
        ("dit.runs.0.fixed_seconds", 20.0, "fixed_seconds"),
        ("dit.runs.0.steps", 0, "dit.runs.0.steps"),
        ("dit.runs.0.width", 9000, "dit.runs.0.width"),
        ("dit.runs.0.tp", 0, "dit.runs.0.tp"),
        ("dit.runs", [], "dit.runs"),
        ("ar.runs.0.seconds", {}, "ar.runs.0.seconds"),
        ("ar.runs.0.seconds", {"4": 20.0}, "batch 1"),
        ("ar.runs.0.seconds", {"1": 20.0, "4": 10.0}, "larger batch"),
        ("ar.runs.0.seconds", {"0": 1.0, "1": 2.0}, "ar.runs.0.seconds"),
        ("origin", "guessed", "origin"),
        ("sources", [], "sources"),
        ("name", "../../etc/passwd", "name"),
        ("memory_gib", "lots", "memory_gib"),
        ("surprise", 1, "surprise"),
    ],
)
def test_a_wrong_field_is_named(content: Any, path: str, value: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")) as caught:
        profile.parse(_with(content, path, value), "mine.json")
    assert "mine.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mapping"),
        ("[1, 2]", "mapping"),
        ("a: [", "not valid YAML"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("[" * 60_000, "deep"),
        ("a: \x00", "not valid YAML"),
    ],
    ids=["empty", "list", "cut off", "alias", "code", "deep", "control character"],
)
def test_what_is_no_profile_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        profile.parse(text, "it")


@pytest.mark.parametrize("name", ["nope", "", ".", "a\0b.yaml", "/dev/zero.yaml", "../profiles/a800"])
def test_an_unknown_profile_says_which_there_are_or_why_not(name: str) -> None:
    with pytest.raises(ConfigError, match=r"a800|cannot be read"):
        profile.load(name)


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.yaml", tmp_path / "binary.yaml"
    large.write_bytes(b"#" * (profile.MAX_FILE + 1))
    binary.write_bytes(bytes(range(128, 256)))
    with pytest.raises(ConfigError, match="at most"):
        profile.load(str(large))
    with pytest.raises(ConfigError, match="cannot be read as text"):
        profile.load(str(binary))


@given(st.text(max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_text_is_a_profile_or_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        profile.parse(text, "noise")
