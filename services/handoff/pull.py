"""The READs of one fetch: in pieces, a few in flight, each summed while it is still in the cache."""

import logging
from collections import deque
from concurrent.futures import Executor, Future
from itertools import pairwise
from typing import NamedTuple

import torch

from services.handoff import checksum, layout
from services.handoff.arena import Block
from services.handoff.layout import Header, SlotState
from services.handoff.ticket import Ticket
from services.handoff.transport import Span, Transport
from services.wire.errors import HandoffError, IntegrityError, LeaseExpired, TicketInvalid

DEPTH = 2  # READs in flight of one fetch
_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """A part of one region, in bytes from its start."""

    region: int
    start: int
    stop: int


class Pull:
    """One attempt to read a bundle into `blocks`. Memory is safe to give back only when `landed` is true."""

    def __init__(self, ticket: Ticket, blocks: list[Block], transport: Transport, summer: Executor, chunk: int) -> None:
        self._ticket, self._blocks, self._transport = ticket, blocks, transport
        self._todo = deque(pieces(ticket, chunk))
        self._flying: deque[tuple[int, Piece]] = deque()
        self._sums = [checksum.start(ticket.algorithm) for _ in blocks]
        self._summer = summer if len(self._todo) > 1 else None  # one piece is summed faster than handed over
        self._summing: deque[Future[None]] = deque()
        self.bytes_landed = 0
        self.failure: HandoffError | None = None

    @property
    def landed(self) -> bool:
        """Nothing is in flight and nothing left to do: NIXL and the summing thread are done with the memory."""
        return not self._todo and not self._flying and all(future.done() for future in self._summing)

    def stop(self) -> None:
        """Starts nothing more; what is in flight goes on."""
        self._todo.clear()

    def advance(self) -> bool:
        """Starts and collects what can be, without waiting. True if anything moved."""
        moved = False
        while self._todo and len(self._flying) < DEPTH and self._start(self._todo.popleft()):
            moved = True
        while self._flying and self._collect():
            moved = True
        return moved

    def verify(self) -> None:
        """Raises IntegrityError, LeaseExpired or TicketInvalid unless every byte is the ticket's."""
        for future in self._summing:
            future.result()
        header = Header.unpack(self._blocks[0].raw[: layout.HEADER_BYTES].tobytes())
        check_header(header, self._ticket)
        digest = checksum.combine([summed.digest() for summed in self._sums])
        if digest != self._ticket.digest or header.digest != self._ticket.digest:
            raise IntegrityError(
                f"the bytes of hand-off {self._ticket.handoff_id.hex()} have another checksum than its ticket promises"
            )

    def _start(self, piece: Piece) -> bool:
        region, length = self._ticket.regions[piece.region], piece.stop - piece.start
        remote = Span(region.address + piece.start, length, region.memory, region.device)
        local = self._blocks[piece.region].span
        local = local._replace(address=local.address + piece.start, length=length)
        try:
            self._flying.append((self._transport.read(self._ticket.instance, remote, local), piece))
        except HandoffError as error:
            self._fail(error)
            return False
        return True

    def _collect(self) -> bool:
        """Takes the oldest READ in flight if it has ended."""
        handle, piece = self._flying[0]
        try:
            if not self._transport.finished(handle):
                return False
        except HandoffError as error:
            self._fail(error)
        self._flying.popleft()
        self._release(handle)
        if self.failure is None:
            self.bytes_landed += piece.stop - piece.start
            self._sum(piece)
        return True

    def _release(self, handle: int) -> None:
        try:
            self._transport.release(handle)
        except HandoffError as error:
            _log.warning("the handle of a READ that ended could not be released: %s", error)

    def _sum(self, piece: Piece) -> None:
        first = piece.region == 0 and piece.start == 0
        part = self._blocks[piece.region].view[layout.HEADER_BYTES if first else piece.start : piece.stop]
        if self._summer is None:
            self._sums[piece.region].update(part)
        else:
            self._summing.append(self._summer.submit(_update, self._sums[piece.region], part))

    def _fail(self, error: HandoffError) -> None:
        self.failure = self.failure or error
        self.stop()


def pieces(ticket: Ticket, chunk: int) -> list[Piece]:
    """The header comes with the first piece, so that page sums stay on page borders of the payload."""
    found = []
    for index, region in enumerate(ticket.regions):
        shift = 0 if index else layout.HEADER_BYTES
        borders = [0, *range(shift + chunk, region.length, chunk), region.length]
        found += [Piece(index, start, stop) for start, stop in pairwise(borders)]
    return found


def check_header(header: Header, ticket: Ticket) -> None:
    """Raises TicketInvalid or LeaseExpired if the slot is not the ticket's any more, IntegrityError if the header
    makes no sense."""
    mine = header.handoff_id == ticket.handoff_id and header.generation == ticket.generation
    if mine and header.state == SlotState.EXPIRED:
        raise LeaseExpired("the slot's lease ended before the READ: run the AR stage again")
    if mine and header.state == SlotState.RELEASED:
        raise TicketInvalid("the slot was released: a ticket is good until then, and not again", param="ticket")
    if not mine and header.generation > ticket.generation:
        raise TicketInvalid(
            f"the slot holds generation {header.generation}, the ticket is of {ticket.generation}: it was released or "
            "its lease ended, and the place was used again",
            param="ticket",
        )
    if not mine or header.state != SlotState.LIVE or header.length != ticket.payload_bytes:
        raise IntegrityError("the header in the slot is not the one that the ticket promises")


def _update(summed: checksum.Checksum, part: torch.Tensor) -> None:
    summed.update(part)
