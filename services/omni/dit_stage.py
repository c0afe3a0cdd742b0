"""Stage 1 for the DiT service: prior tokens in; steps, previews and one image out."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from services.omni.checkpoint import Checkpoint
from services.omni.engine import SingleStageEngine
from services.serving.engine import FinalImage, PartialImage, RenderJob, RenderStep, StepDone
from services.wire.errors import Cancelled, EngineFailed

if TYPE_CHECKING:
    from services.omni.glm_pipeline_frame import Frame
    from services.serving.engine import Bundle, Pixels

# One denoising step is one turn of vLLM-Omni's scheduler, and one output: what `glm_pipeline` is written for.
EXECUTION = {"step_execution": True, "streaming_output": True}


class VllmDitEngine:
    """`RenderEngine` over vLLM-Omni's stage 1. Requests of one size share their forwards, up to `max_num_seqs`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine_args: Mapping[str, Any],
        platforms: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """engine_args: keys of vLLM-Omni's deploy schema for this stage."""
        self._engine = SingleStageEngine(1, str(checkpoint.path), {**engine_args, **EXECUTION}, platforms=platforms)

    async def start(self) -> None:
        """Start the engine. Raises ConfigError or EngineDied."""
        await self._engine.start()

    async def abort(self, request_id: str) -> None:
        """Stop this request: its `paint` raises Cancelled. Unknown ones are no error."""
        await self._engine.abort(request_id)

    def stalled(self) -> float:
        """Seconds without an output while there is work."""
        return self._engine.stalled()

    async def check_health(self) -> None:
        """Raise EngineDied when the engine is not there any more."""
        await self._engine.check_health()

    async def stop(self) -> None:
        """Stop the engine; `start` may be called again."""
        await self._engine.stop()

    async def paint(self, job: RenderJob, bundle: "Bundle") -> AsyncGenerator[RenderStep, None]:
        """The steps, partial images and the image of `job`, painted from the bundle of the AR stage.

        A run of n steps has room for n - 1 previews; a job that wants more gets fewer. Closing the iterator aborts the
        job within one step. Times of the image: seconds `queue`, `denoise`, `vae` (of all its pictures).

        Raises:
            InvalidPriors: The bundle's tokens are of a wrong count or outside the codebook; the engine never saw them.
            EngineFailed: The engine could not paint this job and lives on.
            Cancelled, EngineDied: As the engine says.
        """
        from services.omni.dit_prompt import render_prompt, sampling_params

        previews, image = 0, None
        outputs = self._engine.generate(render_prompt(job, bundle), sampling_params(job), job.request_id)
        async with aclosing(outputs):
            async for output in outputs:
                frame = _frame(output)
                if frame is None:
                    continue
                yield StepDone(frame.step, frame.total)
                if frame.pixels is None:
                    continue
                if frame.step == frame.total:
                    image = FinalImage(_pixels(frame), _times(output))
                    continue
                yield PartialImage(previews, _pixels(frame))
                previews += 1
        # Only now: a caller who leaves with the image in hand must not look to vLLM-Omni like one who gave up.
        if image is None:
            raise Cancelled(f"request {job.request_id} ended before its last step")
        yield image


def _frame(output: Any) -> "Frame | None":
    from services.omni.glm_pipeline_frame import Frame

    frame = output.images[0] if output.images else None
    if frame is not None and not isinstance(frame, Frame):
        raise EngineFailed(
            f"the DiT pipeline answered with {type(frame).__name__}; is {__name__} serving another model?"
        )
    return frame


def _pixels(frame: "Frame") -> "Pixels":
    if frame.pixels is None:
        raise EngineFailed("the DiT pipeline sent a picture without pixels")
    pixels: Pixels = frame.pixels.numpy()
    return pixels


def _times(output: Any) -> dict[str, float]:
    durations = output.stage_durations
    queue = float(output.metrics.get("scheduler_queue_wait_ms", 0.0)) / 1000
    return {"queue": queue, "denoise": durations.get("denoise", 0.0), "vae": durations.get("vae", 0.0)}
