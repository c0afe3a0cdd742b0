"""Network namespaces: one a service, a link to the gateway, and a second, separate network for the hand-off."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

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
        ip("link", "set", f"dh-{name}", "down")

    def mend(self, name: str) -> None:
        ip("link", "set", f"dh-{name}", "up")


def _join(networks: Networks, name: str) -> None:
    number = NAMES.index(name)
    ip("netns", "add", f"d-{name}")
    ip("link", "set", "lo", "up", inside=f"d-{name}")
    for outer, inner, address in (
        (f"dm-{name}", "mgmt0", f"{networks.host(name)}/24"),
        (f"dh-{name}", "hand0", f"{networks.handoff_host(name)}/24"),
    ):
        ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", f"d-{name}")
        ip("addr", "add", address, "dev", inner, inside=f"d-{name}")
        ip("link", "set", inner, "up", inside=f"d-{name}")
        ip("link", "set", outer, "up")
    ip("addr", "add", f"10.231.{number}.1/24", "dev", f"dm-{name}")
    ip("link", "set", f"dh-{name}", "master", BRIDGE)


def _remove() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", f"d-{name}"], capture_output=True, check=False)
        for link in (f"dm-{name}", f"dh-{name}"):
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


@contextmanager
def networks() -> Iterator[Networks]:
    """All namespaces and links, gone afterwards."""
    made = Networks()
    _remove()
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for name in NAMES:
            _join(made, name)
        yield made
    finally:
        _remove()
