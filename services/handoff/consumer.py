"""The consumer: pulls the bundle behind a ticket, verifies it, and hands it over as tensors."""

import asyncio
import re
from collections import Counter

import torch

from services.handoff.arena import Arena
from services.handoff.layout import Memory
from services.handoff.reader import Bundle, Job, Reader
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import Ticket, unseal
from services.handoff.transport import Transport
from services.wire.errors import HandoffError, TransferTimeout

_TRANSPORT = re.compile(r"([\w:]+)/")  # of a lane such as `tcp/eth0`
_WRITTEN_TO_THE_END: list[object] = []  # memory of consumers that were closed while NIXL could still write it


class Consumer:
    """Owns one agent, its landing region, and a thread that does all the waiting; the event loop never blocks.

    fingerprint: of the model; a ticket with another one is refused.
    """

    def __init__(self, settings: HandoffSettings, fingerprint: str, transport: Transport | None = None) -> None:
        self._settings, self._fingerprint, self._key = settings, fingerprint, settings.secret()
        self._transport = transport or _nixl(settings)
        self._arenas = {Memory.DRAM: Arena(self._transport, settings.landing_bytes, oversize=settings.oversize_bytes)}
        if settings.vram_arena_bytes:
            self._arenas[Memory.VRAM] = Arena(
                self._transport,
                settings.vram_arena_bytes,
                oversize=settings.oversize_bytes,
                memory=Memory.VRAM,
                device=settings.vram_device,
            )
        self._reader = Reader(settings, self._transport, self._arenas)
        self._errors: Counter[str] = Counter()

    async def fetch(self, raw_ticket: bytes, deadline: float) -> dict[str, torch.Tensor]:
        """The bundle behind `raw_ticket`, within `deadline` seconds, verified byte for byte.

        Bundles above `copy_below` bytes are not copied: their tensors lie in landing memory, which is free again when
        the last of them is garbage. Raises the `HandoffError` tree; `remedy` says what to try next.
        """
        try:
            ticket = unseal(raw_ticket, self._key, self._fingerprint, skew=self._settings.clock_skew)
            return await self._run(ticket, min(deadline, self._settings.transfer_deadline))
        except HandoffError as error:
            self._errors[error.code] += 1
            raise

    def stats(self) -> dict[str, float]:
        """Counters and gauges: bytes moved by NIXL, READs, errors by code, memory, peers, quarantine."""
        peers = self._reader.peers
        return {
            **self._reader.counts,
            "in_flight": float(self._reader.in_flight),
            "in_quarantine": float(self._reader.in_quarantine),
            "peers": float(len(peers)),
            "peers_added": float(peers.added),
            "peers_dropped": float(peers.dropped),
            "best_bytes_per_second": max((peer.best_rate for peer in peers.all()), default=0.0),
            **self._arenas[Memory.DRAM].stats(),
            **{f"transport_{name}": float(count) for name, count in self._by_transport().items()},
            **{f"errors_{code}": float(count) for code, count in self._errors.items()},
        }

    def transports(self) -> dict[str, str]:
        """By producer: the lanes that UCX reported, and the best bandwidth of a READ so far."""
        return {
            peer.name: f"{self._transport.lanes(peer.name) or 'unknown'} ({peer.host}, {peer.best_rate / 1e9:.2f} GB/s)"
            for peer in self._reader.peers.all()
        }

    def _by_transport(self) -> Counter[str]:
        """Peers by each UCX transport among their lanes."""
        lanes = (self._transport.lanes(peer.name) for peer in self._reader.peers.all())
        return Counter(name for each in lanes for name in set(_TRANSPORT.findall(each)))

    def close(self) -> None:
        """Ends the thread and the agent; fetches under way fail."""
        self._reader.close()
        busy = self._reader.in_flight > 0
        if busy:
            _WRITTEN_TO_THE_END.append(self._arenas)
        else:
            for arena in self._arenas.values():
                arena.close()
        self._transport.close(busy=busy)

    async def _run(self, ticket: Ticket, seconds: float) -> Bundle:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Bundle] = loop.create_future()

        def settle(outcome: Bundle | HandoffError) -> None:
            if future.done():
                return  # the caller has left; what was lent comes back with the garbage
            if isinstance(outcome, HandoffError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        def resolve(outcome: Bundle | HandoffError) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome)

        job = Job(ticket, resolve)
        self._reader.submit(job)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as error:
            raise TransferTimeout(f"the READ from {ticket.host} did not end within {seconds:.1f} s") from error
        finally:
            job.over = True


def _nixl(settings: HandoffSettings) -> Transport:
    from services.handoff.nixl_agent import NixlAgent  # here, so that the double works where NIXL is not installed

    return NixlAgent(settings, role="dit", progress=False)
