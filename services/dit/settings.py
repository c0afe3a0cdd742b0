"""Settings of the DiT service."""

from pydantic import Field

from services.serving.settings import StageSettings


class DitSettings(StageSettings):
    """Adds where the DiT service listens, and its image encoders."""

    dit_host: str = Field(default="127.0.0.1", description="Address to listen on.")
    dit_port: int = Field(default=8102, ge=1, le=65535, description="Port to listen on.")
    encode_threads: int = Field(default=2, ge=1, le=64, description="Images encoded at once, off the event loop.")
    png_level: int = Field(
        default=1, ge=0, le=9, description="zlib level of PNGs: above 1, seconds of CPU buy a few per cent."
    )
