"""The consumer: pulls the bundle behind a ticket, verifies it, and hands it over as tensors."""

import asyncio
import weakref
from collections import Counter

import torch

from services.handoff import layout
from services.handoff.arena import Arena
from services.handoff.layout import Memory
from services.handoff.reader import Job, Landed, Reader
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import Ticket, unseal
from services.handoff.transport import Transport
from services.wire.errors import HandoffError, TransferTimeout


class Consumer:
    """Owns one agent, its landing region, and a thread that does all the waiting; the event loop never blocks.

    fingerprint: of the model; a ticket with another one is refused.
    """

    def __init__(self, settings: HandoffSettings, fingerprint: str, transport: Transport | None = None) -> None:
        self._settings, self._fingerprint, self._key = settings, fingerprint, settings.secret()
        self._transport = transport or _nixl(settings)
        arenas = {Memory.DRAM: Arena(self._transport, settings.landing_bytes, oversize=settings.oversize_bytes)}
        if settings.vram_arena_bytes:
            arenas[Memory.VRAM] = Arena(
                self._transport,
                settings.vram_arena_bytes,
                oversize=settings.oversize_bytes,
                memory=Memory.VRAM,
                device=settings.vram_device,
            )
        self._arenas = arenas
        self._reader = Reader(settings, self._transport, arenas)
        self._errors: Counter[str] = Counter()

    async def fetch(self, raw_ticket: bytes, deadline: float) -> dict[str, torch.Tensor]:
        """The bundle behind `raw_ticket`, within `deadline` seconds, verified byte for byte.

        Bundles above `copy_below` bytes are not copied: their tensors lie in landing memory, which is free again when
        the last of them is garbage. Raises the `HandoffError` tree; `remedy` says what to try next.
        """
        try:
            ticket = unseal(raw_ticket, self._key, self._fingerprint, skew=self._settings.clock_skew)
            landed = await self._landed(ticket, min(deadline, self._settings.transfer_deadline))
        except HandoffError as error:
            self._errors[error.code] += 1
            raise
        return self._bundle(ticket, landed)

    def stats(self) -> dict[str, float]:
        """Counters and gauges: bytes moved by NIXL, READs, errors by code, memory, peers, quarantine."""
        return {
            **{name: float(value) for name, value in self._reader.counts.items()},
            "in_flight": float(self._reader.in_flight),
            "in_quarantine": float(self._reader.quarantined),
            "peers": float(len(self._reader.peers)),
            "peers_added": float(self._reader.peers.added),
            "peers_dropped": float(self._reader.peers.dropped),
            **self._arenas[Memory.DRAM].stats(),
            **{f"errors_{code}": float(count) for code, count in self._errors.items()},
        }

    def transports(self) -> dict[str, str]:
        """By producer: the lanes that UCX reported, and the best bandwidth seen so far."""
        return {
            peer.name: f"{self._transport.lanes(peer.name) or 'unknown'} at {peer.host}, {peer.best_rate / 1e9:.2f} GB/s"
            for peer in self._reader.peers.all()
        }

    def close(self) -> None:
        """Ends the thread and the agent; fetches under way fail."""
        self._reader.close()
        if not self._reader.in_flight:
            for arena in self._arenas.values():
                arena.close()
        self._transport.close()

    async def _landed(self, ticket: Ticket, seconds: float) -> Landed:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Landed] = loop.create_future()

        def settle(landed: Landed | None, error: BaseException | None) -> None:
            if future.done():
                self._reader.give_back(landed or [])
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(landed or [])

        job = Job(ticket, lambda landed, error: _call_soon(loop, settle, landed, error))
        self._reader.submit(job)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as error:
            raise TransferTimeout(f"the READ from {ticket.host} did not end within {seconds:.1f} s") from error
        finally:
            job.over = True

    def _bundle(self, ticket: Ticket, landed: Landed) -> dict[str, torch.Tensor]:
        places, _ = layout.offsets(ticket.tensors, len(ticket.regions))
        views = self._copied(landed) if ticket.payload_bytes <= self._settings.copy_below else self._lent(landed)
        return {
            spec.name: views[spec.region][place : place + spec.length]
            .view(getattr(torch, spec.dtype))
            .reshape(spec.shape)
            for spec, place in zip(ticket.tensors, places, strict=True)
        }

    def _copied(self, landed: Landed) -> list[torch.Tensor]:
        views = [block.view.clone() for _, block in landed]
        self._reader.give_back(landed)
        return views

    def _lent(self, landed: Landed) -> list[torch.Tensor]:
        """Views whose memory goes back when the last tensor over it is gone; VRAM is copied on the device."""
        views = []
        for arena, block in landed:
            if arena.memory is Memory.VRAM:
                views.append(block.view.clone())
                torch.cuda.current_stream(arena.device).synchronize()
                self._reader.give_back([(arena, block)])
                continue
            held = block.view.numpy()[:]
            weakref.finalize(held, self._reader.give_back, [(arena, block)]).atexit = False
            views.append(torch.from_numpy(held))
        return views


def _call_soon(loop: asyncio.AbstractEventLoop, settle: object, *args: object) -> None:
    try:
        loop.call_soon_threadsafe(settle, *args)  # type: ignore[arg-type]
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


def _nixl(settings: HandoffSettings) -> Transport:
    from services.handoff.nixl_agent import NixlAgent

    return NixlAgent(settings, role="dit", progress=False)
