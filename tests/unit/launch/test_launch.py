"""launch.sh alone: a stand-in `diptych` writes down what it was started with."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RECORDER = """#!/usr/bin/env bash
recorded() { for name in "$@"; do until [[ -e $RECORDS/$name ]]; do sleep 0.01; done; done; }
drain() { for _ in {1..20}; do [[ -e $RECORDS/stopped ]] || sleep 0.05; done; } # long enough for others to be first
[[ $1 == wait ]] || trap '[[ $1 != gateway ]] || drain; echo "$1" >> "$RECORDS/stopped"; exit 0' TERM
{ echo "command=$*"; env; } > "$RECORDS/$1.tmp"
mv "$RECORDS/$1.tmp" "$RECORDS/$1"
[[ $1 == check ]] && { echo "$2:1: error: wrong here"; exit "${WRONG:-0}"; }
[[ $1 == "${DIES:-}" ]] && recorded ar gateway && exit 3
[[ $1 == wait && -z ${DIES:-} ]] && recorded $(printf '%s\n' "${@:4}" | cut -d= -f1) && exit 0
while :; do sleep 0.05; done
"""


class Launch:
    """One launch of the script, stopped once `wait` has succeeded or the script ended by itself."""

    def __init__(self, folder: Path, **environment: str) -> None:
        binary = folder / "diptych"
        binary.write_text(RECORDER)
        binary.chmod(0o755)
        self.records = folder / "records"
        self.records.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        process = subprocess.Popen(
            [ROOT / "launch/launch.sh"],
            env={**kept, "DIPTYCH_BIN": str(binary), "RECORDS": str(self.records), **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = []
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if "ready" in line and "before" not in line:
                process.send_signal(signal.SIGTERM)
        self.code = process.wait(timeout=20)
        self.said = "".join(lines)

    def started(self, service: str) -> dict[str, str]:
        """The environment that a service was started with; `command` is its command line."""
        return dict(line.split("=", 1) for line in (self.records / service).read_text().splitlines() if "=" in line)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"ROLE": "ar"}, "ADVERTISE_HOST"),
        ({"ROLE": "dit"}, "ADVERTISE_HOST"),
        ({"ROLE": "dit", "ADVERTISE_HOST": ""}, "ADVERTISE_HOST"),
        ({"ROLE": "ar", "ADVERTISE_HOST": "0.0.0.0"}, "0.0.0.0"),
        ({"ROLE": "ar", "ADVERTISE_HOST": "192.0.2.7"}, "192.0.2.7"),
        ({"ROLE": "gateway"}, "AR_URLS"),
        ({"ROLE": "gateway", "AR_URLS": "http://10.0.0.1:8101"}, "DIT_URLS"),
        ({"ROLE": "gateway", "AR_URLS": "http://10.0.0.1:8101", "DIT_URLS": ""}, "DIT_URLS"),
        ({"ROLE": "both"}, "all, ar, dit or gateway"),
        ({"DIPTYCH_BIN": "/nowhere/diptych"}, "make install"),
    ],
)
def test_a_missing_variable_is_named_and_nothing_starts(tmp_path, environment, named):
    launch = Launch(tmp_path, **environment)
    assert launch.code == 2
    assert named in launch.said
    assert len(launch.said.splitlines()) == 1
    assert not list(launch.records.iterdir())


def test_a_node_needs_nothing_of_the_other_nodes(tmp_path):
    launch = Launch(tmp_path, ROLE="ar", ADVERTISE_HOST="127.0.0.1", AR_TP="2", AR_DEVICES="2,3", UCX_TLS="tcp,self")
    started = launch.started("ar")
    assert started["command"] == "ar"
    assert started["DIPTYCH_AR_HOST"] == started["DIPTYCH_HANDOFF_ADVERTISE_HOST"] == "127.0.0.1"
    assert (started["AR_TP"], started["AR_DEVICES"], started["UCX_TLS"]) == ("2", "2,3", "tcp,self")
    assert not [name for name in started if name.startswith(("DIT_", "AR_URLS", "DIPTYCH_DIT_URLS"))]
    assert sorted(path.name for path in launch.records.iterdir()) == ["ar", "stopped", "wait"]
    assert "AR_URLS=http://127.0.0.1:8101" in launch.said


def test_the_operators_own_addresses_win(tmp_path):
    launch = Launch(
        tmp_path, ROLE="dit", ADVERTISE_HOST="127.0.0.1", DIPTYCH_DIT_HOST="::1", DIPTYCH_HANDOFF_BIND_HOST="0.0.0.0"
    )
    assert launch.started("dit")["DIPTYCH_DIT_HOST"] == "::1"
    assert launch.started("dit")["DIPTYCH_HANDOFF_BIND_HOST"] == "0.0.0.0"
    assert launch.started("wait")["command"].endswith("dit=http://[::1]:8102")


def test_the_gateway_hears_of_every_replica(tmp_path):
    launch = Launch(tmp_path, ROLE="gateway", AR_URLS="http://a:1", DIT_URLS="http://b:1,dns://c:2")
    started = launch.started("gateway")
    assert started["DIPTYCH_AR_URLS"] == "http://a:1"
    assert started["DIPTYCH_DIT_URLS"] == "http://b:1,dns://c:2"


def test_all_on_one_machine_and_one_stop_for_all(tmp_path):
    launch = Launch(tmp_path, DIPTYCH_AR_PORT="18101", DIPTYCH_GATEWAY_PORT="18000")
    assert launch.started("gateway")["DIPTYCH_AR_URLS"] == "http://127.0.0.1:18101"
    assert "http://127.0.0.1:18000/v1/images/generations" in launch.said
    stopped = (launch.records / "stopped").read_text().split()
    assert sorted(stopped) == ["ar", "dit", "gateway"]
    assert stopped[0] == "gateway", "the stages stop once the gateway has drained"
    assert launch.code == 143


def test_one_death_ends_all(tmp_path):
    launch = Launch(tmp_path, DIES="dit")
    assert launch.code != 0
    assert "the dit service ended" in launch.said
    assert sorted((launch.records / "stopped").read_text().split()) == ["ar", "gateway"]


def test_a_wrong_stage_configuration_starts_nothing(tmp_path):
    launch = Launch(tmp_path, DIPTYCH_STAGE_CONFIG="mine.yaml", WRONG="1")
    assert launch.code == 2
    assert "mine.yaml:1: error: wrong here" in launch.said
    assert [path.name for path in launch.records.iterdir()] == ["check"]


def test_a_node_with_one_stage_leaves_the_check_to_its_service(tmp_path):
    launch = Launch(tmp_path, ROLE="ar", ADVERTISE_HOST="127.0.0.1")
    assert not (launch.records / "check").exists()
