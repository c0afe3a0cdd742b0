"""The consumer's one thread that calls NIXL: it runs every fetch as a generator and polls their READs.

A generator yields while its READ is in flight. When its caller has left (deadline, cancellation) it goes on alone
until NIXL reports the READ as ended; only then does the memory go back. That is the quarantine.
"""

import logging
import queue
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
import torch

from services.handoff.arena import Arena, Block
from services.handoff.bundle import rebuild
from services.handoff.layout import Memory
from services.handoff.notice import Event, Notice
from services.handoff.peers import Peer, Peers
from services.handoff.pull import Pull
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import Ticket
from services.handoff.transport import Span, Transport
from services.wire.errors import ArenaFull, HandoffError, PeerGone, TicketInvalid

_SPIN = 300e-6  # seconds of polling without a rest: most small READs end within it
_REST_FIRST, _REST_MOST = 20e-6, 2e-3  # seconds between polls after that, growing by half
_REST_QUARANTINE = 50e-3  # seconds between polls when nobody waits
_PROBE_PATIENCE = 1.0  # seconds until a bandwidth probe is polled as rarely as what is in quarantine
_log = logging.getLogger(__name__)

Bundle = dict[str, torch.Tensor]
Steps = Generator[bool, None, None]  # yields whether anything moved since


@dataclass(slots=True, eq=False)
class Job:
    """One fetch. resolve: called once, from the reader's thread. over: its caller has left."""

    ticket: Ticket
    resolve: Callable[[Bundle | HandoffError], None]
    over: bool = False
    read: bytes = field(default_factory=lambda: secrets.token_bytes(8))


