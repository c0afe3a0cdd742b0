"""What diffusers paints from the same tokens and the same noise."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import diffusers.pipelines.glm_image.pipeline_glm_image as reference
import numpy as np
import torch
from PIL import Image

from services.omni.dit_prompt import upsampled
from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, RenderJob
from services.wire.geometry import large_grid


@contextmanager
def diffusers_pipeline(checkpoint: Path, dtype: torch.dtype) -> Iterator[Any]:
    """diffusers' GlmImagePipeline. Its VAE runs in float32, as ours does on a CPU."""
    stock = reference.retrieve_timesteps

    def restored(scheduler: Any, steps: int, device: Any, timesteps: Any, sigmas: Any, **more: Any) -> Any:
        # diffusers 0.40's scheduler overwrites the timesteps that the pipeline asked for (vLLM-Omni restores them too).
        stock(scheduler, steps, device, timesteps, sigmas, **more)
        scheduler.timesteps = torch.as_tensor(timesteps, dtype=torch.float32)
        return scheduler.timesteps, len(timesteps)

    reference.retrieve_timesteps = restored
    pipeline = reference.GlmImagePipeline.from_pretrained(checkpoint, torch_dtype=dtype)
    pipeline.vae.to(torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    try:
        yield pipeline
    finally:
        reference.retrieve_timesteps = stock


def expected(oracle: Any, render: RenderJob, bundle: dict[str, torch.Tensor], **more: Any) -> torch.Tensor:
    if CONDITION_IMAGE in bundle:
        pixels = bundle[CONDITION_IMAGE]
        more["image"] = [Image.fromarray(pixels.numpy())]
        more["prior_token_image_ids"] = [bundle[CONDITION_TOKENS].long()]
        more["source_image_grid_thw"] = [torch.tensor([[1, pixels.shape[0] // 16, pixels.shape[1] // 16]])]
    tokens = upsampled(bundle["prior_token_ids"], large_grid(render.width, render.height))
    painted = oracle(
        render.prompt,
        height=render.height,
        width=render.width,
        num_inference_steps=render.steps,
        guidance_scale=render.guidance,
        generator=torch.Generator().manual_seed(render.seed),
        prior_token_ids=tokens[None],
        **more,
    )
    return torch.from_numpy(np.asarray(painted.images[0]).astype(np.int32))
