"""OmegaConf's own answers to the forms that people write, row by row, and what a stage configuration makes of each.

The first half pins the facts of the installed version; the second is why the resolvers of `environment.py` exist.
"""

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from tests.unit.stages.files import MINIMAL, Check, messages


def test_oc_env_gives_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TP", raising=False)
    assert OmegaConf.create({"x": "${oc.env:TP,1}"}).x == "1"


def test_decoding_gives_a_number_and_fails_on_an_empty_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create({"x": "${oc.decode:${oc.env:TP,'1'}}"})
    monkeypatch.delenv("TP", raising=False)
    assert config.x == 1
    monkeypatch.setenv("TP", "")
    with pytest.raises(InterpolationResolutionError, match="GrammarParseError"):
        _ = config.x


def test_a_default_with_a_bare_comma_fails_only_when_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create({"x": "${oc.env:G,0,1}", "quoted": "${oc.env:G,'0,1'}"})
    monkeypatch.delenv("G", raising=False)
    with pytest.raises(InterpolationResolutionError, match="TypeError"):
        _ = config.x
    assert config.quoted == "0,1"


def test_decoding_a_device_list_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("G", "2,3")
    with pytest.raises(InterpolationResolutionError, match="GrammarParseError"):
        _ = OmegaConf.create({"x": "${oc.decode:${oc.env:G,'0'}}"}).x


def with_ar(line: str) -> str:
    return MINIMAL.replace('    devices: "0"\n', f"    {line}\n")


@pytest.mark.parametrize(
    ("line", "environ", "says"),
    [
        (
            'devices: "0"\n    tensor_parallel_size: ${oc.env:AR_TP,1}',
            {},
            "must be a whole number, got '1'; oc.env always gives text: write ${env.int:AR_TP,DEFAULT}",
        ),
        (
            "devices: \"0\"\n    tensor_parallel_size: ${oc.decode:${oc.env:AR_TP,'1'}}",
            {"AR_TP": ""},
            "cannot be resolved",
        ),
        ('devices: "${oc.env:G,0,1}"', {}, "oc.env takes one default, got 2: quote a default that holds commas"),
        ("devices: ${oc.decode:${oc.env:G,'0'}}", {"G": "2,3"}, "cannot be resolved"),
        ("devices: ${oc.decode:${oc.env:G,'0'}}", {}, "must be text, got 0; write it in quotes"),
        ("devices: 0", {}, "must be text, got 0; write it in quotes"),
        ("devices: ${oc.env:G}", {}, "G is not set"),
        ('devices: "0"\n    enforce_eager: ${oc.env:B,true}', {}, "write ${env.bool:B,DEFAULT}"),
        ('devices: "0"\n    tensor_parallel_size: "1"', {}, "must be a whole number, got '1'; remove the quotes"),
    ],
)
def test_the_forms_that_go_wrong_are_findings(check: Check, line: str, environ: dict[str, str], says: str) -> None:
    found = messages(check(with_ar(line), environ=environ))
    assert says in found[0]
    assert "stages[0]." in found[0]


@pytest.mark.parametrize(
    ("line", "environ", "tp", "devices"),
    [
        ('devices: "0"\n    tensor_parallel_size: ${oc.decode:${oc.env:AR_TP,1}}', {}, 1, "0"),
        ("devices: \"${oc.env:G,'0'}\"", {}, 1, "0"),
        ('devices: "${oc.env:G}"\n    tensor_parallel_size: 2', {"G": "2,3"}, 2, "2,3"),
        ('devices: "${env.devices:G,0}"\n    tensor_parallel_size: ${env.int:AR_TP,1}', {"AR_TP": "", "G": ""}, 1, "0"),
        (
            'devices: "${env.devices:G,0}"\n    tensor_parallel_size: ${env.int:AR_TP,1}',
            {"AR_TP": "2", "G": "2,3"},
            2,
            "2,3",
        ),
        ('devices: "${env.devices:G,0,2}"\n    tensor_parallel_size: 2', {}, 2, "0,2"),
    ],
)
def test_the_forms_that_go_right(check: Check, line: str, environ: dict[str, str], tp: int, devices: str) -> None:
    inspection = check(with_ar(line), environ=environ)
    assert messages(inspection) == []
    assert inspection.deployment is not None
    assert inspection.deployment.ar is not None
    assert (inspection.deployment.ar.tensor_parallel_size, inspection.deployment.ar.devices) == (tp, devices)


def test_connectors_are_interpolated_too(check: Check) -> None:
    block = "connectors: {nixl: {name: NixlConnector, extra: {host: '${env.str:HOST,auto}'}}}\n"
    inspection = check(MINIMAL + block, environ={"HOST": "10.0.0.1"})
    assert inspection.deployment is not None
    assert inspection.deployment.connector.extra == {"host": "10.0.0.1"}