class Reader:
    """Runs jobs until it is closed."""

    def __init__(self, settings: HandoffSettings, transport: Transport, arenas: dict[Memory, Arena]) -> None:
        self._settings, self._transport, self._arenas = settings, transport, arenas
        self.peers = Peers(transport, cap=settings.max_peers, require_rdma=settings.require_rdma)
        self.counts = dict.fromkeys(
            ("reads", "bytes_moved", "read_seconds", "quarantined", "reconnects", "bytes_landed"), 0.0
        )
        self._inbox: queue.SimpleQueue[Job | Block | None] = queue.SimpleQueue()
        self._jobs: dict[Job, Steps] = {}
        self._closed = False
        self._summer = ThreadPoolExecutor(1, "handoff-checksum")
        self._thread = threading.Thread(target=self._run, name="handoff-reader", daemon=True)
        self._thread.start()

    @property
    def in_flight(self) -> int:
        """Fetches under way, quarantined ones included."""
        return len(self._jobs)

    @property
    def in_quarantine(self) -> int:
        """READs whose caller has left and whose memory NIXL may still write."""
        return sum(1 for job in list(self._jobs) if job.over)

    def submit(self, job: Job) -> None:
        """Raises ArenaFull if too many are under way."""
        if len(self._jobs) + self._inbox.qsize() >= self._settings.max_fetches:
            raise ArenaFull(f"this consumer runs {self._settings.max_fetches} READs at a time", retry_after=1)
        self._inbox.put(job)

    def close(self) -> None:
        """Ends the thread; fetches under way fail. Their memory is never used again in this process."""
        self._inbox.put(None)
        self._thread.join(timeout=5)
        self._summer.shutdown(wait=True)

    def _run(self) -> None:
        moved_at, rest = time.monotonic(), 0.0
        while not self._closed:
            if self._receive(rest) | self._advance():
                moved_at = time.monotonic()
            rest = self._rest(time.monotonic() - moved_at, rest)
        for job in self._jobs:
            job.resolve(HandoffError("this consumer is closed"))

    def _receive(self, rest: float) -> bool:
        """Takes what came in; waits for it, `rest` seconds or, with nothing else to do, for ever."""
        wait = rest > 0 or not self._jobs
        try:
            while True:
                item = self._inbox.get(wait, rest if self._jobs else None)
                if item is None:
                    self._closed = True
                elif isinstance(item, Job):
                    self._jobs[item] = self._fetch(item)
                else:
                    item.arena.free(item)
                if self._inbox.empty():
                    return True
        except queue.Empty:
            return False

    def _rest(self, still: float, rest: float) -> float:
        if still < _SPIN:
            return 0.0
        most = _REST_MOST if any(not job.over for job in self._jobs) else _REST_QUARANTINE
        return min(max(rest * 1.5, _REST_FIRST), most)

    def _advance(self) -> bool:
        """One step of every job; True if anything moved."""
        moved = False
        for job, steps in list(self._jobs.items()):
            try:
                moved |= next(steps)
                continue
            except StopIteration:
                pass
            except HandoffError as error:
                job.resolve(error)
            except Exception as error:  # noqa: BLE001 - a defect of ours must fail one fetch, not the thread of all
                _log.exception("a fetch failed in an unforeseen way")
                job.resolve(HandoffError(f"fetch failed: {error!r}"))
            moved = True
            del self._jobs[job]
        return moved

    def _fetch(self, job: Job) -> Steps:
        blocks: list[Block] = []
        try:
            yield from self._land(job, blocks)
            yield from self._attempts(job, blocks)
        except HandoffError:
            _free(blocks)
            raise  # any other error: it is not known whether NIXL still writes there, so the memory is lost
        _free(blocks)

    def _land(self, job: Job, blocks: list[Block]) -> Steps:
        """Takes landing memory, and waits for it as long as the caller waits."""
        for region in job.ticket.regions:
            arena = self._arenas.get(region.memory)
            if arena is None:
                raise TicketInvalid("the bundle is in VRAM; give this consumer a CUDA region (VRAM_ARENA_BYTES)")
            while True:
                try:
                    blocks.append(arena.allocate(region.length))
                    break
                except ArenaFull:
                    if job.over or (not self._jobs and not arena.bytes_in_use):
                        raise
                yield False

    def _attempts(self, job: Job, blocks: list[Block]) -> Steps:
        """The READ, and once more on a fresh connection if the kept one turns out to be dead."""
        for last in (False, True):
            if job.over:
                return
            peer, known = self.peers.of(job.ticket)
            peer.users += 1
            try:
                yield from self._read(job, peer, blocks)
                if not known:
                    probe = Job(job.ticket, _log_probe)
                    self._jobs[probe] = self._probe(probe, peer)
                return
            except PeerGone:
                self.peers.drop(peer)
                if last or not known or job.over:
                    raise
                self.counts["reconnects"] += 1
            finally:
                peer.users -= 1

    def _read(self, job: Job, peer: Peer, blocks: list[Block]) -> Steps:
        """One attempt. It returns or raises only when NIXL is done with the memory."""
        notice = Notice(Event.BEGINS, job.ticket.handoff_id, job.ticket.generation, job.read)
        self._transport.notify(peer.name, notice.pack())
        started = time.perf_counter()
        end = Event.ABANDONED
        try:
            pull = Pull(job.ticket, blocks, self._transport, self._summer, self._settings.chunk_bytes)
            yield from self._wait(job, pull)
            if pull.failure is not None:
                raise pull.failure
            if not job.over:
                pull.verify()
                end = Event.ENDED
                self._book(peer, job.ticket.payload_bytes, time.perf_counter() - started)
                job.resolve(self._bundle(job.ticket, blocks))
        finally:
            self._report(peer, notice._replace(event=end))

    def _probe(self, job: Job, peer: Peer) -> Steps:
        """Measures the bandwidth to a new peer, after its first fetch."""
        region = job.ticket.probe
        block = self._arenas[Memory.DRAM].allocate(region.length)
        peer.users += 1
        try:
            started = time.perf_counter()
            handle = self._transport.read(peer.name, Span(*msgspec.structs.astuple(region)), block.span)
            while not self._transport.finished(handle):
                job.over = time.perf_counter() - started > _PROBE_PATIENCE
                yield False
            self._transport.release(handle)
            peer.book(region.length, time.perf_counter() - started)
        finally:
            peer.users -= 1
            block.arena.free(block)

    def _wait(self, job: Job, pull: Pull) -> Steps:
        quarantined = False
        while not pull.landed:
            if job.over:
                pull.stop()
                if not quarantined:
                    quarantined = True
                    self.counts["quarantined"] += 1
            before = pull.bytes_landed
            moved = pull.advance()
            self.counts["bytes_landed"] += pull.bytes_landed - before
            if not pull.landed:
                yield moved

    def _report(self, peer: Peer, notice: Notice) -> None:
        try:
            self._transport.notify(peer.name, notice.pack())
        except HandoffError as error:
            _log.info("the end of a READ could not be reported to %s: %s", peer.name, error)

    def _book(self, peer: Peer, length: int, seconds: float) -> None:
        peer.book(length, seconds)
        self.counts["reads"] += 1
        self.counts["bytes_moved"] += length
        self.counts["read_seconds"] += seconds

    def _bundle(self, ticket: Ticket, blocks: list[Block]) -> Bundle:
        """The tensors. Small and VRAM bundles are copied; the memory of a big one is lent: it comes back to the inbox
        when the last tensor over it is garbage."""
        if ticket.payload_bytes <= self._settings.copy_below:
            return rebuild(ticket.tensors, [_copy(block) for block in blocks])
        views = []
        for block in list(blocks):
            if block.arena.memory is Memory.VRAM:
                views.append(_copy(block))
                continue
            lent = block.raw
            weakref.finalize(lent, self._inbox.put, block).atexit = False
            views.append(torch.from_numpy(lent))
            blocks.remove(block)  # its owner is now the array
        return rebuild(ticket.tensors, views)


def _log_probe(outcome: Bundle | HandoffError) -> None:
    _log.info("no bandwidth measured: %s", outcome)


def _free(blocks: list[Block]) -> None:
    for block in blocks:
        block.arena.free(block)


def _copy(block: Block) -> torch.Tensor:
    if block.arena.memory is Memory.DRAM:
        return torch.from_numpy(block.raw.copy())
    copy = block.view.clone()
    torch.cuda.current_stream(block.arena.device).synchronize()
    return copy
