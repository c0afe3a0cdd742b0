"""The consumer's one thread that calls NIXL: it runs every fetch as a generator and polls their READs.

A generator yields while its READ is in flight. When its caller gave up (deadline, cancellation) it goes on alone
until NIXL reports the READ as ended; only then does the memory go back. That is the quarantine.
"""

import logging
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from services.handoff import checksum, layout
from services.handoff.arena import Arena, Block
from services.handoff.layout import Header, Memory, SlotState
from services.handoff.notice import Event, Notice
from services.handoff.peers import Peer, Peers
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import Ticket
from services.handoff.transport import Span, Transport
from services.wire.errors import ArenaFull, HandoffError, IntegrityError, LeaseExpired, PeerGone, TicketInvalid

_SPIN = 200e-6  # seconds of polling without a rest: most small READs end within it
_REST = (20e-6, 2e-3)  # seconds between polls after that, growing
_DEPTH = 2  # READs in flight of one fetch
_log = logging.getLogger(__name__)

Landed = list[tuple[Arena, Block]]
Steps = Generator[None, None, None]


class Piece(NamedTuple):
    """A part of one region, in bytes from its start."""

    region: int
    start: int
    stop: int


@dataclass(slots=True, eq=False)
class Job:
    """One fetch. over: its caller has left, by deadline or cancellation. resolve: called once, from the thread."""

    ticket: Ticket
    resolve: Callable[[Landed | None, BaseException | None], None]
    over: bool = False
    read: bytes = field(default_factory=lambda: secrets.token_bytes(8))


class Reader:
    """Runs jobs until it is closed."""

    def __init__(self, settings: HandoffSettings, transport: Transport, arenas: dict[Memory, Arena]) -> None:
        self._settings, self._transport, self._arenas = settings, transport, arenas
        self.peers = Peers(transport, cap=settings.max_peers, require_rdma=settings.require_rdma)
        self.counts = dict.fromkeys(("reads", "bytes_moved", "read_seconds", "quarantined", "reconnects"), 0.0)
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._freed: deque[tuple[Arena, Block]] = deque()
        self._jobs: dict[Job, Steps] = {}
        self._verifier = ThreadPoolExecutor(1, "handoff-verify")
        self._thread = threading.Thread(target=self._run, name="handoff-reader", daemon=True)
        self._thread.start()

    @property
    def in_flight(self) -> int:
        """Fetches under way, quarantined ones included."""
        return len(self._jobs) + self._inbox.qsize()

    @property
    def quarantined(self) -> int:
        """READs whose caller has left and whose memory NIXL still may write."""
        return sum(1 for job in list(self._jobs) if job.over)

    def submit(self, job: Job) -> None:
        """Raises ArenaFull if too many are under way."""
        if self.in_flight >= self._settings.max_fetches:
            raise ArenaFull(f"this consumer runs {self._settings.max_fetches} READs at a time", retry_after=1)
        self._inbox.put(job)

    def give_back(self, landed: Landed) -> None:
        """Frees landing memory. From any thread, also from a finalizer: it takes no lock."""
        self._freed.extend(landed)

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join(timeout=5)
        self._verifier.shutdown(wait=True)

    def _run(self) -> None:
        idle_since = time.monotonic()
        rest = 0.0
        while True:
            try:
                job = self._inbox.get(block=not self._jobs or rest > 0, timeout=rest if self._jobs else None)
            except queue.Empty:
                pass
            else:
                if job is None:
                    break
                self._jobs[job] = self._fetch(job)
            if self._advance():
                idle_since, rest = time.monotonic(), 0.0
            elif time.monotonic() - idle_since > _SPIN:
                rest = min(max(rest * 1.5, _REST[0]), _REST[1])
        for job in list(self._jobs):
            job.resolve(None, HandoffError("this consumer is closed"))

    def _advance(self) -> bool:
        """One step of every job; True if any of them ended."""
        ended = False
        for job, steps in list(self._jobs.items()):
            try:
                next(steps)
            except StopIteration:
                ended = True
                del self._jobs[job]
        self._sweep()
        return ended

    def _sweep(self) -> None:
        while self._freed:
            arena, block = self._freed.popleft()
            arena.free(block)

    def _fetch(self, job: Job) -> Steps:
        landed: Landed = []
        try:
            yield from self._land(job, landed)
            yield from self._attempt(job, landed)
        except HandoffError as error:
            self.give_back(landed)
            job.resolve(None, error)
        except Exception as error:  # noqa: BLE001 - a defect of ours must fail one fetch, not the thread of all
            _log.exception("a fetch failed in an unforeseen way")
            self.give_back(landed)
            job.resolve(None, HandoffError(f"fetch failed: {error!r}"))
        else:
            if job.over:
                self.give_back(landed)
            else:
                job.resolve(landed, None)

    def _land(self, job: Job, landed: Landed) -> Steps:
        """Waits for landing memory as long as the caller waits."""
        for region in job.ticket.regions:
            arena = self._arenas.get(region.memory)
            if arena is None:
                raise TicketInvalid("the bundle is in VRAM, this consumer has no VRAM arena (vram_arena_bytes)")
            while True:
                try:
                    landed.append((arena, arena.allocate(region.length)))
                    break
                except ArenaFull:
                    if job.over:
                        raise
                self._sweep()
                yield

    def _attempt(self, job: Job, landed: Landed) -> Steps:
        """The READ, once more with a fresh connection if the kept one turns out to be dead."""
        for again in (False, True):
            if job.over:
                return
            peer, known = self.peers.of(job.ticket)
            peer.users += 1
            try:
                yield from self._pull(job, peer, landed)
                return
            except PeerGone:
                self.peers.drop(peer)
                if again or not known or job.over:
                    raise
                self.counts["reconnects"] += 1
            finally:
                peer.users -= 1

    def _pull(self, job: Job, peer: Peer, landed: Landed) -> Steps:
        notice = Notice(Event.BEGINS, job.ticket.handoff_id, job.ticket.generation, job.read)
        started = time.perf_counter()
        self._transport.notify(peer.name, notice.pack())
        good = False
        try:
            sums = [checksum.start(job.ticket.algorithm) for _ in landed]
            yield from self._read(job, peer, landed, sums)
            if not job.over:
                self._verify(job.ticket, landed, sums)
                good = True
                self._book(peer, job.ticket.payload_bytes, time.perf_counter() - started)
        finally:
            event = Event.ENDED if good else Event.ABANDONED
            try:
                self._transport.notify(peer.name, notice._replace(event=event).pack())
            except HandoffError as error:
                _log.info("the end of a READ could not be reported to %s: %s", peer.name, error)

    def _book(self, peer: Peer, length: int, seconds: float) -> None:
        peer.book(length, seconds)
        self.counts["reads"] += 1
        self.counts["bytes_moved"] += length
        self.counts["read_seconds"] += seconds

    def _read(self, job: Job, peer: Peer, landed: Landed, sums: list[checksum.Checksum]) -> Steps:
        """Every piece of every region. Returns or raises only when nothing is in flight any more."""
        todo = deque(_pieces(job.ticket, self._settings.chunk_bytes))
        flying: deque[tuple[int, Piece]] = deque()
        sum_in_thread = len(todo) > 1
        summing: list[Future[None]] = []
        failure: HandoffError | None = None
        counted = False
        while todo or flying:
            while todo and len(flying) < _DEPTH and not failure and not job.over:
                piece = todo.popleft()
                try:
                    flying.append((self._start(job.ticket, peer, landed, piece), piece))
                except HandoffError as error:
                    failure = error
            if failure or job.over:
                todo.clear()
            if not flying:
                break
            handle, piece = flying[0]
            try:
                done = self._transport.finished(handle)
            except HandoffError as error:
                failure, done = failure or error, True
            if done:
                flying.popleft()
                self._transport.release(handle)
                if not failure and not job.over:
                    part = _part(landed, piece)
                    if sum_in_thread:
                        summing.append(self._verifier.submit(sums[piece.region].update, part))
                    else:
                        sums[piece.region].update(part)
                continue
            if job.over and not counted:
                counted = True
                self.counts["quarantined"] += 1
            yield
        while not all(future.done() for future in summing):
            yield
        if failure:
            raise failure

    def _start(self, ticket: Ticket, peer: Peer, landed: Landed, piece: Piece) -> int:
        region, length = ticket.regions[piece.region], piece.stop - piece.start
        remote = Span(region.address + piece.start, length, region.memory, region.device)
        local = landed[piece.region][1].span
        return self._transport.read(
            peer.name, remote, local._replace(address=local.address + piece.start, length=length)
        )

    def _verify(self, ticket: Ticket, landed: Landed, sums: list[checksum.Checksum]) -> None:
        header = Header.unpack(bytes(landed[0][1].view[: layout.HEADER_BYTES].numpy()))
        _check_header(header, ticket)
        digest = checksum.combine([summed.digest() for summed in sums])
        if digest != ticket.digest or header.digest != ticket.digest:
            raise IntegrityError(
                f"the bytes of {ticket.handoff_id.hex()} do not have the checksum that its ticket promises"
            )


