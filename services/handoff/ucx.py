"""UCX, as far as the environment and the log reach: NIXL hides it, and offers no setting and no query for this.

UCX reads `UCX_*` when its library starts, which is when the first agent makes its backend.
"""

import ctypes
import ipaddress
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.handoff import address
from services.handoff.settings import HandoffSettings
from services.wire.errors import ConfigError

# ucp_worker.c prints one line a lane configuration: "<agent> intra-node cfg#1 rma_am(tcp/lo)  am(tcp/lo cma/memory)"
_LANES = re.compile(r"UCX  INFO\s+(?P<agent>\S+) (?P<where>self|intra-node|inter-node) cfg#\d+ (?P<lanes>.+)$")
_log = logging.getLogger(__name__)
_TRANSPORT = re.compile(r"[\w:]+/[\w:.\-]+")


class UcxLog:
    """The log file of UCX in this process, read for the lanes that it reports for one agent."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="diptych-ucx-")
        self.path = Path(self._folder.name) / "ucx.log"
        self._seen = 0
        self._lanes: dict[str, str] = {}

    def new_lanes(self, agent: str) -> dict[str, str]:
        """Lanes reported since the last call, by `intra-node` or `inter-node`; `all_lanes` keeps the latest of each."""
        fresh: dict[str, str] = {}
        for line in self._fresh_lines():
            match = _LANES.search(line)
            if match and match["agent"] == agent:
                fresh[match["where"]] = " ".join(dict.fromkeys(_TRANSPORT.findall(match["lanes"])))
            elif "UCX  WARN" in line or "UCX  ERROR" in line:
                _log.warning("UCX: %s", line.partition("UCX  ")[2])
        self._lanes |= fresh
        return fresh

    def _fresh_lines(self) -> list[str]:
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

    def all_lanes(self) -> dict[str, str]:
        return dict(self._lanes)

    def close(self) -> None:
        self._folder.cleanup()


@contextmanager
def environment(settings: HandoffSettings, log: UcxLog) -> Iterator[None]:
    """The UCX settings of ours while the backend starts; what the operator set himself always wins."""
    wanted = {
        "UCX_LOG_LEVEL": "info",
        "UCX_LOG_FILE": str(log.path),
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
