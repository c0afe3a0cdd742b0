"""Fetches a ticket's bundle, runs stage 1, and streams what happens."""

import asyncio
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import torch

from services.dit.encode import encode_image
from services.dit.settings import DitSettings
from services.handoff.consumer import Consumer
from services.observe import metrics
from services.observe.tracing import TRACING
from services.serving.engine import (
    PRIOR_TOKENS,
    Bundle,
    FinalImage,
    PartialImage,
    Pixels,
    RenderEngine,
    RenderJob,
    RenderStep,
    StepDone,
)
from services.serving.identity import live_info
from services.serving.ledger import JobLedger
from services.serving.supervisor import EngineSupervisor
from services.wire.dit_to_gateway import Preview, Progress, Rendered, RenderEvent
from services.wire.errors import EngineDied, EngineFailed, InvalidRequest
from services.wire.gateway_to_dit import RenderRequest
from services.wire.geometry import large_grid
from services.wire.info import StageInfo
from services.wire.probe import Probe

WARM_UP = RenderJob(request_id="warm-up", prompt="a warm-up", width=256, height=256, steps=2, guidance=1.5, seed=0)
PROBE_SECONDS = 10.0  # a first READ to a new peer takes 0.04 s


class DitService:
    """One DiT engine and one NIXL consumer. identity: the fixed part of `info`."""

    def __init__(
        self,
        supervisor: EngineSupervisor[RenderEngine],
        consumer: Consumer,
        ledger: JobLedger,
        identity: StageInfo,
        settings: DitSettings,
    ) -> None:
        self.supervisor = supervisor
        self.ledger = ledger
        self._consumer = consumer
        self._identity = identity
        self._png_level = settings.png_level
        self._encoders = ThreadPoolExecutor(settings.encode_threads, thread_name_prefix="encode")
        supervisor.on_lost = ledger.fail_all
        self._work: dict[str, float] = {}  # denoising steps x megapixels still to do, by request

    async def warm_up(self, engine: RenderEngine) -> None:
        """One small image, before a fresh engine gets work. Raises what the engine raises."""
        tokens = torch.zeros(large_grid(WARM_UP.width, WARM_UP.height).tokens, dtype=torch.int32)
        async with aclosing(engine.paint(WARM_UP, {PRIOR_TOKENS: tokens})) as steps:
            async for _ in steps:
                continue

    async def probe(self, message: Probe) -> None:
        """Fetch a probe's bundle and drop it. Raises HandoffError if the way from that AR to here does not work."""
        await self._consumer.fetch(message.ticket, PROBE_SECONDS)

    async def render(self, message: RenderRequest) -> AsyncGenerator[RenderEvent, None]:
        """The events of one image. Raises HandoffError, EngineFailed, EngineDied, DeadlineExceeded, Cancelled."""
        _check(message)
        began = time.monotonic()
        async with self.ledger.job(message.request_id, message.budget):
            engine = self.supervisor.engine
            self._work[message.request_id] = message.steps * _megapixels(message)
            try:
                with TRACING.span("render", message.traceparent) as span:
                    with TRACING.span("handoff", span.traceparent):
                        bundle = await self._consumer.fetch(message.ticket, message.budget)
                    times = {"handoff": time.monotonic() - began}
                    async with aclosing(self._paint(engine, message, bundle, times)) as events:
                        async for event in events:
                            if isinstance(event, Rendered):
                                span.phases({phase: event.times[phase] for phase in event.times if phase != "handoff"})
                                metrics.observe_stage("dit", event.times)
                            yield event
            except EngineDied as error:
                self.supervisor.report(error)
                raise
            finally:
                del self._work[message.request_id]

    async def _paint(
        self, engine: RenderEngine, message: RenderRequest, bundle: Bundle, times: dict[str, float]
    ) -> AsyncGenerator[RenderEvent, None]:
        done = False
        async with aclosing(engine.paint(_job(message), bundle)) as steps:
            async for step in steps:
                if isinstance(step, FinalImage):
                    done = self.supervisor.worked = True
                yield await self._event(message, step, times)
        if not done:
            raise EngineFailed("the engine ended without an image")

    async def _event(self, message: RenderRequest, step: RenderStep, times: dict[str, float]) -> RenderEvent:
        if isinstance(step, StepDone):
            metrics.STEPS.inc()
            self._work[message.request_id] = (step.total - step.step) * _megapixels(message)
            return Progress(step.step, step.total)
        if isinstance(step, PartialImage):
            return Preview(step.index, await self._encode(message, step.pixels))
        began = time.monotonic()
        image = await self._encode(message, step.pixels)
        width, height = message.crop
        spent = times | step.times | {"encode": time.monotonic() - began}
        return Rendered(image=image, width=width, height=height, times=spent)

    async def _encode(self, message: RenderRequest, pixels: Pixels) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(
            self._encoders,
            lambda: encode_image(
                pixels, message.crop, message.format, compression=message.compression, png_level=self._png_level
            ),
        )

    def info(self) -> StageInfo:
        """Identity and load, now."""
        return live_info(
            self._identity,
            self.supervisor,
            self.ledger,
            self._consumer.stats(),
            steps_ahead=sum(self._work.values()),
            transports=self._consumer.transports(),
        )

    async def drain(self) -> None:
        """Wait for the running jobs."""
        await self.ledger.drain()

    def close(self) -> None:
        """Give NIXL's memory and the encoder threads back."""
        self._encoders.shutdown(wait=False, cancel_futures=True)
        self._consumer.close()


def _megapixels(message: RenderRequest) -> float:
    return message.width * message.height / 2**20


def _check(message: RenderRequest) -> None:
    for side, crop, name in zip((message.width, message.height), message.crop, ("width", "height"), strict=True):
        if side % 32 or not 0 < side <= 2048:
            raise InvalidRequest(f"{name} {side} is not a multiple of 32 in 32..2048", param=name)
        if not 0 < crop <= side:
            raise InvalidRequest(f"a crop of {crop} does not fit into a {name} of {side}", param="crop")
    if not 1 <= message.steps <= 1000:
        raise InvalidRequest(f"{message.steps} steps are not in 1..1000", param="steps")


def _job(message: RenderRequest) -> RenderJob:
    return RenderJob(
        request_id=message.request_id,
        prompt=message.prompt,
        negative_prompt=message.negative_prompt,
        width=message.width,
        height=message.height,
        steps=message.steps,
        guidance=message.guidance,
        seed=message.seed,
        previews=message.previews,
    )
