"""Which address this process says it can be reached at, and whether UCX really offers it.

UCX carries its own addresses inside the NIXL metadata, one for every network device it listens on, and peers dial
those. So an advertised address is a claim to check, not a setting that UCX obeys.
"""

import hashlib
import ipaddress
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
            return device
    raise ConfigError(f"DIPTYCH_HANDOFF_BIND_HOST {host}: no network device of this machine has that address")


def advertised(settings: HandoffSettings) -> str:
    """The address for the ticket: the setting; else the bind address; else the one of the default route; else
    loopback. Raises ConfigError where it contradicts the bind address."""
    bind = ipaddress.ip_address(settings.bind_host)
    if settings.advertise_host is not None:
        if bind.is_loopback and not ipaddress.ip_address(settings.advertise_host).is_loopback:
            raise ConfigError(
                f"DIPTYCH_HANDOFF_ADVERTISE_HOST {settings.advertise_host} cannot be reached while "
                f"DIPTYCH_HANDOFF_BIND_HOST is {bind}"
            )
        return settings.advertise_host
    return str(bind) if not bind.is_unspecified else _default_route()


def _default_route() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: sends nothing, only asks the kernel for a route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def check_reachable(host: str, metadata: bytes) -> None:
    """Nothing yet is known of the metadata here but its bytes; see `offers`."""


def check_peer(host: str, peer_machine: str) -> None:
    """Raises IncompatiblePeer if a producer on another machine advertises an address that only it can reach."""
    address = ipaddress.ip_address(host)
    if (address.is_loopback or address.is_unspecified) and peer_machine != machine():
        raise IncompatiblePeer(
            f"the producer on another machine advertises {host}: set DIPTYCH_HANDOFF_ADVERTISE_HOST there to an "
            "address that this node can reach"
        )
