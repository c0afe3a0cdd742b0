"""Stage 0 of the simulator: valid tokens, drawn from the prompt and the seed."""

import hashlib
import time
from collections.abc import Callable

import numpy as np
import torch

from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, PRIOR_TOKENS, PriorEngine, PriorJob, PriorResult
from services.serving.settings import load_settings
from services.sim.faults import Faults
from services.sim.life import SimEngine, simulated
from services.sim.settings import SimSettings
from services.wire.errors import InvalidPriors
from services.wire.geometry import NUM_PRIOR_CODES, large_grid, prior_budget
from services.wire.info import StageInfo

BEATS = 4  # signs of life of the core in one prior
CONDITION_SIDE = 64  # pixels a side that the simulator pretends a condition image has


def tokens_for(job: PriorJob) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """The large grid's tokens, int32 [rows * columns], always the same for one prompt, seed and size."""
    text = f"{job.prompt}|{job.seed}|{job.width}x{job.height}".encode()
    digest = hashlib.sha256(text + (job.image or b"")).digest()
    draws = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return draws.integers(0, NUM_PRIOR_CODES, large_grid(job.width, job.height).tokens, dtype=np.int32)


class SimPriorEngine(SimEngine):
    """Writes `ar_batch` priors at once; each other job in the batch makes all of them a little slower."""

    async def write(self, job: PriorJob) -> PriorResult:
        """See `serving.engine.PriorEngine`."""
        async with self.running(job.request_id), self._batch(self.settings.ar_batch):
            await self.faults.in_job(self.core)
            pace = 1 + self.settings.ar_batch_cost * (len(self) - 1)
            began = time.monotonic()
            for beat in range(BEATS):
                await self.core.beat()
                self.alive()
                due = began + self.settings.ar_seconds * pace * (beat + 1) / BEATS
                await self.core.pause(due - time.monotonic())
            if self.faults.invalid():
                raise InvalidPriors(f"simulated: token {NUM_PRIOR_CODES} is not in 0..{NUM_PRIOR_CODES - 1}")
        return self._result(job)

    def _result(self, job: PriorJob) -> PriorResult:
        bundle = {PRIOR_TOKENS: torch.from_numpy(tokens_for(job))}
        condition = 0
        if job.image is not None:
            condition = (CONDITION_SIDE // 16) ** 2
            bundle[CONDITION_TOKENS] = torch.zeros(condition, dtype=torch.int32)
            bundle[CONDITION_IMAGE] = torch.zeros((CONDITION_SIDE, CONDITION_SIDE, 3), dtype=torch.uint8)
        return PriorResult(
            bundle=bundle,
            text_tokens=len(job.prompt.split()) + 1,
            image_tokens=condition,
            prior_tokens=prior_budget(job.width, job.height, edit=job.image is not None),
        )


def simulated_ar() -> tuple[Callable[[], PriorEngine], StageInfo]:
    """What builds the AR engines of one service, and what that service says of itself."""
    settings = load_settings(SimSettings)
    faults = Faults(settings)
    return lambda: SimPriorEngine(settings, faults), simulated("ar", settings.ar_batch)
