"""The bodies that callers send, as typed models: what the OpenAPI document shows is what is checked."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

MAX_PROMPT = 32_000  # characters
MAX_IMAGES = 10
MAX_SEED = 2**63 - 1
MAX_IMAGE_URL = 20_971_520  # characters, a data URL included

Prompt = Annotated[
    str,
    Field(min_length=1, max_length=MAX_PROMPT, description="What to paint.", json_schema_extra={"pattern": r"\S"}),
]


class PaintRequest(BaseModel):
    """What generations and edits have in common. `null` is the same as absent."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, title="PaintRequest")

    prompt: Prompt
    model: str | None = Field(None, description="The served model's id or an alias; absent: the served model.")
    n: int | None = Field(None, ge=1, le=MAX_IMAGES, description="How many images: all of them or an error.")
    size: str | None = Field(
        None,
        description="`auto`, or WIDTHxHEIGHT with sides of 64 to 2048 pixels, 4:1 at most.",
        json_schema_extra={"pattern": "^(auto|[0-9]{2,4}[xX][0-9]{2,4})$"},
    )
    quality: Literal["auto", "standard", "low", "medium", "high", "hd"] | None = Field(
        None, description="Sets the number of denoising steps, unless num_inference_steps does."
    )
    response_format: Literal["b64_json", "url"] | None = Field(None, description="Default b64_json.")
    output_format: Literal["png", "jpeg", "webp"] | None = Field(None, description="Default png.")
    output_compression: int | None = Field(None, ge=0, le=100, description="Quality of jpeg and webp, 0 to 100.")
    background: Literal["auto", "opaque", "transparent"] | None = Field(
        None, description="The model paints opaque RGB: `transparent` is refused."
    )
    moderation: Literal["auto", "low"] | None = Field(None, description="Accepted, no effect.")
    style: Literal["vivid", "natural"] | None = Field(None, description="Accepted, no effect.")
    user: str | None = Field(None, description="Accepted, no effect.")
    stream: bool | None = Field(None, description="Answer with server-sent events.")
    partial_images: int | None = Field(None, ge=0, le=3, description="Partial images in a stream.")
    seed: int | None = Field(None, ge=0, le=MAX_SEED, description="Of the first image; image i has seed + i.")
    num_inference_steps: int | None = Field(None, ge=1, description="Denoising steps.")
    guidance_scale: float | None = Field(None, ge=0, le=20, description="Classifier-free guidance scale.")
    negative_prompt: str | None = Field(None, max_length=MAX_PROMPT, description="What to avoid.")

    @field_validator("prompt")
    @classmethod
    def _not_blank(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("the prompt is blank")
        return prompt


class GenerationRequest(PaintRequest):
    """`POST /v1/images/generations`."""

    model_config = ConfigDict(title="GenerationRequest")


class EditFields(PaintRequest):
    """The fields of an edit beside its image."""

    model_config = ConfigDict(title="EditFields")

    input_fidelity: Literal["high", "low"] | None = Field(None, description="`high` is refused: there is one fidelity.")


class ImageReference(BaseModel):
    """One image of a JSON edit."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    image_url: str | None = Field(None, max_length=MAX_IMAGE_URL, description="A data URL, or http(s) if enabled.")
    file_id: str | None = Field(None, description="Refused: there is no file store.")


class EditRequest(EditFields):
    """`POST /v1/images/edits` as JSON."""

    model_config = ConfigDict(title="EditRequest")

    images: list[ImageReference] = Field(min_length=1, description="Exactly one image for GLM-Image.")
