"""The gateway's settings: read once, at start. A flag beats the environment, which beats the default."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from services.gateway.pipeline_settings import PipelineSettings

MIB = 2**20


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)
    return value


def _split_steps(value: object) -> object:
    if isinstance(value, str):
        pairs = (piece.partition("=") for piece in value.split(",") if piece.strip())
        return {name.strip(): steps.strip() for name, _, steps in pairs}
    return value


CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
StepsByQuality = Annotated[dict[str, int], NoDecode, BeforeValidator(_split_steps)]

QUALITY_STEPS = {"low": 15, "medium": 30, "standard": 30, "high": 50, "hd": 50}


class GatewaySettings(PipelineSettings):
    """`DIPTYCH_*` variables of the gateway. Durations are seconds, sizes bytes unless a name says otherwise."""

    gateway_host: str = Field(default="127.0.0.1", description="Address to listen on.")
    gateway_port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    public_base_url: str = Field(default="", description="How clients reach this gateway; empty: from the request.")

    model: str = Field(default="glm-image", min_length=1, description="The id of the served model.")
    model_aliases: CommaList = Field(default=("zai-org/GLM-Image",), description="Other names it answers to.")
    default_steps: int = Field(default=50, ge=1, description="Denoising steps if neither steps nor quality say.")
    max_steps: int = Field(default=200, ge=1, description="Denoising steps at most.")
    default_guidance: float = Field(default=1.5, ge=0, description="Guidance scale if none is given.")
    quality_steps: StepsByQuality = Field(default=QUALITY_STEPS, description="Denoising steps by quality.")
    allow_unknown_parameters: bool = Field(default=False, description="Ignore unknown fields instead of a 400.")

    api_keys: SecretStr = Field(default=SecretStr(""), description="Comma-separated keys; none: open to all.")
    api_keys_file: Path | None = Field(default=None, description="A file with one key a line.")
    cors_origins: CommaList = Field(default=(), description="Origins that browsers may call from; * for all.")

    deadline: float = Field(default=600, gt=0, description="A request's whole time budget.")
    drain_timeout: float = Field(default=120, ge=0, description="Time that running jobs get after SIGTERM.")
    body_timeout: float = Field(default=30, gt=0, description="Silence allowed while a body is read.")
    upload_timeout: float = Field(default=300, gt=0, description="Time for a whole body.")
    keep_alive: float = Field(default=10, gt=0, description="Seconds between the comments in an event stream.")
    max_json_bytes: int = Field(default=2 * MIB, ge=1, description="JSON body of a generation at most.")
    max_image_bytes: int = Field(default=50 * MIB, ge=1, description="One uploaded image at most.")
    max_json_edit_bytes: int = Field(default=24 * MIB, ge=1, description="JSON body of an edit at most.")
    max_buffered_bytes: int = Field(default=96 * MIB, ge=1, description="JSON bodies held in memory at once.")
    max_image_pixels: int = Field(default=24_000_000, ge=1, description="Pixels of an input image at most.")
    max_requests: int = Field(default=1024, ge=1, description="HTTP requests in flight at once.")

    storage_url: str = Field(default=".cache/images", description="fsspec URL of stored results; empty: no urls.")
    storage_seconds: int = Field(default=3600, ge=1, description="How long a stored result lives.")
    storage_bytes: int = Field(default=2048 * MIB, ge=1, description="Stored results at most; oldest go first.")
    fetch_urls: bool = Field(default=False, description="Fetch http(s) image URLs of edits (public hosts only).")
    fetch_timeout: float = Field(default=10, gt=0, description="Time for one fetched image, redirects included.")
    playground: bool = Field(default=True, description="Serve the playground page at /.")

    def keys(self) -> tuple[str, ...]:
        """All API keys, of the variable and of the file. Raises OSError if the file cannot be read."""
        lines = self.api_keys_file.read_text().splitlines() if self.api_keys_file else []
        found = [*self.api_keys.get_secret_value().split(","), *lines]
        return tuple(key.strip() for key in found if key.strip() and not key.strip().startswith("#"))
