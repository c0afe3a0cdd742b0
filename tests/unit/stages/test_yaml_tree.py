"""Files that nobody should write, and what their reader says."""

import os
from pathlib import Path

import pytest

from services.stages.findings import Refused
from services.stages.yaml_tree import MAX_FILE_BYTES, MAX_SCALAR, read_tree


def refusal(tmp_path: Path, text: str | bytes) -> Refused:
    path = tmp_path / "hostile.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Refused) as caught:
        read_tree(path)
    return caught.value


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 0, "empty"),
        ("# only a comment", 0, "empty"),
        ("null", 1, "must be a mapping"),
        ("- 1\n- 2", 1, "must be a mapping of keys, got a list of 2"),
        ("stages:\n\t- stage_id: 0", 2, "indent with spaces, not tabs"),
        ("a: 1\nb: 2\na: 3", 3, "given twice (first at"),
        ("a:\n  b: 1\n  b: 2", 3, "given twice"),
        ("a: 1\n2: 3", 2, "a key must be text"),
        ("on: 1", 1, "a key must be text"),
        ("? [a, b]\n: 1", 1, "a key must be text"),
        ("a: 1\n---\nb: 2", 2, "another document"),
        ("a: [1", 1, "not valid YAML"),
        ("a: *nowhere", 1, "undefined alias"),
        ("a: !!python/object/apply:os.system ['true']", 1, "YAML type"),
        ("a: !!python/name:os.system ''", 1, "could not determine a constructor"),
        ("a: !!set {x, y}", 1, "YAML type"),
        ("a: !!binary aGk=", 1, "YAML type"),
        ("a: &a [*a]", 1, "contains itself"),
        ("a: &a\n  b: *a", 2, "contains itself"),
        ("a: &a\n  <<: *a", 2, "contains itself"),
        ("a:\n  <<: 3", 2, "only a mapping can be merged in"),
        ("a: .nan", 1, "finite"),
        ("a: -.inf", 1, "finite"),
        ("a: 99999999999999999999", 1, "64 bits"),
        ("a: " + "x" * (MAX_SCALAR + 1), 1, "longer than"),
        ("a: " + "[" * 200_000, 1, "levels deep"),
        ("\n".join(" " * i + "a:" for i in range(300)), 40, "levels deep"),
        (bomb(9), 1, "once aliases are expanded"),
        ("a: \x01", 0, "not valid YAML"),
        (b"a: 1\nb: \xff", 2, "not UTF-8"),
        (b"a: 1\x00", 0, "not valid YAML"),
        ("a: " + "x" * MAX_FILE_BYTES, 0, "larger than"),
    ],
)
def test_hostile_text_is_refused_at_its_line(tmp_path: Path, text: str | bytes, line: int, says: str) -> None:
    error = refusal(tmp_path, text)
    assert says in error.message
    assert error.place.line == line


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "device", "loop", "nul", "long"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "loop":
        path.symlink_to(tmp_path / "other")
        (tmp_path / "other").symlink_to(path)
    elif kind == "nul":
        path = Path("a\0b")
    elif kind == "long":
        path = tmp_path / ("x" * 5000)
    with pytest.raises(Refused, match=r"name (a file|one)"):
        read_tree(path)


def test_values_keep_their_lines_and_yaml_rules(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("\ufeffa: 1e3\nb:\n  - 2,3\n  - '0'\nday: 2026-01-01\n", encoding="utf-8")
    tree = read_tree(path)
    assert tree.plain() == {"a": 1000.0, "b": ["2,3", "0"], "day": "2026-01-01"}
    assert isinstance(tree.value, dict)
    assert tree.value["b"].place.line == 2
    assert isinstance(tree.value["b"].value, list)
    assert [item.place.line for item in tree.value["b"].value] == [3, 4]


def test_anchors_and_merge_keys_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "merge.yaml"
    path.write_text("x: &x {a: 1, b: 2}\ny: &y {b: 3}\nz:\n  <<: [*x, *y]\n  c: 4\n")
    assert read_tree(path).plain()["z"] == {"a": 1, "b": 2, "c": 4}
