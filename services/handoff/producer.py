"""The producer: publishes bundles into its arena and answers for every slot until it is free again."""

import secrets
import threading
import time
from collections.abc import Mapping

import torch

from services.handoff import address, checksum, layout, notice
from services.handoff.arena import Arena, Block
from services.handoff.layout import Header, Memory, SlotState, TensorSpec
from services.handoff.settings import HandoffSettings
from services.handoff.slots import Slot
from services.handoff.ticket import Region, Ticket
from services.handoff.transport import Transport
from services.wire.errors import ArenaFull

_TICK = 0.25  # seconds between looks at the notices while slots are out
_COUNTERS = ("published", "published_bytes", "released", "expired", "read", "abandoned", "quarantined", "refused")


class Producer:
    """Owns one agent and its arenas. Every method may be called from any thread; `publish` copies, so call it from
    a worker thread for big bundles.

    fingerprint: of the model (model, revision, dtype); a consumer with another one refuses the ticket.
    """

    def __init__(self, settings: HandoffSettings, fingerprint: str, transport: Transport | None = None) -> None:
        self._settings, self._fingerprint = settings, fingerprint
        self.host = address.advertised(settings)
        self._transport = transport or _nixl(settings)
        address.check_reachable(self.host, self._transport.metadata())
        self._dram = Arena(self._transport, settings.arena_bytes, oversize=settings.oversize_bytes)
        self._vram: Arena | None = None
        if settings.vram_arena_bytes:
            self._vram = Arena(
                self._transport,
                settings.vram_arena_bytes,
                oversize=settings.oversize_bytes,
                memory=Memory.VRAM,
                device=settings.vram_device,
            )
        self._slots: dict[bytes, Slot] = {}
        self._resting: dict[bytes, Slot] = {}
        self._generation = 0
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self._changed = threading.Condition()
        self._closed = False
        self._reaper = threading.Thread(target=self._reap_for_ever, name="handoff-leases", daemon=True)
        self._reaper.start()

    @property
    def instance(self) -> str:
        """The agent's name, unique per process start."""
        return self._transport.name

    @property
    def outstanding(self) -> int:
        """Live slots: published, neither released nor expired."""
        return len(self._slots)

    @property
    def unread(self) -> int:
        """Live slots that no READ has ended on yet."""
        self._listen()
        with self._changed:
            return sum(1 for slot in self._slots.values() if not slot.ended)

    def publish(self, bundle: Mapping[str, torch.Tensor], lease: float | None = None) -> Ticket:
        """Copies `bundle` (dense tensors of any shape and of a dtype in `layout.ITEM_BYTES`, on the CPU or on the
        CUDA device of the CUDA region) into a slot that lives for `lease` seconds.

        Raises ArenaFull, TypeError or ValueError for a bundle that cannot travel.
        """
        specs, tensors = _describe(bundle, cuda=self._vram is not None)
        regions = 2 if any(spec.region for spec in specs) else 1
        places, lengths = layout.offsets(specs, regions)
        slot = self._open(lengths, min(lease or self._settings.lease, self._settings.max_lease))
        try:
            ticket = self._fill(slot, specs, tensors, places)
        except BaseException:
            with self._changed:
                self._free(slot)
            raise
        with self._changed:
            if self._closed:
                self._free(slot)
                raise ArenaFull("this producer is closed")
            self._slots[slot.handoff_id] = slot
            self._counts["published"] += 1
            self._counts["published_bytes"] += ticket.payload_bytes
            self._changed.notify_all()
        return ticket

    def release(self, handoff_id: bytes) -> bool:
        """Ends a slot's life; READs that begin later are refused by the header. False if it is not alive."""
        self._listen()
        with self._changed:
            slot = self._slots.pop(handoff_id, None)
            if slot is None:
                return False
            self._counts["released"] += 1
            self._retire(slot, SlotState.RELEASED)
        return True

    def drained(self, timeout: float) -> bool:
        """Waits until no slot is live, at most `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._slots, timeout)

    def stats(self) -> dict[str, float]:
        """Gauges and counters: slots live, resting (waiting for READs to end), leaked must stay 0."""
        with self._changed:
            held = sum(len(slot.blocks) for group in (self._slots, self._resting) for slot in group.values())
            return {
                "slots_live": float(len(self._slots)),
                "slots_resting": float(len(self._resting)),
                "blocks_held": float(held),
                **self._dram.stats(),
                **({f"vram_{name}": value for name, value in self._vram.stats().items()} if self._vram else {}),
                **{name: float(count) for name, count in self._counts.items()},
            }

    def close(self) -> None:
        """Stops the reaper and the agent; slots that are still out are lost to their readers."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._reaper.join(timeout=5)
        self._slots.clear()
        self._resting.clear()
        self._dram.close()
        if self._vram is not None:
            self._vram.close()
        self._transport.close()

    def _open(self, lengths: list[int], lease: float) -> Slot:
        with self._changed:
            if self._closed or len(self._slots) + len(self._resting) >= self._settings.max_slots:
                self._counts["refused"] += 1
                raise ArenaFull(
                    f"{self._settings.max_slots} slots are taken, or this producer is closed", retry_after=1
                )
        blocks: list[tuple[Arena, Block]] = []
        try:
            for arena, length in zip(self._arenas(), lengths, strict=False):
                blocks.append((arena, self._allocate(arena, length)))
        except ArenaFull:
            for arena, block in blocks:
                arena.free(block)
            self._counts["refused"] += 1
            raise
        with self._changed:
            self._generation += 1
            return Slot(secrets.token_bytes(16), self._generation, blocks, time.monotonic() + lease)

    def _arenas(self) -> list[Arena]:
        return [self._dram] if self._vram is None else [self._dram, self._vram]

    def _allocate(self, arena: Arena, length: int) -> Block:
        try:
            return arena.allocate(length)
        except ArenaFull:
            self._listen()
            self._reap(time.monotonic())
            return arena.allocate(length)

    def _fill(self, slot: Slot, specs: list[TensorSpec], tensors: list[torch.Tensor], places: list[int]) -> Ticket:
        payload = slot.length - layout.HEADER_BYTES
        algorithm = checksum.choose(payload, self._settings.checksum)
        header = Header(slot.handoff_id, slot.generation, payload, SlotState.FILLING, algorithm, bytes(16))
        self._write_header(slot, header)
        for spec, tensor, place in zip(specs, tensors, places, strict=True):
            target = slot.blocks[spec.region][1].view[place : place + layout.aligned(spec.length)]
            target[: spec.length].copy_(tensor)
            target[spec.length :].zero_()  # what lay here before is nobody's business
        digests = []
        for index, (_, block) in enumerate(slot.blocks):
            summed = checksum.start(algorithm)
            summed.update(block.view[layout.HEADER_BYTES :] if index == 0 else block.view)
            digests.append(summed.digest())
        digest = checksum.combine(digests)
        slot.state = SlotState.LIVE
        self._write_header(slot, header._replace(state=SlotState.LIVE, digest=digest))
        return Ticket(
            handoff_id=slot.handoff_id,
            generation=slot.generation,
            instance=self._transport.name,
            host=self.host,
            machine=address.machine(),
            agent=self._transport.metadata(),
            nixl=self._transport.nixl,
            ucx=self._transport.ucx,
            regions=tuple(Region(*block.span) for _, block in slot.blocks),
            tensors=tuple(specs),
            algorithm=algorithm,
            digest=digest,
            fingerprint=self._fingerprint,
            expires=time.time() + slot.expires - time.monotonic(),
        )

    @staticmethod
    def _write_header(slot: Slot, header: Header) -> None:
        slot.blocks[0][1].view.numpy()[: layout.HEADER_BYTES] = memoryview(header.pack())

    def _retire(self, slot: Slot, state: SlotState) -> None:
        """Marks the header, so that a late READ is refused, and frees the slot or lets it rest. Under the lock."""
        slot.state, slot.retired_at = state, time.monotonic()
        self._write_header(slot, Header(slot.handoff_id, slot.generation, 0, state, 1, bytes(16)))
        if self._free_at(slot) <= slot.retired_at:
            self._free(slot)
        else:
            self._resting[slot.handoff_id] = slot
            self._counts["quarantined"] += 1
        self._changed.notify_all()

    def _free_at(self, slot: Slot) -> float:
        return slot.free_at(self._settings.announce_grace, self._settings.quarantine)

    @staticmethod
    def _free(slot: Slot) -> None:
        while slot.blocks:
            arena, block = slot.blocks.pop()
            arena.free(block)

    def _listen(self) -> None:
        """Books the notices of consumers."""
        messages = self._transport.notices()
        now = time.monotonic()
        with self._changed:
            for raw in messages:
                message = notice.unpack(raw)
                if message is None:
                    continue
                slot = self._slots.get(message.handoff_id) or self._resting.get(message.handoff_id)
                if slot is not None and slot.generation == message.generation:
                    slot.note(message, now)
                    self._counts["read"] += message.event is notice.Event.ENDED
                    self._counts["abandoned"] += message.event is notice.Event.ABANDONED

    def _reap(self, now: float) -> None:
        with self._changed:
            for slot in [slot for slot in self._slots.values() if slot.expires <= now]:
                del self._slots[slot.handoff_id]
                self._counts["expired"] += 1
                self._retire(slot, SlotState.EXPIRED)
            for slot in [slot for slot in self._resting.values() if self._free_at(slot) <= now]:
                del self._resting[slot.handoff_id]
                self._free(slot)

    def _reap_for_ever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(_TICK if self._slots or self._resting else None)
                if self._closed:
                    return
            self._listen()
            self._reap(time.monotonic())


def _nixl(settings: HandoffSettings) -> Transport:
    from services.handoff.nixl_agent import NixlAgent  # so that the double works where NIXL is not installed

    return NixlAgent(settings, role="ar", progress=True)


def _describe(bundle: Mapping[str, torch.Tensor], *, cuda: bool) -> tuple[list[TensorSpec], list[torch.Tensor]]:
    """Specs, and the tensors as flat uint8 on their own device."""
    if not bundle:
        raise ValueError("an empty bundle: publish at least one tensor")
    specs, flat = [], []
    for name, tensor in bundle.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in layout.ITEM_BYTES or tensor.layout is not torch.strided:
            raise TypeError(
                f"{name}: {dtype} ({tensor.layout}) cannot travel; send a dense tensor of {set(layout.ITEM_BYTES)}"
            )
        if tensor.device.type not in ("cpu", "cuda"):
            raise TypeError(f"{name}: on {tensor.device}; send it from the CPU or a CUDA device")
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        on_device = tensor.is_cuda and cuda
        specs.append(TensorSpec(name, dtype, tuple(tensor.shape), 1 if on_device else 0))
        flat.append(plain.view(torch.uint8))
    return specs, flat
