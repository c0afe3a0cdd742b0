"""Settings of the AR service."""

from pydantic import Field

from services.serving.settings import StageSettings


class ArSettings(StageSettings):
    """Adds where the AR service listens, and how long a slot lives."""

    step_timeout: float = Field(
        default=300, gt=0, description="No prior written for so long, with work to do, means that the engine hangs."
    )
    ar_host: str = Field(default="127.0.0.1", description="Address to listen on.")
    ar_port: int = Field(default=8101, ge=1, le=65535, description="Port to listen on.")
    lease: float = Field(
        default=660, gt=0, description="Seconds that a slot waits for its READ: the request deadline and a minute."
    )
