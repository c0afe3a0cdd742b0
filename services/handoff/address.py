"""Which address this process says it can be reached at, and whether UCX really offers it.

UCX carries its own addresses inside the NIXL metadata, one for every network device it listens on, and peers dial
those. So an advertised address is a claim to check, not a setting that UCX obeys.
"""

import hashlib
import ipaddress
import os
import socket
from functools import cache
from pathlib import Path

import psutil

from services.handoff.settings import HandoffSettings
from services.wire.errors import ConfigError, IncompatiblePeer

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine() -> str:
    """A hash of the kernel's boot id: equal for two processes exactly if they share the machine."""
    return hashlib.sha256(_BOOT_ID.read_bytes()).hexdigest()[:16]


def device_of(host: str) -> str:
    """The network device that has the address `host`. Raises ConfigError if none has."""
    for device, addresses in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == host for entry in addresses):
            return str(device)
    raise ConfigError(f"DIPTYCH_HANDOFF_BIND_HOST {host}: no network device of this machine has that address")


def advertised(settings: HandoffSettings, metadata: bytes) -> str:
    """The address for the ticket: the setting; else the bind address; else that of the default route; else any
    that UCX offers in `metadata`; else loopback. Raises ConfigError where the setting promises what UCX does not offer.
    """
    offered = offers(metadata)
    if settings.advertise_host is not None:
        _check_offered(settings.advertise_host, offered)
        return settings.advertise_host
    if not ipaddress.ip_address(settings.bind_host).is_unspecified:
        return settings.bind_host
    route = _default_route()
    return route if route in offered or not offered else offered[0]


def offers(metadata: bytes) -> list[str]:
    """This machine's addresses, loopback apart, that UCX packed into `metadata` (as 4 or 16 raw bytes)."""
    own = (entry.address.partition("%")[0] for entries in psutil.net_if_addrs().values() for entry in entries)
    found = []
    for text in own:
        try:
            candidate = ipaddress.ip_address(text)
        except ValueError:
            continue  # a MAC address
        if not candidate.is_loopback and candidate.packed in metadata:
            found.append(text)
    return found


def _check_offered(host: str, offered: list[str]) -> None:
    if ipaddress.ip_address(host).is_loopback or host in offered or "UCX_TLS" in os.environ:
        return
    raise ConfigError(
        f"DIPTYCH_HANDOFF_ADVERTISE_HOST {host} is not among the addresses that UCX listens on "
        f"({', '.join(offered) or 'loopback only'}): peers dial those, so set it to one of them, or let "
        "DIPTYCH_HANDOFF_BIND_HOST name its network device"
    )


def _default_route() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: sends nothing, only asks the kernel for a route
        except OSError:
            return "127.0.0.1"
        host: str = probe.getsockname()[0]
        return host


def check_peer(host: str, peer_machine: str) -> None:
    """Raises IncompatiblePeer if a producer on another machine advertises an address that only it can reach."""
    address = ipaddress.ip_address(host)
    if (address.is_loopback or address.is_unspecified) and peer_machine != machine():
        raise IncompatiblePeer(
            f"the producer on another machine advertises {host}: set DIPTYCH_HANDOFF_ADVERTISE_HOST there to an "
            "address that this node can reach"
        )
