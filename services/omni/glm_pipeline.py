"""GLM-Image's DiT pipeline, mended and taught to run step by step inside vLLM-Omni 0.30.

A subclass of upstream's pipeline: weights, encoders and the transformer are upstream's; `docs/pipeline.md` lists each
override with its reason and the upstream issue that would let it go.
"""

import copy
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from vllm_omni.diffusion.cancellation import check_request_cancellation
from vllm_omni.diffusion.data import DiffusionOutput
from vllm_omni.diffusion.distributed.parallel_state import get_classifier_free_guidance_world_size
from vllm_omni.diffusion.models.glm_image.pipeline_glm_image import (
    GlmImagePipeline,
    calculate_shift,
    retrieve_latents,
    retrieve_timesteps,
)
from vllm_omni.diffusion.request import OmniDiffusionRequest
from vllm_omni.diffusion.worker.input_batch import InputBatch
from vllm_omni.diffusion.worker.utils import StepRequestState
from vllm_omni.platforms import current_omni_platform

from services.omni.glm_pipeline_frame import unwrap_frames
from services.omni.glm_pipeline_passes import DenoiseInputs, Pass, group_passes, take_rows
from services.omni.glm_pipeline_request import RenderInputs, fold_guidance, preview_steps
from services.omni.glm_pipeline_rope import RememberedRope

ARCHITECTURE = "DiptychGlmImagePipeline"
JOIN_GUIDANCE = "diptych_join_guidance"  # additional_config: both guidance passes as one batch of two
MAX_GLYPH_SPANS, MAX_GLYPH_BYTES = 64, 2048  # quoted spans a prompt may ask the glyph encoder for, in total

# The names under which `register` tells vLLM-Omni of the two hooks.
get_glm_image_pre_process_func = fold_guidance
get_glm_image_post_process_func = unwrap_frames


