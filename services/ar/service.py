"""Runs stage 0 for each request and publishes what it wrote."""

import asyncio
import secrets
import time
from typing import NamedTuple

import torch

from services.handoff.producer import Producer
from services.handoff.ticket import Ticket, seal
from services.observe import metrics
from services.observe.tracing import TRACING
from services.serving.engine import Bundle, PriorEngine, PriorJob
from services.serving.identity import live_info
from services.serving.ledger import JobLedger
from services.serving.supervisor import EngineSupervisor
from services.wire.ar_to_gateway import Prior
from services.wire.errors import EngineDied
from services.wire.gateway_to_ar import PriorRequest
from services.wire.info import StageInfo
from services.wire.probe import PROBE_LEASE, Probe

WARM_UP = PriorJob(request_id="warm-up", prompt="a warm-up", width=256, height=256, seed=0)


class _Slot(NamedTuple):
    handoff_id: bytes
    expires: float  # time.monotonic()


class ArService:
    """One AR engine and one NIXL producer.

    identity: the fixed part of `info` (instance, model, fingerprint, versions, devices ...). key: signs the tickets.
    lease: seconds that a slot waits for its READ.
    """

    def __init__(
        self,
        supervisor: EngineSupervisor[PriorEngine],
        producer: Producer,
        ledger: JobLedger,
        identity: StageInfo,
        *,
        key: bytes | None,
        lease: float,
    ) -> None:
        self.supervisor = supervisor
        self.ledger = ledger
        self._producer = producer
        self._identity = identity
        self._key = key
        self._lease = lease
        self._slots: dict[str, _Slot] = {}
        supervisor.on_lost = ledger.fail_all

    async def write(self, message: PriorRequest) -> Prior:
        """Prior tokens for one image, published under a fresh ticket. Raises what the engine and the arena raise."""
        began = time.monotonic()
        async with self.ledger.job(message.request_id, message.budget):
            with TRACING.span("priors", message.traceparent) as span:
                prior = await self._write(message, began)
                span.phases(prior.times)
            metrics.observe_stage("ar", prior.times)
            return prior

    async def _write(self, message: PriorRequest, began: float) -> Prior:
        engine = self.supervisor.engine
        job = PriorJob(
            request_id=message.request_id,
            prompt=message.prompt,
            width=message.width,
            height=message.height,
            seed=message.seed,
            image=message.image,
        )
        try:
            result = await engine.write(job)
        except EngineDied as error:
            self.supervisor.report(error)
            raise
        self.supervisor.worked = True
        written = time.monotonic()
        ticket = await self._publish(message.request_id, result.bundle, self._lease)
        return Prior(
            request_id=message.request_id,
            ticket=ticket,
            text_tokens=result.text_tokens,
            image_tokens=result.image_tokens,
            prior_tokens=result.prior_tokens,
            times={"ar": written - began, "publish": time.monotonic() - written},
        )

    async def _publish(self, request_id: str, bundle: Bundle, lease: float) -> bytes:
        self.release(request_id)
        publishing = asyncio.ensure_future(asyncio.to_thread(self._producer.publish, bundle, lease))
        try:
            ticket = await asyncio.shield(publishing)
        except asyncio.CancelledError:
            publishing.add_done_callback(self._unwanted)  # the thread goes on, and nobody will ask for its slot
            raise
        now = time.monotonic()
        self._slots = {key: slot for key, slot in self._slots.items() if slot.expires > now}
        self._slots[request_id] = _Slot(ticket.handoff_id, now + lease)
        return seal(ticket, self._key)

    def _unwanted(self, publishing: "asyncio.Future[Ticket]") -> None:
        if not publishing.cancelled() and publishing.exception() is None:
            self._producer.release(publishing.result().handoff_id)

    async def warm_up(self, engine: PriorEngine) -> None:
        """One small prior, before a fresh engine gets work. Raises what the engine raises."""
        await engine.write(WARM_UP)

    async def probe(self) -> Probe:
        """A ticket to a few bytes, to try the way to a DiT with. Raises what the arena raises."""
        request_id = f"probe-{secrets.token_hex(8)}"
        bundle = {"probe": torch.arange(16, dtype=torch.int32)}
        return Probe(request_id=request_id, ticket=await self._publish(request_id, bundle, PROBE_LEASE))

    def release(self, request_id: str) -> None:
        """Abort the run of this id, or free its slot; nothing if there is neither."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._producer.release(slot.handoff_id)

    def abort(self, request_id: str) -> None:
        """The gateway is done with this id, in whatever state it is."""
        if not self.ledger.abort(request_id):
            self.release(request_id)

    def info(self) -> StageInfo:
        """Identity and load, now."""
        return live_info(
            self._identity,
            self.supervisor,
            self.ledger,
            self._producer.stats(),
            transports=self._producer.transports(),
        )

    async def drain(self) -> None:
        """Wait for the running jobs, then until each slot was released or its lease ended."""
        await self.ledger.drain()
        while not await asyncio.to_thread(self._producer.drained, 1.0):  # in slices: a thread cannot be cancelled
            continue

    def close(self) -> None:
        """Give NIXL's memory back."""
        self._producer.close()
