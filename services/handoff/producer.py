"""The producer: publishes bundles into its arena and answers for every slot until it is free again."""

import ctypes
import secrets
import threading
import time
from collections.abc import Mapping

import torch

from services.handoff import address, bundle, checksum, layout
from services.handoff.arena import Arena, Block
from services.handoff.layout import Header, Memory, SlotState
from services.handoff.settings import HandoffSettings
from services.handoff.slots import Slot, Slots
from services.handoff.ticket import Region, Ticket
from services.handoff.transport import Transport
from services.wire.errors import ArenaFull

PROBE_BYTES = 2**20
_TICK = 0.25  # seconds between looks at leases and notices: 4 wake-ups a second cost 0.1 % of a core


class Producer:
    """Owns one agent and its arenas. Every method may be called from any thread; `publish` copies, so call it from
    a worker thread for big bundles.

    fingerprint: of the model's configuration; a consumer with another one refuses the ticket.
    """

    def __init__(self, settings: HandoffSettings, fingerprint: str, transport: Transport | None = None) -> None:
        self._settings, self._fingerprint = settings, fingerprint
        self._transport = transport or _nixl(settings)
        self.host = address.advertised(settings, self._transport.metadata())
        self._arenas = [Arena(self._transport, settings.arena_bytes, oversize=settings.oversize_bytes)]
        if settings.vram_arena_bytes:
            self._arenas.append(
                Arena(
                    self._transport,
                    settings.vram_arena_bytes,
                    oversize=settings.oversize_bytes,
                    memory=Memory.VRAM,
                    device=settings.vram_device,
                )
            )
        self._probe = self._arenas[0].allocate(min(PROBE_BYTES, settings.arena_bytes // 16))
        self._metadata: tuple[int, bytes] = (0, b"")
        self._slots = Slots(settings)
        self._stop = threading.Event()
        self._reaper = threading.Thread(target=self._reap_for_ever, name="handoff-leases", daemon=True)
        self._reaper.start()

    @property
    def instance(self) -> str:
        """The agent's name, unique per process start."""
        return self._transport.name

    @property
    def outstanding(self) -> int:
        """Live slots: published, neither released nor expired."""
        return self._slots.live

    @property
    def unread(self) -> int:
        """Live slots that no READ has ended on yet."""
        self._slots.note(self._transport.notices())
        return self._slots.unread

    def publish(self, bundle_: Mapping[str, torch.Tensor], lease: float | None = None) -> Ticket:
        """Copies a bundle of dense tensors (any shape, dtypes of `layout.ITEM_BYTES`, CPU or CUDA) into a slot that
        lives for `lease` seconds.

        Raises ArenaFull, and TypeError or ValueError for a bundle that cannot travel.
        """
        described = bundle.describe(bundle_, cuda=len(self._arenas) > 1)
        regions = 1 + any(spec.region for spec in described.specs)
        places, lengths = layout.offsets(described.specs, regions)
        slot = self._open(lengths, min(lease or self._settings.lease, self._settings.max_lease))
        try:
            ticket = self._fill(slot, described, places)
            self._slots.add(slot, ticket.payload_bytes)
        except BaseException:
            slot.free()
            raise
        return ticket

    def release(self, handoff_id: bytes) -> bool:
        """Ends a slot's life; READs that begin later are refused by the header. False if it is not alive."""
        self._slots.note(self._transport.notices())
        return self._slots.release(handoff_id)

    def drained(self, timeout: float) -> bool:
        """Waits until no slot is live, at most `timeout` seconds. Blocks: call it from a worker thread."""
        return self._slots.wait_empty(timeout)

    def stats(self) -> dict[str, float]:
        """Gauges and counters; a slot is live, or resting until READs that may touch it have ended."""
        found = self._slots.stats() | self._arenas[0].stats()
        for arena in self._arenas[1:]:
            found |= {f"vram_{name}": value for name, value in arena.stats().items()}
        return found

    def transports(self) -> dict[str, str]:
        """By `self`, `intra-node`, `inter-node`: the lanes that UCX reported for connections of that kind."""
        return self._transport.all_lanes()

    def close(self) -> None:
        """Stops the reaper and the agent; READs of slots that are still live fail."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._reaper.join(timeout=5)
        self._slots.close()
        for arena in self._arenas:
            arena.close()
        self._transport.close()

    def _open(self, lengths: list[int], lease: float) -> Slot:
        self._slots.check_room()
        blocks: list[Block] = []
        try:
            for arena, length in zip(self._arenas, lengths, strict=False):
                blocks.append(self._allocate(arena, length))
        except ArenaFull:
            self._slots.refused()
            for block in blocks:
                block.arena.free(block)
            raise
        return Slot(secrets.token_bytes(16), self._slots.next_generation(), blocks, lease)

    def _allocate(self, arena: Arena, length: int) -> Block:
        try:
            return arena.allocate(length)
        except ArenaFull:
            self._reap()
            return arena.allocate(length)

    def _fill(self, slot: Slot, described: bundle.Described, places: list[int]) -> Ticket:
        payload = slot.length - layout.HEADER_BYTES
        algorithm = checksum.choose(payload, self._settings.checksum)
        header = Header(slot.handoff_id, slot.generation, payload, SlotState.FILLING, algorithm, bytes(16))
        slot.write(header)
        views = [block.view for block in slot.blocks]
        for spec, flat, place in zip(described.specs, described.flat, places, strict=True):
            _copy(flat, views[spec.region], place)
        if len(views) > 1:
            torch.cuda.current_stream(self._settings.vram_device).synchronize()
        digest = _digest(algorithm, views)
        slot.write(header._replace(state=SlotState.LIVE, digest=digest))
        return Ticket(
            handoff_id=slot.handoff_id,
            generation=slot.generation,
            instance=self._transport.name,
            host=self.host,
            machine=address.machine(),
            agent=self._agent_metadata(),
            nixl=self._transport.nixl,
            ucx=self._transport.ucx,
            regions=tuple(Region(*block.span) for block in slot.blocks),
            probe=Region(*self._probe.span),
            tensors=described.specs,
            algorithm=algorithm,
            digest=digest,
            fingerprint=self._fingerprint,
            expires=time.time() + slot.lease,
        )

    def _agent_metadata(self) -> bytes:
        registrations = sum(arena.registrations for arena in self._arenas)
        if self._metadata[0] != registrations:
            self._metadata = (registrations, self._transport.metadata())
        return self._metadata[1]

    def _reap(self) -> None:
        self._slots.note(self._transport.notices())
        self._slots.reap()

    def _reap_for_ever(self) -> None:
        while not self._stop.wait(_TICK):
            self._reap()


def _copy(flat: torch.Tensor, view: torch.Tensor, place: int) -> None:
    """`flat` to `view` at `place`, and zeros up to the next tensor: what lay there before is nobody's business."""
    end = place + flat.numel()
    if flat.is_cuda or view.is_cuda:
        view[place:end].copy_(flat)
    else:  # torch would wake its thread pool from 32 KiB on, which costs more than the copy
        ctypes.memmove(view.data_ptr() + place, flat.data_ptr(), flat.numel())
    if end % layout.ALIGNMENT:
        view[end : layout.aligned(end)].zero_()


def _digest(algorithm: checksum.Algorithm, views: list[torch.Tensor]) -> bytes:
    digests = []
    for index, view in enumerate(views):
        summed = checksum.start(algorithm)
        summed.update(view if index else view[layout.HEADER_BYTES :])
        digests.append(summed.digest())
    return checksum.combine(digests)


def _nixl(settings: HandoffSettings) -> Transport:
    from services.handoff.nixl_agent import NixlAgent  # here, so that the double works where NIXL is not installed

    return NixlAgent(settings, role="ar", progress=True)
