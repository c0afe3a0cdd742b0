"""References between values: where they come from, and those that would never end."""

from pathlib import Path

import pytest

from services.stages import inspect
from services.stages.findings import Findings, Refused
from services.stages.literal import Literals
from services.stages.yaml_tree import read_tree
from tests.unit.stages.files import MINIMAL, Check


def literals(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> tuple[Literals, Findings]:
    path, findings = tmp_path / "x.yaml", Findings()
    path.write_text(text)
    return Literals(read_tree(path), environ or {}, findings), findings


def test_a_reference_to_a_mapping_is_copied_and_traced(tmp_path: Path) -> None:
    found, findings = literals(
        tmp_path, "shared: {host: '${env.str:HOST,a}', ports: [1, 2]}\nnixl: ${shared}\n", {"HOST": "b"}
    )
    assert found.value(("nixl",)) == {"host": "b", "ports": [1, 2]}
    assert found.sources["nixl", "host"].variables == ("HOST",)
    assert found.sources["nixl", "host"].place.line == 2
    assert findings.items == []


def test_where_a_value_came_from(tmp_path: Path) -> None:
    found, _ = literals(tmp_path, "a: 1\nb: ${env.int:B,2}\nc: ${env.int:C,3}\nd: ${b}\n", {"C": "4"})
    assert [found.value((name,)) for name in "abcd"] == [1, 2, 4, 2]
    assert [str(found.sources[(name,)]).removeprefix(f"{tmp_path}/") for name in "abcd"] == [
        "x.yaml:1",
        "x.yaml:2 (default, B unset)",
        "C (environment)",
        "x.yaml:4 (default, B unset)",
    ]


def test_a_missing_key_is_none_and_unasked_values_are_not_resolved(tmp_path: Path) -> None:
    found, findings = literals(tmp_path, "a: ${env.int:A}\nb: [{c: 1}]\n")
    assert found.value(("x",)) is None
    assert found.value(("b", 3)) is None
    assert found.value(("b", 0, "c", "d")) is None
    assert found.value(("b", 0, "c")) == 1
    assert findings.items == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x: ${x}", "cannot be resolved"),
        ("x: ${y}\ny: ${x}", "Recursive interpolation"),
        ("x: ${nowhere}", "cannot be resolved: Interpolation key 'nowhere' not found"),
        ("x: ???", "a value is still missing (???)"),
        ("x: ${", "not a valid interpolation"),
        ("x: ${}", "not a valid interpolation"),
        ("x: " + "${" * 30 + "}" * 30, "16 pairs of braces"),
        ("x: ${oc.decode:" + "'[' " * 200 + "}", "500 characters"),
        ("x: ${oc.decode:${oc.env:X}}", "cannot be resolved"),
        ("x: ${oc.create:${oc.env:X}}", "cannot be resolved"),
        ("x: ${oc.env:X,1,2}", "oc.env takes one default"),
    ],
)
def test_what_cannot_be_resolved_is_one_finding(tmp_path: Path, text: str, says: str) -> None:
    found, findings = literals(tmp_path, text, {"X": "[" * 4000})
    assert found.value(("x",)) is None
    assert len(findings.items) == 1
    assert says in findings.items[0].message


def test_references_that_double_each_time_are_refused_before_they_are_followed(tmp_path: Path) -> None:
    lines = [f"a{i}: ${{a{i + 1}}}${{a{i + 1}}}" for i in range(40)]
    found, findings = literals(tmp_path, "\n".join([*lines, "a40: x"]))
    assert found.value(("a0",)) is None
    assert "references multiply" in findings.items[0].message
    lines = [f"a{i}: ${{oc.select:a{i + 1}}}${{oc.select:a{i + 1}}}" for i in range(40)]
    _, findings = literals(tmp_path, "\n".join([*lines, "a40: x"]))
    assert "references multiply" in findings.items[0].message


def test_mappings_that_refer_to_mappings_that_refer_end(tmp_path: Path) -> None:
    lines = [f"a{i}: {{x: '${{a{i + 1}}}', y: '${{a{i + 1}}}'}}" for i in range(40)]
    found, _ = literals(tmp_path, "\n".join([*lines, "a40: x", "b: ${a0}"]))
    with pytest.raises(Refused, match="levels of mappings"):
        found.value(("b",))


def test_a_hostile_file_ends_the_check_with_one_finding(check: Check, tmp_path: Path) -> None:
    lines = [f"a{i}: {{x: '${{a{i + 1}}}', y: '${{a{i + 1}}}'}}" for i in range(40)]
    inspection = check("\n".join([*lines, "a40: x", "connectors: {c: '${a0}'}"]))
    assert any("levels of mappings" in item.message for item in inspection.errors)


def test_a_file_name_with_line_breaks_stays_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nb.yaml"
    path.write_text(MINIMAL + "bogus: 1\n")
    assert all("\n" not in str(item) for item in inspect(path, role="all", environ={}).findings)
