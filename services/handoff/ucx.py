"""UCX, as far as the environment and the log reach: NIXL hides it, and offers no setting and no query for this.

UCX reads `UCX_*` when its library starts, which is when the first agent makes its backend.
"""

import ctypes
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.handoff.settings import HandoffSettings

# ucp_worker.c prints one line a lane configuration: "<agent> intra-node cfg#1 rma_am(tcp/lo)  am(tcp/lo cma/memory)"
_LANES = re.compile(r"UCX  INFO\s+(?P<agent>\S+) (?P<where>self|intra-node|inter-node) cfg#\d+ (?P<lanes>.+)$")
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
        if self.path.exists():
            with self.path.open(errors="replace") as log:
                log.seek(self._seen)
                for line in log:
                    match = _LANES.search(line)
                    if match and match["agent"] == agent and match["where"] != "self":
                        fresh[match["where"]] = " ".join(dict.fromkeys(_TRANSPORT.findall(match["lanes"])))
                self._seen = log.tell()
        self._lanes |= fresh
        return fresh

    def all_lanes(self) -> dict[str, str]:
        return dict(self._lanes)

    def close(self) -> None:
        self._folder.cleanup()


@contextmanager
def environment(settings: HandoffSettings, log: UcxLog) -> Iterator[None]:
    """The UCX settings of ours while the backend starts; what the operator set himself always wins."""
    wanted = {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": str(log.path)}
    if settings.port_range:
        wanted["UCX_TCP_PORT_RANGE"] = settings.port_range
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
