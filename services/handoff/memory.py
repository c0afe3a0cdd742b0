"""The double of NIXL for tests without it: agents of one process that copy memory.

It behaves as NIXL was seen to behave, also where that is unkind: a READ of memory that its owner has deregistered
ends well with stale bytes, a stopped peer's READ never ends, a dead peer is noticed at the next use. One contract
suite (tests/unit/handoff/test_contract.py) runs against both.
"""

import ctypes
import secrets
import threading
from dataclasses import dataclass, field

import msgspec

from services.handoff.layout import Memory
from services.handoff.transport import Span
from services.wire.errors import PeerGone, TicketInvalid


class _Metadata(msgspec.Struct, frozen=True):
    agent: str
    spans: list[Span]


@dataclass(slots=True, eq=False)
class _Read:
    peer: str
    remote: Span
    local: Span


@dataclass
class Fabric:
    """Where the agents of one test meet. stopped: agents that answer nothing, as under SIGSTOP."""

    agents: dict[str, "MemoryAgent"] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)

    def agent(self, role: str) -> "MemoryAgent":
        """A new agent with a unique name."""
        return MemoryAgent(self, f"{role}-{secrets.token_hex(8)}")


class MemoryAgent:
    """A `Transport` over `ctypes.memmove`."""

    nixl = "memory"
    ucx = "memory"

    def __init__(self, fabric: Fabric, name: str) -> None:
        self.name, self._fabric = name, fabric
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self._peers: dict[str, set[Span]] = {}
        self._reads: dict[int, _Read] = {}
        self._notices: list[bytes] = []
        self._handles = 0
        fabric.agents[name] = self

    def register(self, span: Span) -> object:
        self._spans.append(span)
        return span

    def deregister(self, registration: object) -> None:
        self._spans.remove(registration)  # type: ignore[arg-type]

    def metadata(self) -> bytes:
        return msgspec.msgpack.encode(_Metadata(self.name, self._spans))

    def add_peer(self, name: str, metadata: bytes) -> None:
        try:
            found = msgspec.msgpack.decode(metadata, type=_Metadata)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TicketInvalid("the agent metadata in the ticket does not decode", param="ticket.agent") from error
        if found.agent != name:
            raise TicketInvalid("the agent metadata in the ticket is of another agent", param="ticket.agent")
        self._peers.setdefault(name, set()).update(found.spans)

    def drop_peer(self, name: str) -> None:
        self._peers.pop(name, None)

    def read(self, peer: str, remote: Span, local: Span) -> int:
        self._reach(peer)
        if not _inside(remote, self._peers[peer]) or not _inside(local, set(self._spans)):
            raise PeerGone("starting a READ: no such memory is registered")
        with self._lock:
            self._handles += 1
            self._reads[self._handles] = _Read(peer, remote, local)
            return self._handles

    def finished(self, handle: int) -> bool:
        read = self._reads[handle]
        if read.peer in self._fabric.stopped:
            return False
        self._reach(read.peer)
        ctypes.memmove(read.local.address, read.remote.address, read.remote.length)
        return True

    def release(self, handle: int) -> None:
        del self._reads[handle]

    def notify(self, peer: str, message: bytes) -> None:
        self._reach(peer)._receive(message)

    def notices(self) -> list[bytes]:
        with self._lock:
            found, self._notices = self._notices, []
        return found

    def lanes(self, peer: str) -> str:
        return "memory" if peer in self._peers else ""

    def all_lanes(self) -> dict[str, str]:
        return {"self": "memory"}

    def close(self, *, busy: bool = False) -> None:
        self._fabric.agents.pop(self.name, None)

    def _receive(self, message: bytes) -> None:
        with self._lock:
            self._notices.append(message)

    def _reach(self, peer: str) -> "MemoryAgent":
        other = self._fabric.agents.get(peer)
        if other is None or peer not in self._peers:
            self._peers.pop(peer, None)
            raise PeerGone(f"{peer} is not there")
        return other


def _inside(span: Span, registered: set[Span]) -> bool:
    return span.memory is Memory.DRAM and any(
        known.memory is span.memory
        and known.address <= span.address
        and span.address + span.length <= known.address + known.length
        for known in registered
    )
