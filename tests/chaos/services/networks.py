"""Network namespaces: one a service, a link to the gateway, and a second, separate network for the hand-off."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH = "d-switch"  # a namespace of its own for the hand-off network, out of reach of the host's packet filters
BRIDGE = "dhand0"
NAMES = ("ar0", "ar1", "dit0", "dit1")


def why_not() -> str:
    """Why namespaces cannot be made here, or ""."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the ip command (iproute2) is not installed"
    tried = subprocess.run(["ip", "netns", "add", "dtry"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"this kernel or container makes no network namespaces: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", "dtry"], check=True)
    return ""


def ip(*words: str, inside: str = "") -> None:
    """One `ip` command, in a namespace if `inside` is given."""
    prefix = ["ip", "-n", inside] if inside else ["ip"]
    done = subprocess.run([*prefix, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join([*prefix, *words])}: {done.stderr.strip()}")


class Networks:
    """Where each service is: its address on its own link to the gateway, and its address on the hand-off network."""

    def host(self, name: str) -> str:
        return f"10.231.{NAMES.index(name)}.2"

    def handoff_host(self, name: str) -> str:
        return f"10.232.0.{10 + NAMES.index(name)}"

    def environ(self, name: str) -> dict[str, str]:
        """UCX must not find the shared memory that namespaces of one machine still have."""
        host = self.handoff_host(name)
        return {
            "UCX_TLS": "tcp,self",
            "DIPTYCH_HANDOFF_BIND_HOST": host,
            "DIPTYCH_HANDOFF_ADVERTISE_HOST": host,
        }

    def cut(self, name: str) -> None:
        """Take a service off the hand-off network; its link to the gateway stays."""
        ip("link", "set", f"dh-{name}", "down", inside=SWITCH)

    def mend(self, name: str) -> None:
        ip("link", "set", f"dh-{name}", "up", inside=SWITCH)


def _join(networks: Networks, name: str) -> None:
    number = NAMES.index(name)
    inside = f"d-{name}"
    ip("netns", "add", inside)
    ip("link", "set", "lo", "up", inside=inside)
    ip("link", "add", f"dm-{name}", "type", "veth", "peer", "name", "mgmt0", "netns", inside)
    ip("link", "add", f"dh-{name}", "netns", SWITCH, "type", "veth", "peer", "name", "hand0", "netns", inside)
    for device, address in (("mgmt0", networks.host(name)), ("hand0", networks.handoff_host(name))):
        ip("addr", "add", f"{address}/24", "dev", device, inside=inside)
        ip("link", "set", device, "up", inside=inside)
    ip("addr", "add", f"10.231.{number}.1/24", "dev", f"dm-{name}")
    ip("link", "set", f"dm-{name}", "up")
    ip("link", "set", f"dh-{name}", "master", BRIDGE, inside=SWITCH)
    ip("link", "set", f"dh-{name}", "up", inside=SWITCH)


def _remove() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", f"d-{name}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"dm-{name}"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", SWITCH], capture_output=True, check=False)


@contextmanager
def networks() -> Iterator[Networks]:
    """All namespaces and links, gone afterwards."""
    made = Networks()
    _remove()
    try:
        ip("netns", "add", SWITCH)
        ip("link", "add", BRIDGE, "type", "bridge", inside=SWITCH)
        ip("link", "set", BRIDGE, "up", inside=SWITCH)
        for name in NAMES:
            _join(made, name)
        yield made
    finally:
        _remove()
