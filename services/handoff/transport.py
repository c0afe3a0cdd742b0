"""What the hand-off needs of a transport. `nixl_agent.NixlAgent` is the real one, `memory.MemoryAgent` the double."""

from typing import NamedTuple, Protocol

from services.handoff.layout import Memory


class Span(NamedTuple):
    """Bytes in one process. device: CUDA ordinal, 0 for DRAM."""

    address: int
    length: int
    memory: Memory = Memory.DRAM
    device: int = 0


class Transport(Protocol):
    """One agent of a process. Thread-safe. Failures are of the `HandoffError` tree.

    name: unique per process start. nixl, ucx: versions, compared by the consumer.
    """

    name: str
    nixl: str
    ucx: str

    def register(self, span: Span) -> object:
        """Opens `span` to READs, both as target and as source; the result is for `deregister`."""

    def deregister(self, registration: object) -> None:
        """Closes a span again. No READ may be in flight there."""

    def metadata(self) -> bytes:
        """What a peer needs to reach every span registered now."""

    def add_peer(self, name: str, metadata: bytes) -> None:
        """Connects, or learns of new spans of a known peer. Raises TicketInvalid, PeerGone."""

    def drop_peer(self, name: str) -> None:
        """Forgets a peer; an unknown one is no error."""

    def read(self, peer: str, remote: Span, local: Span) -> int:
        """Starts a READ and returns its handle. Raises PeerGone, TicketInvalid."""

    def finished(self, handle: int) -> bool:
        """True if the READ has ended well, False if it is in flight. Raises PeerGone if it has failed."""

    def release(self, handle: int) -> None:
        """Frees the handle of a READ that has ended."""

    def notify(self, peer: str, message: bytes) -> None:
        """Sends a short message. Raises PeerGone."""

    def notices(self) -> list[bytes]:
        """The messages that came since the last call."""

    def lanes(self, peer: str) -> str:
        """The transports that serve `peer`, as the library itself reported them; empty if it did not."""

    def all_lanes(self) -> dict[str, str]:
        """The same by kind of connection (`self`, `intra-node`, `inter-node`), as far as reported."""

    def close(self, *, busy: bool = False) -> None:
        """Ends the agent; peers see a disconnect. busy: READs are in flight, so it must stay until the process ends."""
