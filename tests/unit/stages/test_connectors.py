"""The `connectors:` block."""

import pytest

from tests.unit.stages.files import MINIMAL, Check, messages


def block(text: str) -> str:
    return MINIMAL + f"connectors: {text}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{nixl: {name: NixlConector}}", "vLLM-Omni has no connector 'NixlConector'; did you mean NixlConnector?"),
        ("{nixl: {extra: {}}}", "vLLM-Omni has no connector None; name one, such as NixlConnector"),
        ("{nixl: 3}", "connectors.nixl: must be a mapping with name and extra, got 3"),
        ("{nixl: {name: [1]}}", "vLLM-Omni has no connector a list of 1"),
        ("{nixl: {name: NixlConnector, extras: {}}}", "a connector has name and extra only; did you mean extra?"),
        ("{nixl: {name: NixlConnector, extra: 3}}", "connectors.nixl.extra: must be a mapping of settings, got 3"),
        (
            "{nixl: {name: NixlConnector, extra: {hots: a}}}",
            "connectors.nixl.extra.hots: NixlConnector has no such setting; did you mean host?",
        ),
        ("{nixl: {name: NixlConnector, extra: {zmq_port: '1'}}}", "must be a port from 1 to 65535, got '1'"),
        ("{nixl: {name: NixlConnector, extra: {zmq_port: 70000}}}", "must be a port from 1 to 65535, got 70000"),
        ("{nixl: {name: NixlConnector, extra: {host: 3}}}", "must be text, got 3"),
        ("{nixl: {name: NixlConnector, extra: {backends: UCX}}}", "must be a list of NIXL backends such as [UCX]"),
        ("{nixl: {name: NixlConnector, extra: {lease_seconds: -1}}}", "must be a number of 0 or more, got -1"),
        ("{nixl: {name: NixlConnector, extra: {host: '${oc.env:H}'}}}", "H is not set"),
        ("{nixl: {name: NixlConnector, extra: {transfer_timeout_s: 0}}}", "must be a number above 0, got 0"),
        ("[1]", "connectors: must be a mapping, got a list of 1"),
    ],
)
def test_what_is_wrong_in_it(check: Check, text: str, says: str) -> None:
    found = messages(check(block(text)))
    assert len(found) == 1
    assert says in found[0]


def test_the_first_nixl_connector_gives_the_settings(check: Check) -> None:
    others = "shm: {name: SharedMemoryConnector}, b: {name: NixlConnector}"
    inspection = check(block(f"{{a: {{name: NixlConnector, extra: {{num_threads: 2}}}}, {others}}}"))
    assert inspection.deployment is not None
    assert inspection.deployment.connector.extra == {"num_threads": 2}
    assert [item.level.value for item in inspection.findings] == ["note", "warning"]
    assert "Diptych's hand-off does not use it" in inspection.findings[0].message
    assert "does not use SharedMemoryConnector" in inspection.findings[1].message


def test_none_is_allowed(check: Check) -> None:
    deployment = check(MINIMAL).deployment
    assert deployment is not None
    assert (deployment.connector.name, deployment.connector.extra) == ("NixlConnector", {})


def test_a_stage_must_name_a_connector_of_the_file(check: Check) -> None:
    text = block("{nixl: {name: NixlConnector}}")
    wired = text.replace('devices: "0"', 'devices: "0"\n    output_connectors: {to_stage_1: nxil}')
    assert "no connector 'nxil' in this file; did you mean nixl?" in messages(check(wired))[0]
    good = check(wired.replace("nxil", "nixl")).deployment
    assert good is not None
    assert good.ar is not None
    assert "output_connectors" not in good.ar.engine_args  # Diptych's own hand-off takes its place
