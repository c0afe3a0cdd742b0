"""Addresses, ports and RDMA: what is refused, and what UCX is told."""

import os
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from services.handoff import address, ucx
from services.handoff.memory import Fabric
from services.handoff.nixl_agent import NixlAgent
from services.handoff.peers import Peers
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.wire.errors import ConfigError, IncompatiblePeer
from tests.unit.handoff.conftest import BASE, FINGERPRINT


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::"])
def test_an_address_that_only_its_owner_reaches_is_for_local_peers(host: str) -> None:
    address.check_peer(host, address.machine())
    with pytest.raises(IncompatiblePeer, match="DIPTYCH_HANDOFF_ADVERTISE_HOST"):
        address.check_peer(host, "another machine")


def test_an_address_that_others_reach_is_for_all_peers() -> None:
    address.check_peer("192.0.2.7", "another machine")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "node-1"])
def test_an_advertised_address_must_be_one(host: str) -> None:
    with pytest.raises(ValidationError):
        HandoffSettings(advertise_host=host)


def test_an_advertised_address_must_be_one_that_ucx_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_TLS", raising=False)
    with pytest.raises(ConfigError, match=r"192\.0\.2\.7 is not among the addresses"):
        address.advertised(HandoffSettings(advertise_host="192.0.2.7"), b"")


def test_the_bind_address_is_advertised_unless_another_is_set() -> None:
    assert address.advertised(HandoffSettings(bind_host="127.0.0.1"), b"") == "127.0.0.1"


def test_a_bind_address_that_no_device_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.7"):
        address.device_of("192.0.2.7")


@pytest.mark.parametrize("ports", ["41000", "1-2", "41063-41000", "41000-70000", "a-b"])
def test_a_wrong_port_range_is_refused(ports: str) -> None:
    with pytest.raises(ValidationError, match="FIRST-LAST"):
        HandoffSettings(port_range=ports)


def test_ucx_is_told_ports_and_device_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UCX_TCP_PORT_RANGE", "UCX_NET_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    with ucx.environment(HandoffSettings(port_range="41000-41063", bind_host="127.0.0.1")):
        assert os.environ["UCX_TCP_PORT_RANGE"] == "41000-41063"
        assert os.environ["UCX_NET_DEVICES"] == address.device_of("127.0.0.1")
    assert "UCX_TCP_PORT_RANGE" not in os.environ


def test_what_the_operator_told_ucx_himself_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TCP_PORT_RANGE", "50000-50010")
    with ucx.environment(HandoffSettings(port_range="41000-41063")):
        assert os.environ["UCX_TCP_PORT_RANGE"] == "50000-50010"
    assert os.environ["UCX_TCP_PORT_RANGE"] == "50000-50010"


@pytest.mark.skipif(any(Path("/sys/class/infiniband").glob("*")), reason="this machine has an RDMA device")
def test_require_rdma_refuses_to_start_without_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIPTYCH_REQUIRE_RDMA", "1")
    with pytest.raises(ConfigError, match="DIPTYCH_REQUIRE_RDMA"):
        NixlAgent(HandoffSettings(), role="ar", progress=True)


@pytest.mark.parametrize(("lanes", "refused"), [("inter-node: tcp/eth0", True), ("", True), ("rc_mlx5/mlx5_0", False)])
def test_require_rdma_refuses_a_peer_reached_by_tcp(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch, lanes: str, refused: bool
) -> None:
    producer = Producer(HandoffSettings(**BASE), FINGERPRINT, fabric.agent("ar"))
    ticket, agent = producer.publish({"ids": torch.arange(9)}, 30.0), fabric.agent("dit")
    monkeypatch.setattr(agent, "lanes", lambda _: lanes)
    peers = Peers(agent, cap=4, require_rdma=True)
    if refused:
        with pytest.raises(IncompatiblePeer, match="DIPTYCH_REQUIRE_RDMA"):
            peers.of(ticket)
    else:
        peers.of(ticket)
    assert len(peers) == (0 if refused else 1)
    producer.close()


def test_other_versions_are_refused_with_both_sides_named(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(HandoffSettings(**BASE), FINGERPRINT, fabric.agent("ar"))
    ticket, agent = producer.publish({"ids": torch.arange(9)}, 30.0), fabric.agent("dit")
    monkeypatch.setattr(agent, "ucx", "9.9")
    with pytest.raises(IncompatiblePeer, match=r"NIXL memory with UCX memory.*NIXL memory\s+with UCX 9\.9"):
        Peers(agent, cap=4, require_rdma=False).of(ticket)
    producer.close()
