"""What a stage configuration's NixlConnector says counts where the environment says nothing."""

import pytest

from services.handoff.settings import HandoffSettings
from services.wire.errors import ConfigError


def test_the_connector_fills_what_is_not_set() -> None:
    settings = HandoffSettings().under({"host": "127.0.0.1", "transfer_timeout_s": 5, "lease_seconds": 1})
    assert (settings.bind_host, settings.advertise_host, settings.transfer_deadline) == ("127.0.0.1", None, 5.0)


@pytest.mark.parametrize("name", ["DIPTYCH_HANDOFF_BIND_HOST", "DIPTYCH_HANDOFF_ADVERTISE_HOST"])
def test_the_environment_beats_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "127.0.0.2")
    monkeypatch.setenv("DIPTYCH_HANDOFF_TRANSFER_DEADLINE", "7")
    before = HandoffSettings()
    assert before.under({"host": "127.0.0.1", "transfer_timeout_s": 5}) == before


@pytest.mark.parametrize("host", ["auto", "", "0.0.0.0", None])
def test_no_address_in_particular_changes_nothing(host: str | None) -> None:
    assert HandoffSettings().under({"host": host}) == HandoffSettings()


def test_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="host 'node-1' is not an IP address"):
        HandoffSettings().under({"host": "node-1"})