class DiptychGlmImagePipeline(GlmImagePipeline):
    """`GlmImagePipeline` with step execution (diffusion/models/interface.py, `SupportsStepExecution`).

    One step is one chunk of vLLM-Omni's streaming output, so that the scheduler gets a turn, and the caller a word,
    between steps.
    """

    supports_step_execution = True
    supports_request_cancellation = True

    def __init__(self, *, od_config: Any, prefix: str = "") -> None:
        super().__init__(od_config=od_config, prefix=prefix)
        if get_classifier_free_guidance_world_size() > 1:
            raise ValueError("cfg_parallel_size: this pipeline runs both guidance passes on every rank; set it to 1")
        self.text_encoder.to(od_config.dtype)
        # Without AVX-512 a bfloat16 convolution is some 25 times slower than a float32 one.
        self.vae.to(torch.float32 if self.device.type == "cpu" else od_config.dtype)
        rope = RememberedRope(self.transformer.rope)
        self.transformer.rope = self.transformer.prepare.rope = rope
        # Only the first rank's outputs leave the workers.
        self._speaks = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        self.join_guidance = bool((od_config.additional_config or {}).get(JOIN_GUIDANCE, False))

    def get_glyph_texts(self, prompt: str | list[str]) -> list[str]:
        """The quoted spans of a prompt, up to a bound: the glyph encoder pads all spans to the longest."""
        kept: list[str] = []
        room = MAX_GLYPH_BYTES
        for span in super().get_glyph_texts(prompt)[:MAX_GLYPH_SPANS]:
            room -= len(span.encode()) + 1
            if room < 0:
                break
            kept.append(span)
        return kept

    def prepare_encode(self, state: StepRequestState, **_: Any) -> StepRequestState:
        """Everything a request needs once. Raises ValueError for a request that cannot be painted."""
        warm_up = OmniDiffusionRequest.is_dummy_run_request_id(state.request_id)
        inputs = RenderInputs.read(state.prompt, state.sampling, warm_up=warm_up)
        started = time.perf_counter()
        text = self._glyphs(inputs.text)
        negative = self._glyphs(_quoted(inputs.negative_text, self)) if inputs.guidance > 1.0 else None
        latents = self._noise(inputs, state.sampling.generator)
        state.scheduler, state.timesteps = self._schedule(inputs)
        # float32 from the start: upstream's first step promotes, and one batch cannot hold rows of two dtypes.
        state.latents = latents.float()
        state.step_index, state.chunk_num_steps, state.total_chunks = 0, 1, inputs.steps
        state.extra["glm_image"] = DenoiseInputs(
            text=text,
            negative_text=negative,
            prior=inputs.prior.to(self.device),
            target_size=torch.tensor([[inputs.height, inputs.width]], dtype=text.dtype, device=self.device),
            crop=torch.zeros((1, 2), dtype=text.dtype, device=self.device),
            guidance=inputs.guidance,
            previews=frozenset(preview_steps(inputs.steps, inputs.previews)),
            kv_cache=self._condition(inputs, text),
        )
        state.extra["started"], state.extra["vae"] = started, 0.0
        return state

    def denoise_step(
        self, input_batch: InputBatch, *, states: Sequence[StepRequestState] | None = None, **_: Any
    ) -> torch.Tensor:
        """One prediction for every row. Returns float32 [rows, channels, height/8, width/8]."""
        members = [state.extra["glm_image"] for state in states or input_batch.states]
        latents = input_batch.latents.to(self.transformer.dtype).split(1)
        timesteps = (input_batch.timesteps - 1).split(1)
        found: dict[tuple[int, bool], torch.Tensor] = {}
        for group in group_passes(members, join_guidance=self.join_guidance):
            rows = self._predict(group, members, latents, timesteps).float().split(1)
            found |= {(each.row, each.conditional): row for each, row in zip(group, rows, strict=True)}
        return take_rows([_guide(row, each, found) for row, each in enumerate(members)], range(len(members)))

    def step_scheduler(self, state: StepRequestState, noise_pred: torch.Tensor, **_: Any) -> None:
        """One Euler step of one request; at a preview step also its guess of the finished latents."""
        scheduler = state.scheduler
        state.latents = scheduler.step(noise_pred, state.current_timestep, state.latents, return_dict=False)[0]
        state.step_index += 1
        state.step_in_chunk += 1
        if state.step_index in state.extra["glm_image"].previews:
            # Flow matching: the velocity leads from here to the image in `sigma`, the noise that is left.
            state.extra["preview"] = state.latents - scheduler.sigmas[state.step_index] * noise_pred

    def post_decode(self, state: StepRequestState, **_: Any) -> DiffusionOutput:
        """What the caller hears after a step: its number, and a picture if one is due."""
        step, total = state.step_index, state.total_steps
        state.chunk_index, state.step_in_chunk = step, 0
        latents = state.latents if step == total else state.extra.pop("preview", None)
        pixels = self._decode(latents, state) if latents is not None and self._speaks else None
        finished = step == total
        now = time.perf_counter()
        vae = state.extra["vae"]
        return DiffusionOutput(
            output={"step": step, "total": total, "pixels": pixels},
            finished=finished,
            chunk_index=step - 1,
            total_chunks=total,
            stage_durations={"denoise": now - state.extra["started"] - vae, "vae": vae} if finished else {},
        )

    def forward(self, req: Any) -> DiffusionOutput:
        """A whole request in one call: vLLM-Omni's request mode, without previews."""
        state = StepRequestState(request_id=req.request_id, sampling=req.sampling_params, prompt=req.prompts[0])
        self.prepare_encode(state)
        while not state.denoise_completed:
            check_request_cancellation()
            self.step_scheduler(state, self.denoise_step(InputBatch.make_batch([state]), states=[state]))
        return self.post_decode(state)

    def _glyphs(self, text: str) -> torch.Tensor:
        """The glyph encoder's states of all quoted spans of `text`, one after another: [1, tokens, dim].

        Padding is diffusers': a token before every span if their number is even. Upstream pads by each span's own
        length, which gives other states for every span of an even number of tokens.
        """
        spans = self.get_glyph_texts(text) or [""]
        pad = self.tokenizer.pad_token_id
        ids = self.tokenizer(spans, max_length=MAX_GLYPH_BYTES, truncation=True).input_ids
        ids = [[pad] * ((len(spans) + 1) % 2) + span for span in ids]
        longest = max(map(len, ids))
        mask = torch.tensor([[1] * len(span) + [0] * (longest - len(span)) for span in ids], device=self.device)
        padded = torch.tensor([span + [pad] * (longest - len(span)) for span in ids], device=self.device)
        states = self.text_encoder(padded, attention_mask=mask).last_hidden_state
        kept = torch.cat([row[: len(span)] for row, span in zip(states, ids, strict=True)])
        return kept[None].to(self.transformer.dtype)

    def _noise(self, inputs: RenderInputs, generator: Any) -> torch.Tensor:
        noise: torch.Tensor = self.prepare_latents(
            batch_size=1,
            num_channels_latents=self.transformer.in_channels,
            height=inputs.height,
            width=inputs.width,
            dtype=self.transformer.dtype,
            device=self.device,
            generator=generator,
        )
        return noise

    def _schedule(self, inputs: RenderInputs) -> tuple[Any, torch.Tensor]:
        """A scheduler of this request's own and its timesteps; the sums are upstream's `forward`, step 5."""
        scheduler = copy.deepcopy(self.scheduler)
        config = scheduler.config
        spread = np.linspace(config.num_train_timesteps, 1.0, inputs.steps + 1)[:-1].astype(np.int64).astype(np.float32)
        mu = calculate_shift(
            inputs.prior.shape[1],
            config.get("base_image_seq_len", 256),
            config.get("base_shift", 0.25),
            config.get("max_shift", 0.75),
        )
        sigmas = (spread / config.num_train_timesteps).tolist()
        timesteps, _ = retrieve_timesteps(scheduler, inputs.steps, self.device, spread.tolist(), sigmas, mu=mu)
        # Without it the first step looks its own index up on the device: `nonzero` and `item`.
        scheduler.set_begin_index(0)
        return scheduler, timesteps

    def _condition(self, inputs: RenderInputs, text: torch.Tensor) -> Any:
        if inputs.condition_image is None or inputs.condition_tokens is None:
            return None
        if (self.parallel_config.sequence_parallel_size or 1) > 1:
            raise ValueError("sequence parallelism ignores the condition image; serve edits with tensor parallelism")
        mean, std = self._latent_statistics()
        pixels = inputs.condition_image[None].to(self.device, self.vae.dtype)
        latents = (retrieve_latents(self.vae.encode(pixels), sample_mode="argmax") - mean) / std
        cache = self.transformer.create_kv_cache()
        cache.set_mode("write")
        self.transformer(
            hidden_states=latents.to(text.dtype),
            encoder_hidden_states=text[:, :0],
            prior_token_id=inputs.condition_tokens.to(self.device),
            prior_token_drop=slice(0, 0),
            timestep=torch.zeros((1,), device=self.device),
            target_size=torch.tensor([pixels.shape[-2:]], dtype=text.dtype, device=self.device),
            crop_coords=torch.zeros((1, 2), dtype=text.dtype, device=self.device),
            kv_cache=cache,
            return_dict=False,
        )
        cache.set_mode("read")
        return cache

    def _latent_statistics(self) -> tuple[torch.Tensor, torch.Tensor]:
        config = self.vae.config
        shape = (1, config.latent_channels, 1, 1)
        mean = torch.tensor(config.latents_mean).view(shape).to(self.device, self.vae.dtype)
        return mean, torch.tensor(config.latents_std).view(shape).to(self.device, self.vae.dtype)

    def _predict(
        self,
        group: Sequence[Pass],
        members: Sequence[DenoiseInputs],
        latents: Sequence[torch.Tensor],
        timesteps: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        rows = [each.row for each in group]
        conditional = sum(each.conditional for each in group)
        prediction: torch.Tensor = self.transformer(
            hidden_states=take_rows(latents, rows),
            encoder_hidden_states=take_rows([each.text for each in group], range(len(group))),
            prior_token_id=take_rows([each.prior for each in members], rows),
            # Upstream indexes with a boolean mask, which waits for the device. A slice selects the same rows without.
            prior_token_drop=slice(conditional, None),
            timestep=take_rows(timesteps, rows),
            target_size=take_rows([each.target_size for each in members], rows),
            crop_coords=take_rows([each.crop for each in members], rows),
            kv_cache=group[0].kv_cache,
            return_dict=False,
        )[0]
        return prediction

    def _decode(self, latents: torch.Tensor, state: StepRequestState) -> torch.Tensor:
        """Latents [1, channels, h, w] as uint8 [8h, 8w, 3] on the CPU, by the sums of diffusers' VaeImageProcessor."""
        current_omni_platform.synchronize()  # or the VAE's time would hold the steps still queued on the device
        started = time.perf_counter()
        mean, std = self._latent_statistics()
        image = self.vae.decode(latents.to(self.vae.dtype) * std + mean, return_dict=False)[0]
        if not torch.isfinite(image).all():
            raise ValueError("guidance_scale: the latents are no longer finite; try a smaller guidance")
        pixels = (image[0] * 0.5 + 0.5).clamp(0, 1).permute(1, 2, 0).float().mul(255).round().to(torch.uint8).cpu()
        state.extra["vae"] += time.perf_counter() - started
        return pixels


def _quoted(text: str, pipeline: DiptychGlmImagePipeline) -> str:
    """A negative prompt for the glyph encoder, which sees quoted spans only: one without any is a span as a whole."""
    if not text or pipeline.get_glyph_texts(text):
        return text
    return '"' + text.replace('"', "") + '"'


def _guide(row: int, inputs: DenoiseInputs, found: dict[tuple[int, bool], torch.Tensor]) -> torch.Tensor:
    conditional = found[row, True]
    if inputs.negative_text is None:
        return conditional
    unconditional = found[row, False]
    return unconditional + inputs.guidance * (conditional - unconditional)