def _pieces(ticket: Ticket, chunk: int) -> list[Piece]:
    """The header comes with the first piece, so that page sums stay on page borders of the payload."""
    pieces = []
    for index, region in enumerate(ticket.regions):
        shift = layout.HEADER_BYTES if index == 0 else 0
        borders = [0, *range(shift + chunk, region.length, chunk), region.length]
        pieces += [Piece(index, start, stop) for start, stop in zip(borders, borders[1:], strict=False)]
    return pieces


def _part(landed: Landed, piece: Piece) -> torch.Tensor:
    start = layout.HEADER_BYTES if piece.region == 0 and piece.start == 0 else piece.start
    return landed[piece.region][1].view[start : piece.stop]


def _check_header(header: Header, ticket: Ticket) -> None:
    mine = header.handoff_id == ticket.handoff_id and header.generation == ticket.generation
    if mine and header.state == SlotState.EXPIRED:
        raise LeaseExpired("the slot's lease ended before the READ: run the AR stage again")
    if mine and header.state == SlotState.RELEASED:
        raise TicketInvalid("the slot was released: a ticket is good until then, and not again", param="ticket")
    if not mine and header.generation > ticket.generation:
        raise TicketInvalid(
            f"the slot is in its generation {header.generation}, the ticket is of {ticket.generation}: it was released, "
            "or its lease ended, and the place was used again",
            param="ticket",
        )
    if not mine or header.state != SlotState.LIVE or header.length != ticket.payload_bytes:
        raise IntegrityError("the header in the slot is not the one that the ticket promises")
