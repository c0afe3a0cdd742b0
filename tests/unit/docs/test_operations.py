"""docs/operations.md names only metrics, settings, commands and errors that exist, and every state and remedy."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from services.cli import main
from services.gateway.replica import STATES
from services.wire.errors import DiptychError, HandoffError
from tests.unit.deploy.test_observability import alert_rules, defined

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/operations.md").read_text()
SETTINGS = set(re.findall(r"`(DIPTYCH_\w+)`", (ROOT / "docs/settings.md").read_text()))
SOURCE = "\n".join(path.read_text() for path in (ROOT / "services").rglob("*.py"))


def errors(kind: type[DiptychError]) -> set[str]:
    return {kind.code}.union(*(errors(child) for child in kind.__subclasses__()))


def test_every_metric_exists() -> None:
    named = set(re.findall(r"\bdiptych_[a-z_]+\b", PAGE))
    assert len(named) > 5
    families = {name.removesuffix("_bucket") for name in defined()}
    assert named <= families


def test_every_setting_exists() -> None:
    named = set(re.findall(r"\bDIPTYCH_[A-Z_]+\b", PAGE))
    assert len(named) > 10
    assert named <= SETTINGS | {"DIPTYCH_STOP_TIMEOUT"}
    assert "DIPTYCH_STOP_TIMEOUT" in (ROOT / "launch/launch.sh").read_text()


def test_every_phase_is_one_that_is_measured() -> None:
    for phase in re.findall(r'phase="(\w+)"', PAGE):
        assert f'"{phase.removeprefix("dit_")}"' in SOURCE, phase  # the gateway calls the DiT's own queue `dit_queue`


def test_every_replica_state_is_explained() -> None:
    assert [state for state in STATES if f"`{state}`" not in PAGE] == []


def test_every_error_of_the_hand_off_is_in_its_table() -> None:
    section = PAGE.split("## The hand-off fails")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)`", section, re.M))
    assert named == errors(HandoffError) - {HandoffError.code}


def test_every_header_is_sent() -> None:
    named = set(re.findall(r"`(x-[a-z-]+|Retry-After|Server-Timing)`", PAGE))
    assert "Retry-After" in named
    assert [header for header in named if header.lower() not in SOURCE] == []


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`diptych (\w[\w-]*)", PAGE))))
def test_every_command_exists(command: str) -> None:
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0


def test_every_alert_is_in_the_table_of_alerts() -> None:
    section = PAGE.split("## Alerts")[1].split("\n## ")[0]
    assert set(re.findall(r"`(Diptych\w+)`", section)) == {rule["alert"] for rule in alert_rules()}
