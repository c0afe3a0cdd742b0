"""The producers a consumer is connected to: an LRU with a cap, one entry per producer process."""

from collections import OrderedDict
from dataclasses import dataclass, field

from services.handoff import address
from services.handoff.ticket import Ticket
from services.handoff.transport import Transport
from services.wire.errors import HandoffError, IncompatiblePeer

_METADATA_KEPT = 64
_TELLING = 2**19  # bytes: smaller READs measure latency, not bandwidth


@dataclass(slots=True, eq=False)
class Peer:
    """A connected producer. metadata: the versions of it that NIXL was given; users: READs under way."""

    name: str
    host: str
    metadata: set[bytes] = field(default_factory=set)
    users: int = 0
    bytes_read: int = 0
    best_rate: float = 0.0  # bytes/second of the fastest big READ so far

    def book(self, length: int, seconds: float) -> None:
        self.bytes_read += length
        if length >= _TELLING:
            self.best_rate = max(self.best_rate, length / seconds)


class Peers:
    """Adds producers from their tickets and drops them. Used by the reader's thread only."""

    def __init__(self, transport: Transport, *, cap: int, require_rdma: bool) -> None:
        self._transport, self._cap, self._require_rdma = transport, cap, require_rdma
        self._peers: OrderedDict[str, Peer] = OrderedDict()
        self.added = self.dropped = 0

    def __len__(self) -> int:
        return len(self._peers)

    def of(self, ticket: Ticket) -> tuple[Peer, bool]:
        """The producer of `ticket`, and whether it was connected already. Raises PeerGone, TicketInvalid,
        IncompatiblePeer."""
        peer = self._peers.get(ticket.instance)
        known = peer is not None
        if peer is None:
            peer = self._add(ticket)
        elif ticket.agent not in peer.metadata:
            self._transport.add_peer(peer.name, ticket.agent)  # it registered memory since
            self._remember(peer, ticket.agent)
        self._peers.move_to_end(peer.name)
        return peer, known

    def drop(self, peer: Peer) -> None:
        """Forgets `peer`; the next ticket adds it anew. A newer entry of the same name stays."""
        if self._peers.get(peer.name) is peer:
            del self._peers[peer.name]
            self._transport.drop_peer(peer.name)
            self.dropped += 1

    def all(self) -> list[Peer]:
        return list(self._peers.values())

    def _add(self, ticket: Ticket) -> Peer:
        self._check(ticket)
        self._make_room()
        try:
            self._transport.add_peer(ticket.instance, ticket.agent)
        except HandoffError:
            self._transport.drop_peer(ticket.instance)
            raise
        lanes = self._transport.lanes(ticket.instance)
        if self._require_rdma and ("tcp/" in lanes or not lanes):
            self._transport.drop_peer(ticket.instance)
            raise IncompatiblePeer(
                f"DIPTYCH_REQUIRE_RDMA is set, but {ticket.host} is reached by {lanes or 'no known lane'}"
            )
        peer = self._peers[ticket.instance] = Peer(ticket.instance, ticket.host)
        self._remember(peer, ticket.agent)
        self.added += 1
        return peer

    def _check(self, ticket: Ticket) -> None:
        address.check_peer(ticket.host, ticket.machine)
        ours, theirs = (self._transport.nixl, self._transport.ucx), (ticket.nixl, ticket.ucx)
        if ours != theirs:
            raise IncompatiblePeer(
                f"the producer at {ticket.host} runs NIXL {theirs[0]} with UCX {theirs[1]}, this one NIXL {ours[0]} "
                f"with UCX {ours[1]}: run one image on both sides"
            )

    def _make_room(self) -> None:
        for peer in list(self._peers.values()):
            if len(self._peers) < self._cap:
                return
            if not peer.users:
                self.drop(peer)

    @staticmethod
    def _remember(peer: Peer, metadata: bytes) -> None:
        if len(peer.metadata) >= _METADATA_KEPT:
            peer.metadata.clear()
        peer.metadata.add(metadata)
