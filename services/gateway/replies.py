"""The replies, as models for the OpenAPI document. The gateway writes them by hand: see `reply.py` and `sse.py`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")


class InputTokens(_Reply):
    """What went into the AR stage."""

    text_tokens: int
    image_tokens: int


class OutputTokens(_Reply):
    """What came out of the AR stage."""

    text_tokens: int
    image_tokens: int


class Usage(_Reply):
    """Counted by the engine, summed over the images. Output tokens are prior tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokens
    output_tokens_details: OutputTokens


class ImageDatum(_Reply):
    """One image: `b64_json` or `url`, and the seed that makes it again."""

    b64_json: str | None = Field(None, description="Bare base64, without a data: prefix.")
    url: str | None = Field(None, description="Lives for 60 minutes unless set otherwise.")
    seed: int = Field(description="Send it as `seed` to get this image again.")


class ImagesResponse(_Reply):
    """The reply of generations and edits."""

    created: int = Field(description="Unix seconds.")
    data: list[ImageDatum]
    size: str
    quality: Literal["standard", "low", "medium", "high", "hd"]
    background: Literal["opaque"]
    output_format: Literal["png", "jpeg", "webp"]
    usage: Usage


class StreamEvent(_Reply):
    """The `data` of one event of a stream."""

    type: Literal[
        "image_generation.partial_image",
        "image_generation.completed",
        "image_edit.partial_image",
        "image_edit.completed",
    ]
    b64_json: str
    created_at: int = Field(description="Unix seconds.")
    size: str
    quality: Literal["standard", "low", "medium", "high", "hd"]
    background: Literal["opaque"]
    output_format: Literal["png", "jpeg", "webp"]
    seed: int = Field(description="Which of the n images this belongs to.")
    partial_image_index: int | None = Field(None, description="Partial images only, from 0.")
    usage: Usage | None = Field(None, description="Completed images only.")
    times: dict[str, float] | None = Field(
        None,
        description="Completed images only: seconds by phase, such as `queue`, `ar`, `handoff`, `denoise`, `vae`, "
        "`encode`; what Server-Timing says of a reply.",
    )


class ModelCard(_Reply):
    """One model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(_Reply):
    """All models: the served one and its aliases."""

    object: Literal["list"]
    data: list[ModelCard]


class Ready(_Reply):
    """A probe's good answer."""

    status: Literal["ok"]


class Version(_Reply):
    """What runs here."""

    name: str
    version: str
    model: str
