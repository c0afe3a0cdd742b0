"""Stage 1 of the simulator: a mosaic of the prior tokens, one flat square of 32 pixels a token."""

import time
from collections.abc import AsyncGenerator, Callable

import numpy as np

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
from services.serving.settings import load_settings
from services.sim.faults import Faults
from services.sim.life import SimEngine, simulated
from services.sim.settings import SimSettings
from services.wire.errors import EngineFailed
from services.wire.geometry import NUM_PRIOR_CODES, PRIOR_PATCH, large_grid
from services.wire.info import StageInfo

PRIMES = (40503, 2654435761, 97)  # odd multipliers that spread neighbouring tokens over all colours


def mosaic(job: RenderJob, bundle: Bundle) -> Pixels:
    """uint8 [height, width, 3]: always the same for the same tokens and seed, so that a test can tell a right image."""
    rows, columns = large_grid(job.width, job.height)
    tokens = bundle[PRIOR_TOKENS].numpy().astype(np.uint64)
    if tokens.size != rows * columns or int(tokens.max()) >= NUM_PRIOR_CODES:
        raise EngineFailed(f"{tokens.size} prior tokens for a grid of {rows}x{columns}, or one is out of range")
    mixed = tokens.reshape(rows, columns) + np.uint64(job.seed % 2**31)
    channels = [(mixed * np.uint64(prime) >> np.uint64(3)) & np.uint64(255) for prime in PRIMES]
    small = np.stack(channels, axis=-1).astype(np.uint8)
    return small.repeat(PRIOR_PATCH, axis=0).repeat(PRIOR_PATCH, axis=1)


class SimRenderEngine(SimEngine):
    """Paints one image at a time, in `step_seconds` a step and megapixel (at least one megapixel)."""

    async def paint(self, job: RenderJob, bundle: Bundle) -> AsyncGenerator[RenderStep, None]:
        """See `serving.engine.RenderEngine`."""
        asked = time.monotonic()
        async with self.running(job.request_id), self._batch(1):
            began = time.monotonic()
            await self.faults.in_job(self.core)
            pixels = mosaic(job, bundle)
            shown = {(index + 1) * job.steps // (job.previews + 1): index for index in range(job.previews)}
            pace = self.settings.step_seconds * max(1.0, job.width * job.height / 2**20)
            for step in range(1, job.steps + 1):
                await self.core.beat()
                await self.core.pause(pace)
                self.alive()
                yield StepDone(step, job.steps)
                if step in shown:
                    yield PartialImage(shown[step], pixels // 2 + 64)
            painted = time.monotonic()
            await self.core.pause(self.settings.vae_seconds)
            times = {"queue": began - asked, "denoise": painted - began, "vae": time.monotonic() - painted}
            yield FinalImage(pixels, times)


def simulated_dit() -> tuple[Callable[[], RenderEngine], StageInfo]:
    """What builds the DiT engines of one service, and what that service says of itself."""
    settings = load_settings(SimSettings)
    faults = Faults(settings)
    return lambda: SimRenderEngine(settings, faults), simulated("dit", 1)
