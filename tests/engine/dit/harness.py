"""The DiT pipeline under vLLM-Omni's real scheduler and runner, in this process and without an event loop."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from vllm_omni.diffusion.data import OmniDiffusionConfig
from vllm_omni.diffusion.executor.uniproc_executor import UniProcDiffusionExecutor
from vllm_omni.diffusion.models.glm_image.pipeline_glm_image import GlmImagePipeline
from vllm_omni.diffusion.request import OmniDiffusionRequest
from vllm_omni.diffusion.sched.step_scheduler import StepScheduler

from services.omni.dit_prompt import render_prompt, sampling_params
from services.omni.glm_pipeline import get_glm_image_pre_process_func
from services.omni.register import DIT_ARCH, register
from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, PRIOR_TOKENS, RenderJob

_ids = itertools.count()


def priors(width: int, height: int, seed: int = 5) -> torch.Tensor:
    """Random large-grid tokens for a size in pixels, int32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 16384, ((width // 32) * (height // 32),), generator=generator, dtype=torch.int32)


def job(**changes: Any) -> RenderJob:
    """A small job under a fresh id: 0.30's step scheduler ends a new request that reuses the id of the last one."""
    fields: dict[str, Any] = {"prompt": "a cat", "width": 128, "height": 128, "steps": 4, "guidance": 1.5, "seed": 7}
    return RenderJob(**({"request_id": f"job-{next(_ids)}"} | fields | changes))


def bundle_for(render: RenderJob, seed: int = 5) -> dict[str, torch.Tensor]:
    return {PRIOR_TOKENS: priors(render.width, render.height, seed)}


def edit_bundle(render: RenderJob, side: int = 64, seed: int = 5) -> dict[str, torch.Tensor]:
    """A bundle with a random square condition image, and a code for each 16 x 16 patch of it."""
    generator = torch.Generator().manual_seed(seed + 1)
    pixels = torch.randint(0, 256, (side, side, 3), generator=generator, dtype=torch.uint8)
    codes = torch.randint(0, 16384, ((side // 32) ** 2,), generator=generator, dtype=torch.int32)
    fine = codes.reshape(side // 32, -1).repeat_interleave(2, 0).repeat_interleave(2, 1).reshape(-1)
    return {**bundle_for(render, seed), CONDITION_IMAGE: pixels, CONDITION_TOKENS: fine}


def distance(one: Any, other: Any) -> tuple[float, int]:
    """Mean and largest difference of two pictures, in 8-bit pixels."""
    difference = (torch.as_tensor(one).int() - torch.as_tensor(other).int()).abs()
    return difference.double().mean().item(), int(difference.max())


def assert_near(one: Any, other: Any, mean: float = 0.01, largest: int = 1) -> None:
    """The same picture but for rounding: on a CPU, oneDNN's float32 sums depend on the number of rows."""
    found = distance(one, other)
    assert found[0] <= mean and found[1] <= largest, found


@dataclass
class Painted:
    """What a request said: (step, pixels or None) in order, and its last output."""

    frames: list[tuple[int, torch.Tensor | None]] = field(default_factory=list)
    last: Any = None

    @property
    def pixels(self) -> torch.Tensor:
        found = self.frames[-1][1]
        assert found is not None, self.last
        return found


class Stepper:
    """One loaded pipeline. `paint` runs requests to their ends; `begin` and `step` give every step away."""

    def __init__(self, checkpoint: Path, dtype: torch.dtype) -> None:
        register()
        self.config = OmniDiffusionConfig.from_kwargs(
            model=str(checkpoint),
            model_class_name=DIT_ARCH,
            dtype=dtype,
            enforce_eager=True,
            max_num_seqs=4,
            step_execution=True,
            streaming_output=True,
        )
        self.config.enrich_config()
        self.config.model_class_name = DIT_ARCH
        self._executor = UniProcDiffusionExecutor(self.config)
        self.runner: Any = self._executor.driver_worker.worker.model_runner
        self.pipeline: Any = self.runner.pipeline
        self._fold = get_glm_image_pre_process_func(self.config)
        self._reset()

    def _reset(self) -> None:
        self.scheduler = StepScheduler()
        self.scheduler.initialize(self.config)
        self.painted: dict[str, Painted] = {}

    def request(self, render: RenderJob, bundle: dict[str, torch.Tensor]) -> OmniDiffusionRequest:
        prompt = render_prompt(render, bundle)
        return self._fold(OmniDiffusionRequest(prompt, sampling_params(render), render.request_id))

    def begin(self, render: RenderJob, bundle: dict[str, torch.Tensor] | None = None) -> Painted:
        self.scheduler.add_request(self.request(render, bundle_for(render) if bundle is None else bundle))
        self.painted[render.request_id] = Painted()
        return self.painted[render.request_id]

    def step(self) -> list[str]:
        """One turn of scheduler and runner; the ids that took part."""
        turn = self.scheduler.schedule()
        found = self.runner.execute_stepwise(turn)
        finished = self.scheduler.update_from_output(turn, found)
        for request_id in turn.scheduled_request_ids:
            self.painted[request_id].last = result = found[request_id].result
            if result.error is None:
                self.painted[request_id].frames.append((result.output["step"], result.output["pixels"]))
        for request_id in finished:
            self.scheduler.pop_request_state(request_id)
        return list(turn.scheduled_request_ids)

    def finish(self) -> None:
        while self.scheduler.has_requests():
            self.step()

    def paint(self, render: RenderJob, bundle: dict[str, torch.Tensor] | None = None) -> Painted:
        painted = self.begin(render, bundle)
        self.finish()
        return painted

    @contextmanager
    def joined_guidance(self) -> Iterator[None]:
        self.pipeline.join_guidance = True
        try:
            yield
        finally:
            self.pipeline.join_guidance = False

    def paint_stock(self, render: RenderJob) -> torch.Tensor:
        """A text-to-image job through upstream's own `forward`, none of whose methods is overridden then."""
        request = self.request(render, bundle_for(render))
        request.sampling_params.guidance_scale = render.guidance
        pipeline, ours, rope = self.pipeline, type(self.pipeline), self.pipeline.transformer.rope
        pipeline.__class__ = GlmImagePipeline
        pipeline.transformer.rope = pipeline.transformer.prepare.rope = rope.rope
        try:
            found = self.runner._execute_request_list(
                [request],
                od_config=self.config,
                allow_single_output=True,
                require_request_batch_support=False,
                record_name="stock",
            )
        finally:
            pipeline.__class__ = ours
            pipeline.transformer.rope = pipeline.transformer.prepare.rope = rope
        output = found.runner_outputs[0].result.output
        image = pipeline.image_processor.postprocess(output, output_type="pil")[0]
        return torch.from_numpy(np.array(image))

    def close(self) -> None:
        self._executor.shutdown()
