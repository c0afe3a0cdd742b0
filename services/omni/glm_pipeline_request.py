"""What one render asks of the pipeline: read from the request, checked, before any of it reaches a device.

The prompt is the dict that vLLM-Omni's `ar2diffusion` builds (model_executor/stage_input_processors/glm_image.py), so
the pipeline also runs behind its own AR stage. Numbers that differ per request travel in `extra_args`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from services.wire.geometry import LATENT_PATCH, MAX_SIDE, NUM_PRIOR_CODES

GUIDANCE = "diptych_guidance"  # extra_args: the guidance scale, a float
PREVIEWS = "diptych_previews"  # extra_args: partial images wanted, an int
DEFAULT_GUIDANCE = 1.5  # of the model card
DEFAULT_STEPS = 50
MAX_STEPS = 1000  # the timesteps that the model was trained on; beyond, steps repeat


def preview_steps(total: int, wanted: int) -> tuple[int, ...]:
    """After which steps (from 1) a preview is due: evenly spread, never after the last step, which is the image itself.

    A run of `total` steps has room for `total - 1` previews; a request that wants more gets fewer.
    """
    count = max(0, min(wanted, total - 1))
    return tuple(total * (index + 1) // (count + 1) for index in range(count))


def check_tokens(tokens: torch.Tensor, expected: int, name: str) -> None:
    """Raise ValueError unless `tokens` (on the CPU) are `expected` codes in 0..16383.

    A code beyond the table is a device-side assert on CUDA: it kills the engine, not the request.
    """
    if tokens.numel() != expected:
        raise ValueError(f"{name}: {tokens.numel()} tokens where the size needs {expected}")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= NUM_PRIOR_CODES:
        raise ValueError(f"{name}: tokens span {low}..{high}, legal are 0..{NUM_PRIOR_CODES - 1}")


def fold_guidance(_config: Any) -> Callable[[Any], Any]:
    """The pre-process hook: moves what may differ within a batch out of the scheduler's batch key.

    `StepBatchSamplingParamsKey` (diffusion/sched/interface.py) holds the guidance scales and the flag that vLLM-Omni
    derives from them, so stock requests with different guidance never share a forward. Here guidance is a row's own.
    """

    def fold(request: Any) -> Any:
        sampling = request.sampling_params
        given = sampling.guidance_scale if sampling.guidance_scale_provided else DEFAULT_GUIDANCE
        sampling.extra_args.setdefault(GUIDANCE, float(given))
        sampling.guidance_scale = sampling.guidance_scale_2 = 1.0
        sampling.do_classifier_free_guidance = False
        return request

    return fold


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderInputs:
    """One render, on the CPU. prior: int64 [1, (height/16)(width/16)]; condition: float [3, h, w] in -1..1 and its
    codes, int64 [1, (h/16)(w/16)], if this is an edit. height, width: pixels."""

    text: str
    negative_text: str
    height: int
    width: int
    steps: int
    guidance: float
    previews: int
    prior: torch.Tensor
    condition_image: torch.Tensor | None = None
    condition_tokens: torch.Tensor | None = None

    @classmethod
    def read(cls, prompt: Any, sampling: Any, *, warm_up: bool) -> "RenderInputs":
        """From a request's prompt and sampling parameters. A warm-up has no AR stage before it: its priors are zeros.

        Raises ValueError that names the field: the priors (missing, count, codebook), a side, the steps.
        """
        fields: Mapping[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else prompt
        height = _side(fields.get("height") or sampling.height, "height")
        width = _side(fields.get("width") or sampling.width, "width")
        rest = fields.get("extra") or {}
        tokens = (height // LATENT_PATCH) * (width // LATENT_PATCH)
        prior = rest.get("prior_token_ids")
        if prior is None and not warm_up:
            raise ValueError("prior_token_ids: missing; the DiT paints only what the AR stage has planned")
        codes = torch.zeros(tokens, dtype=torch.long) if prior is None else _codes(prior)
        check_tokens(codes, tokens, "prior_token_ids")
        image = (fields.get("additional_information") or {}).get("preprocessed_image")
        codes_of_image = None
        if image is not None:
            codes_of_image = _codes(rest.get("prior_token_image_ids"))
            patches = (image.shape[-2] // LATENT_PATCH) * (image.shape[-1] // LATENT_PATCH)
            check_tokens(codes_of_image, patches, "prior_token_image_ids")
        return cls(
            text=fields.get("prompt") or "",
            negative_text=fields.get("negative_prompt") or "",
            height=height,
            width=width,
            steps=_steps(sampling.num_inference_steps),
            guidance=float(sampling.extra_args.get(GUIDANCE, DEFAULT_GUIDANCE)),
            previews=int(sampling.extra_args.get(PREVIEWS, 0)),
            prior=codes[None],
            condition_image=image,
            condition_tokens=None if codes_of_image is None else codes_of_image[None],
        )


def _side(pixels: Any, name: str) -> int:
    if not isinstance(pixels, int) or not 0 < pixels <= MAX_SIDE or pixels % LATENT_PATCH:
        raise ValueError(f"{name}: {pixels!r} is no multiple of {LATENT_PATCH} up to {MAX_SIDE}")
    return pixels


def _steps(count: Any) -> int:
    steps = DEFAULT_STEPS if count is None else count
    if not isinstance(steps, int) or not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"num_inference_steps: {steps!r} is not in 1..{MAX_STEPS}")
    return steps


def _codes(value: Any) -> torch.Tensor:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or (isinstance(value, list) and not value):
        raise ValueError("prior_token_image_ids: an edit needs the codes of its one condition image")
    return torch.as_tensor(value, dtype=torch.long, device="cpu").reshape(-1)
