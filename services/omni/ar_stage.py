"""Stage 0 for the AR service: a prompt in, prior tokens out."""

import asyncio
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from typing import Any

from services.omni.checkpoint import Checkpoint
from services.omni.condition_image import ConditionImage, read_condition_image
from services.omni.engine import SingleStageEngine
from services.omni.prior_prompt import PriorPrompt, PromptWriter
from services.omni.prior_tokens import large_grid_tokens
from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, PRIOR_TOKENS, PriorJob, PriorResult
from services.wire.errors import Cancelled, ConfigError, EngineDied, EngineFailed, InvalidRequest
from services.wire.geometry import IMAGE_END, prior_budget

# Under an edit a prompt must be prefilled whole: the codes of its image come with that one step. No two condition
# images are the same to the engine and prompts hardly share a beginning, so its caches would only hold memory.
ENGINE_DEFAULTS = {"enable_chunked_prefill": False, "enable_prefix_caching": False, "mm_processor_cache_gb": 0}
ABORT_SECONDS = 10.0
# The model card's sampling; a stage's `default_sampling_params` may say otherwise.
SAMPLING = {"temperature": 0.9, "top_p": 0.75, "top_k": 16512}


class VllmArEngine:
    """`PriorEngine` over vLLM-Omni's stage 0. Requests run as one batch, up to `max_num_seqs`; more of them wait."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine_args: Mapping[str, Any],
        platforms: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """engine_args: keys of vLLM-Omni's deploy schema for this stage; `max_model_len` bounds prompt and priors."""
        self._checkpoint = checkpoint
        self._engine = SingleStageEngine(
            0, str(checkpoint.path), ENGINE_DEFAULTS | dict(engine_args), platforms=platforms
        )
        defaults = engine_args.get("default_sampling_params") or {}
        self._sampling = SAMPLING | {key: defaults[key] for key in SAMPLING if key in defaults}
        self._max_tokens = int(engine_args.get("max_model_len") or checkpoint.max_positions())
        self._one_edit = asyncio.Lock()
        self._writing: dict[str, asyncio.Task[PriorResult]] = {}
        self._preparing: ThreadPoolExecutor | None = None
        self._writer: PromptWriter | None = None

    async def start(self) -> None:
        """Load the processor and start the engine. Raises ConfigError or EngineDied."""
        if self._max_tokens > (most := self._checkpoint.max_positions()):
            raise ConfigError(f"max_model_len is {self._max_tokens}: the model has positions for {most} tokens")
        if self._preparing is None:
            self._preparing = ThreadPoolExecutor(1, thread_name_prefix="ar-prompt")
        loop = asyncio.get_running_loop()
        self._writer = await loop.run_in_executor(self._preparing, PromptWriter.of, self._checkpoint.path)
        await self._engine.start()

    async def abort(self, request_id: str) -> None:
        """Stop this request, wherever it is: its `write` raises Cancelled. Unknown ones are no error."""
        task = self._writing.get(request_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=ABORT_SECONDS)

    def stalled(self) -> float:
        """Seconds without an output while there is work."""
        return self._engine.stalled()

    async def check_health(self) -> None:
        """Raise EngineDied when the engine is not there any more."""
        await self._engine.check_health()

    async def stop(self) -> None:
        """Stop the engine; `start` may be called again."""
        if self._preparing is not None:
            self._preparing.shutdown(wait=False, cancel_futures=True)
            self._preparing = None
        await self._engine.stop()

    async def write(self, job: PriorJob) -> PriorResult:
        """The prior tokens of `job`, and what the DiT needs of its condition image.

        Raises:
            InvalidRequest: The prompt is too long for the stage, or the condition image unusable.
            InvalidPriors: The model wrote a wrong number of tokens, or one that is no code.
            Cancelled: `abort` was called for this request.
            EngineFailed, EngineDied: As the engine says.
        """
        if job.request_id in self._writing:
            raise EngineFailed(f"request {job.request_id} runs already")
        task = self._writing[job.request_id] = asyncio.create_task(self._write(job))
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Cancelled(f"request {job.request_id} was aborted") from None
        finally:
            del self._writing[job.request_id]

    async def _write(self, job: PriorJob) -> PriorResult:
        if self._preparing is None:
            raise EngineDied("the AR stage is not started")
        prompt, image = await asyncio.get_running_loop().run_in_executor(self._preparing, self._prepare, job)
        token_ids, codes = await self._run(job, prompt, image)
        bundle = {PRIOR_TOKENS: large_grid_tokens(token_ids, job.width, job.height, edit=image is not None)}
        if image is not None:
            bundle[CONDITION_IMAGE] = image.pixels()
            bundle[CONDITION_TOKENS] = _condition_tokens(codes, image)
        return PriorResult(
            bundle=bundle,
            text_tokens=prompt.text_tokens,
            image_tokens=image.ar_tokens if image is not None else 0,
            prior_tokens=len(token_ids),
        )

    def _prepare(self, job: PriorJob) -> tuple[PriorPrompt, ConditionImage | None]:
        if self._writer is None:
            raise EngineFailed("the AR stage is not started")
        image = None if job.image is None else read_condition_image(job.image, self._writer.image_processor)
        prompt = self._writer.write(job.prompt, job.width, job.height, edit=image is not None)
        placeholders = 0 if image is None else image.ar_tokens - 1
        room = self._max_tokens - placeholders - prior_budget(job.width, job.height, edit=image is not None)
        if len(prompt.token_ids) > room:
            raise InvalidRequest(
                f"the prompt takes {len(prompt.token_ids)} tokens; at {job.width}x{job.height}"
                f"{' with this image' if image else ''} the model has room for {max(room, 0)}",
                param="prompt",
            )
        return prompt, image

    async def _run(self, job: PriorJob, prompt: PriorPrompt, image: ConditionImage | None) -> tuple[list[int], Any]:
        token_ids: list[int] = []
        codes: Any = None
        async with AsyncExitStack() as turn:
            # The model keeps the codes of one condition image between its encoder and its forward pass, so only
            # one edit may be before its first token. From then on edits are like any other request.
            if image is not None:
                await turn.enter_async_context(self._one_edit)
            request = _request(job, prompt, image)
            async with aclosing(self._engine.generate(request, self._sampling_params(job), job.request_id)) as outputs:
                async for output in outputs:
                    # Later outputs may carry the codes of the next edit.
                    codes = _prior_image(output) if codes is None and not token_ids else codes
                    token_ids += output.outputs[0].token_ids
                    if token_ids:
                        await turn.aclose()
        return token_ids, codes

    def _sampling_params(self, job: PriorJob) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            **self._sampling,
            seed=job.seed,
            max_tokens=prior_budget(job.width, job.height, edit=job.image is not None) - 1,
            stop_token_ids=[IMAGE_END],
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY if job.image is None else RequestOutputKind.DELTA,
            # The runner lays out the positions of the grids by these; the prompt's own are not enough.
            extra_args={"target_h": job.height, "target_w": job.width},
        )


def _request(job: PriorJob, prompt: PriorPrompt, image: ConditionImage | None) -> dict[str, Any]:
    request: dict[str, Any] = {
        "prompt_token_ids": prompt.token_ids,
        "modalities": ["image"],
        "mm_processor_kwargs": {"target_h": job.height, "target_w": job.width},
    }
    if image is not None:
        request["modalities"] = ["img2img"]
        request["multi_modal_data"] = {"image": image.image}
        # A repeated uuid would hit the encoder cache, which answers with another image's codes, or none.
        request["multi_modal_uuids"] = {"image": [uuid.uuid4().hex]}
    return request


def _prior_image(output: Any) -> Any:
    found = getattr(output, "multimodal_output", None) or {}
    return (found.get("ids") or {}).get("prior_image")


def _condition_tokens(codes: Any, image: ConditionImage) -> Any:
    import torch

    flat = torch.as_tensor(codes[0] if isinstance(codes, list) else codes) if codes is not None else torch.empty(0)
    if flat.numel() != image.codes:
        raise EngineFailed(f"the AR stage gave {flat.numel()} codes for a condition image of {image.codes}")
    return flat.reshape(-1).to(torch.int32)
