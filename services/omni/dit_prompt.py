"""What the DiT engine is asked: one job and its bundle as vLLM-Omni's prompt and sampling parameters."""

import math
from typing import TYPE_CHECKING, Any

import torch

from services.omni.glm_pipeline_request import PREVIEWS, check_tokens
from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, PRIOR_TOKENS, RenderJob
from services.wire.errors import InvalidPriors
from services.wire.geometry import LATENT_PATCH, Grid, large_grid

if TYPE_CHECKING:
    from services.serving.engine import Bundle


def render_prompt(job: RenderJob, bundle: "Bundle") -> dict[str, Any]:
    """The prompt of one job, in the shape of vLLM-Omni's `ar2diffusion`.

    Raises InvalidPriors unless the bundle holds the large grid's tokens, and for an edit the condition image's.
    """
    grid = large_grid(job.width, job.height)
    priors = _tokens(bundle, PRIOR_TOKENS, grid.tokens)
    prompt: dict[str, Any] = {
        "prompt": job.prompt,
        "negative_prompt": job.negative_prompt,
        "width": job.width,
        "height": job.height,
        "extra": {"prior_token_ids": upsampled(priors, grid)},
    }
    if CONDITION_IMAGE in bundle:
        pixels, tokens = condition(bundle)
        prompt["extra"]["prior_token_image_ids"] = [tokens]
        prompt["additional_information"] = {"preprocessed_image": pixels}
    return prompt


def sampling_params(job: RenderJob) -> Any:
    """One job's OmniDiffusionSamplingParams. The noise is drawn on the CPU, so a seed means one image on any device."""
    from vllm_omni.inputs.data import OmniDiffusionSamplingParams

    return OmniDiffusionSamplingParams(
        seed=job.seed,
        generator_device="cpu",
        num_inference_steps=job.steps,
        guidance_scale=job.guidance,
        guidance_scale_provided=True,
        width=job.width,
        height=job.height,
        extra_args={PREVIEWS: job.previews},
    )


def upsampled(tokens: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Tokens of a grid as int64 tokens of the grid twice as fine, each one four times (nearest)."""
    fine = tokens.reshape(grid.rows, grid.columns).repeat_interleave(2, 0).repeat_interleave(2, 1)
    return fine.reshape(-1).long()


def condition(bundle: "Bundle") -> tuple[torch.Tensor, torch.Tensor]:
    """The condition image as float32 [3, height, width] in -1..1, and its codes, int64, one a 16 x 16 patch.

    The image is resized to the codes' grid if it does not have its size, as diffusers resizes to multiples of 16.
    """
    from diffusers.image_processor import VaeImageProcessor
    from PIL import Image

    if CONDITION_TOKENS not in bundle:
        raise InvalidPriors(f"{CONDITION_TOKENS}: missing; an edit needs the codes of its condition image")
    image = bundle[CONDITION_IMAGE]
    if image.ndim != 3 or image.shape[-1] != 3 or not image.numel() or image.dtype != torch.uint8:
        raise InvalidPriors(
            f"{CONDITION_IMAGE}: {image.dtype} {tuple(image.shape)} where uint8 [height, width, 3] is due"
        )
    tokens = bundle[CONDITION_TOKENS].reshape(-1)
    grid = condition_grid(image.shape[0], image.shape[1], tokens.numel())
    codes = _tokens(bundle, CONDITION_TOKENS, tokens.numel())
    height, width = grid.rows * LATENT_PATCH, grid.columns * LATENT_PATCH
    picture = Image.fromarray(image.numpy())
    pixels: torch.Tensor = VaeImageProcessor(vae_scale_factor=8).preprocess(picture, height=height, width=width)[0]
    return pixels, codes.long()


def condition_grid(height: int, width: int, tokens: int) -> Grid:
    """The grid of `tokens` patches whose shape is nearest to an image of height x width pixels.

    Raises InvalidPriors if no grid of that many tokens comes within a tenth of the image's aspect.
    """
    pairs = [(rows, tokens // rows) for rows in range(1, tokens + 1) if tokens % rows == 0]
    aspect = math.log(height / width)
    best = min(pairs, key=lambda pair: abs(math.log(pair[0] / pair[1]) - aspect), default=None)
    if best is None or abs(math.log(best[0] / best[1]) - aspect) > 0.1:
        raise InvalidPriors(f"{CONDITION_TOKENS}: {tokens} codes make no grid for a {width}x{height} image")
    return Grid(*best)


def _tokens(bundle: "Bundle", name: str, expected: int) -> torch.Tensor:
    if name not in bundle:
        raise InvalidPriors(f"{name}: missing in the bundle")
    tokens = bundle[name].reshape(-1)
    try:
        check_tokens(tokens, expected, name)
    except ValueError as error:
        raise InvalidPriors(str(error)) from error
    return tokens
