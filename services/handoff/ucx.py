"""UCX, as far as the environment and the log reach: NIXL hides it, and offers no setting and no query for this.

UCX reads `UCX_*` when its library starts, which is when the first agent makes its backend.
"""

import ctypes
import ipaddress
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from services.handoff import address
from services.handoff.settings import HandoffSettings
from services.wire.errors import ConfigError

# ucp_worker.c prints one line a lane configuration: "<agent> intra-node cfg#1 rma_am(tcp/lo)  am(tcp/lo cma/memory)"
_LANES = re.compile(r"UCX  INFO\s+(?P<agent>\S+) (?P<where>self|intra-node|inter-node) cfg#\d+ (?P<lanes>.+)$")
_log = logging.getLogger(__name__)
_TRANSPORT = re.compile(r"[\w:]+/[\w:.\-]+")


class UcxLog:
    """The log file of UCX in this process, read for the lanes that it reports. UCX opens it once a process, whatever
    the number of agents. Thread-safe."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="diptych-ucx-")
        self.path = Path(self._folder.name) / "ucx.log"
        self._seen = 0
        self._lock = threading.Lock()
        self._lanes: dict[str, dict[str, str]] = {}
        self._fresh: dict[str, dict[str, str]] = {}

    def new_lanes(self, agent: str) -> dict[str, str]:
        """What was reported for `agent` since the last call, by `self`, `intra-node` or `inter-node`."""
        with self._lock:
            self._read()
            return self._fresh.pop(agent, {})

    def all_lanes(self, agent: str) -> dict[str, str]:
        """The latest of each kind."""
        with self._lock:
            self._read()
            return dict(self._lanes.get(agent, {}))

    def forget(self, agent: str) -> None:
        with self._lock:
            self._lanes.pop(agent, None)
            self._fresh.pop(agent, None)

    def _read(self) -> None:
        for line in self._lines():
            match = _LANES.search(line)
            if match:
                lanes = " ".join(dict.fromkeys(_TRANSPORT.findall(match["lanes"])))
                for book in (self._lanes, self._fresh):
                    book.setdefault(match["agent"], {})[match["where"]] = lanes
            elif "UCX  WARN" in line or "UCX  ERROR" in line:
                _log.warning("UCX: %s", line.partition("UCX  ")[2])

    def _lines(self) -> list[str]:
        ctypes.CDLL(None).fflush(None)  # UCX writes through a stdio buffer of its own
        if not self.path.exists():
            return []
        with self.path.open(errors="replace") as log:
            if self.path.stat().st_size < self._seen:  # it was rotated
                self._seen = 0
            log.seek(self._seen)
            lines = log.read().splitlines()
            self._seen = log.tell()
        return lines


@cache
def process_log() -> UcxLog:
    """The one log of this process."""
    return UcxLog()


@contextmanager
def environment(settings: HandoffSettings) -> Iterator[None]:
    """The UCX settings of ours while the backend starts; what the operator set himself always wins."""
    wanted = {
        "UCX_LOG_LEVEL": "info",
        "UCX_LOG_FILE": str(process_log().path),
        "UCX_LOG_FILE_SIZE": "4m",
        "UCX_LOG_FILE_ROTATE": "1",
    }
    if settings.port_range:
        wanted["UCX_TCP_PORT_RANGE"] = settings.port_range
    if not ipaddress.ip_address(settings.bind_host).is_unspecified:
        wanted["UCX_NET_DEVICES"] = address.device_of(settings.bind_host)
    if settings.require_rdma:
        wanted["UCX_TLS"] = "^tcp"
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def version() -> str:
    """The version of the UCX that is loaded in this process; `unknown` if none is."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if "libucp" in path:
            library = ctypes.CDLL(f"/{path}")
            library.ucp_get_version_string.restype = ctypes.c_char_p
            text: bytes = library.ucp_get_version_string()
            return text.decode()
    return "unknown"


def require_rdma() -> None:
    """Raises ConfigError unless an RDMA device with an active port is here, and UCX_TLS does not ask for TCP."""
    states = [path.read_text() for path in Path("/sys/class/infiniband").glob("*/ports/*/state")]
    if not any("ACTIVE" in state for state in states):
        raise ConfigError(
            f"DIPTYCH_REQUIRE_RDMA is set, but none of {len(states)} RDMA ports is active here: mend the fabric, pass "
            "/dev/infiniband into the container, or unset it"
        )
    if any(name.startswith("tcp") for name in os.environ.get("UCX_TLS", "").split(",")):
        raise ConfigError(f"DIPTYCH_REQUIRE_RDMA is set, but UCX_TLS={os.environ['UCX_TLS']} asks for TCP: drop one")
