"""A checked request, fully decided: sizes, seeds, steps, and one job an image."""

import secrets
from dataclasses import dataclass

from services.gateway.errors import ApiError, bad_request
from services.gateway.jobs import Job
from services.gateway.requests import MAX_SEED, EditFields, PaintRequest
from services.gateway.settings import GatewaySettings
from services.gateway.sizes import Size, canonical, parse_size
from services.wire.gateway_to_dit import ImageFormat

DRAWN_SEEDS = 2**32  # a drawn seed survives JSON readers that know doubles only
COMPRESSION = {"jpeg": 95, "webp": 90}  # when the caller says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for, and the jobs that make it. `edit` picks the names of the stream's events."""

    jobs: list[Job]
    size: str
    quality: str
    format: ImageFormat
    as_url: bool
    stream: bool
    edit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose request this is. deadline: event-loop time."""

    request_id: str
    tenant: str
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InputImage:
    """An edit's image: RGB PNG bytes, and (width, height) as the caller sees it."""

    png: bytes
    size: Size


def check_support(asked: PaintRequest, settings: GatewaySettings) -> None:
    """Refuse what this model or this gateway cannot do, before anything costs time. Raises ApiError 400 or 404."""
    if asked.model is not None and asked.model not in {settings.model, *settings.model_aliases}:
        message = f"The model {asked.model[:80]!r} does not exist here. Served: {settings.model}."
        raise ApiError(404, message, code="model_not_found", param="model")
    if asked.background == "transparent":
        raise bad_request("GLM-Image paints opaque RGB images.", "background", "unsupported_parameter")
    if isinstance(asked, EditFields) and asked.input_fidelity == "high":
        raise bad_request("GLM-Image has one input fidelity.", "input_fidelity", "unsupported_parameter")
    if asked.response_format == "url" and not settings.storage_url:
        message = "This gateway stores no results: ask for b64_json."
        raise bad_request(message, "response_format", "unsupported_parameter")
    if asked.response_format == "url" and asked.stream:
        message = "A stream carries base64 only: leave response_format out."
        raise bad_request(message, "response_format", "unsupported_parameter")
    if asked.partial_images and not asked.stream:
        raise bad_request("Partial images come in a stream: set stream to true.", "partial_images")
    if (asked.negative_prompt or "").strip() and guidance_of(asked, settings) <= 1:
        message = "A negative prompt has no effect at a guidance of 1 or less: raise guidance_scale, or leave it out."
        raise bad_request(message, "negative_prompt")
    if asked.num_inference_steps is not None and asked.num_inference_steps > settings.max_steps:
        message = f"At most {settings.max_steps} denoising steps are allowed."
        raise bad_request(message, "num_inference_steps", "integer_above_max_value")


def guidance_of(asked: PaintRequest, settings: GatewaySettings) -> float:
    """The classifier-free guidance scale of a request."""
    return settings.default_guidance if asked.guidance_scale is None else asked.guidance_scale


def decide(asked: PaintRequest, settings: GatewaySettings, caller: Caller, image: InputImage | None = None) -> Order:
    """The order for `asked`. Raises ApiError 400 that names the field."""
    size = parse_size(asked.size, image.size if image else None)
    steps, quality = _steps(asked, settings)
    width, height = canonical(size)
    first = asked.seed if asked.seed is not None else secrets.randbelow(DRAWN_SEEDS)
    form = asked.output_format or "png"
    unique = f"{caller.request_id}-{secrets.token_hex(4)}"
    jobs = [
        Job(
            request_id=f"{unique}-{index}",
            tenant=caller.tenant,
            prompt=asked.prompt,
            width=width,
            height=height,
            crop=size,
            steps=steps,
            guidance=guidance_of(asked, settings),
            seed=(first + index) % (MAX_SEED + 1),
            seed_given=asked.seed is not None,
            deadline=caller.deadline,
            negative_prompt=asked.negative_prompt or None,
            format=form,
            compression=asked.output_compression if asked.output_compression is not None else COMPRESSION.get(form),
            previews=asked.partial_images or 0,
            image=image.png if image else None,
        )
        for index in range(asked.n or 1)
    ]
    return Order(
        jobs=jobs,
        size=f"{size[0]}x{size[1]}",
        quality=quality,
        format=form,
        as_url=asked.response_format == "url",
        stream=bool(asked.stream),
        edit=image is not None,
    )


def _steps(asked: PaintRequest, settings: GatewaySettings) -> tuple[int, str]:
    """Denoising steps, and the name of the quality that this amounts to."""
    named = asked.quality if asked.quality not in {None, "auto"} else None
    if asked.num_inference_steps is not None:
        steps = asked.num_inference_steps
    elif named is not None:
        steps = settings.quality_steps.get(named, settings.default_steps)
    else:
        steps = settings.default_steps
    return steps, named or _nearest_quality(steps, settings)


def _nearest_quality(steps: int, settings: GatewaySettings) -> str:
    reached = [name for name in ("low", "medium", "high") if settings.quality_steps.get(name, 1) <= steps]
    return reached[-1] if reached else "low"
