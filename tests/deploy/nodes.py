"""Two nodes on one machine: network namespaces joined by a veth pair, each with its own IPC namespace.

Namespaces alone do not separate two processes for UCX, which would use shared memory: the IPC namespace and
UCX_TLS=tcp,self make it take the wire, and the byte counts prove it.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
UCX_PORTS = "41000:41063"


def sh(*command: str, check: bool = True, timeout: float = 60) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


class Launched(NamedTuple):
    """A launch.sh that runs, and where it writes."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def ready(self) -> bool:
        """Whether it said so. Raises AssertionError with its log if it ended instead."""
        said = self.log.read_text()
        assert self.process.poll() is None, said[-4000:]
        return "is ready" in said


class Node:
    """One network namespace with an address; runs launch.sh roles."""

    def __init__(self, name: str, address: str, logs: Path) -> None:
        self.name, self.address, self._logs = name, address, logs
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str, check: bool = True, timeout: float = 180) -> str:
        return sh("ip", "netns", "exec", self.name, *command, check=check, timeout=timeout)

    def launch(self, role: str, **variables: str) -> "Launched":
        """launch.sh with these variables and none of another node's."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "DIPTYCH_CACHE") if name in os.environ}
        log = self._logs / f"{self.name}-{role}-{len(self._processes)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, "unshare", "--ipc", ROOT / "launch/launch.sh"],
                env={**kept, "ROLE": role, **variables},
                stdout=out,
                stderr=out,
                cwd=ROOT,
            )
        self._processes.append(process)
        return Launched(process, log)

    def stop(self) -> list[int]:
        """SIGTERM to each launch; their exit codes."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        return [process.wait(200) for process in self._processes]

    def received_bytes(self) -> int:
        """What came in over the veth."""
        return int(self.run("cat", f"/sys/class/net/{self.name}/statistics/rx_bytes"))

    def ucx_bytes(self) -> int:
        """Bytes that came in from the other node's UCX ports, by the firewall's own count."""
        table = self.run("iptables", "-nvxL", "COUNT").splitlines()[2:]
        return sum(int(line.split()[1]) for line in table if "spts" in line)

    def close_ucx_ports(self) -> None:
        for direction in ("--dport", "--sport"):
            self.run("iptables", "-I", "INPUT", "1", "-p", "tcp", direction, UCX_PORTS, "-j", "DROP")

    def open_ucx_ports(self) -> None:
        for direction in ("--dport", "--sport"):
            self.run("iptables", "-D", "INPUT", "-p", "tcp", direction, UCX_PORTS, "-j", "DROP")


@contextmanager
def two_nodes(logs: Path) -> Iterator[tuple[Node, Node]]:
    """10.77.0.1 and 10.77.0.2, gone afterwards with all that ran in them."""
    suffix = f"{os.getpid() % 10000:04d}"
    nodes = Node(f"dpa{suffix}", "10.77.0.1", logs), Node(f"dpb{suffix}", "10.77.0.2", logs)
    first, second = nodes
    for node in nodes:
        sh("ip", "netns", "add", node.name)
    try:
        ends = (
            "name",
            first.name,
            "netns",
            first.name,
            "type",
            "veth",
            "peer",
            "name",
            second.name,
            "netns",
            second.name,
        )
        sh("ip", "link", "add", *ends)
        for node in nodes:
            node.run("ip", "addr", "add", f"{node.address}/24", "dev", node.name)
            node.run("ip", "link", "set", node.name, "up")
            node.run("ip", "link", "set", "lo", "up")
            # A chain that only counts what comes from the other node's UCX ports.
            node.run("iptables", "-N", "COUNT")
            node.run("iptables", "-A", "COUNT", "-p", "tcp", "--sport", UCX_PORTS)
            node.run("iptables", "-A", "INPUT", "-i", node.name, "-j", "COUNT")
        yield nodes
    finally:
        for node in nodes:
            node.stop()
        for node in nodes:
            sh("ip", "netns", "del", node.name, check=False)
