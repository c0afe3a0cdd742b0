"""Settings that both stage services share. The environment is read once, at start, here and in the subclasses."""

from pathlib import Path
from typing import Literal, TypedDict, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.observe.settings import ObserveSettings
from services.observe.tracing import TRACING
from services.wire.errors import ConfigError


class Supervision(TypedDict):
    """Keyword arguments of `EngineSupervisor`."""

    start_timeout: float
    health_interval: float
    max_restarts: int
    step_timeout: float


class StageSettings(BaseSettings):
    """`DIPTYCH_*` variables of a stage service. Durations are seconds."""

    model_config = SettingsConfigDict(env_prefix="DIPTYCH_", frozen=True, env_ignore_empty=True, extra="ignore")

    stage_config: Path = Field(
        default=Path("stage_configs/glm_image_cpu.yaml"), description="The stages-schema YAML of this deployment."
    )
    engine: Literal["vllm-omni", "sim"] = Field(
        default="vllm-omni", description="`sim` paints nothing: for load and fault tests only."
    )
    start_timeout: float = Field(default=900, gt=0, description="How long an engine may take until it is ready.")
    health_interval: float = Field(
        default=0.5, gt=0, description="How often a running engine is asked whether it lives."
    )
    max_restarts: int = Field(
        default=5, ge=0, description="Engine restarts in a row before the service exits non-zero."
    )
    step_timeout: float = Field(
        default=120,
        gt=0,
        description="No step for so long, with work to do, means that the engine hangs.",
    )
    warm_up: bool = Field(default=True, description="Do one tiny job before a fresh engine gets work.")
    drain_timeout: float = Field(default=120, ge=0, description="How long SIGTERM waits for running jobs.")
    max_waiting: int = Field(default=64, ge=0, description="Jobs that may wait in this service before it answers 503.")
    max_body: int = Field(default=64 * 2**20, gt=0, description="Bytes of one message from the gateway.")

    def supervision(self) -> Supervision:
        """What the engine's supervisor needs of these settings."""
        return Supervision(
            start_timeout=self.start_timeout,
            health_interval=self.health_interval,
            max_restarts=self.max_restarts,
            step_timeout=self.step_timeout,
        )


Settings = TypeVar("Settings", bound=BaseSettings)


def load_settings(kind: type[Settings]) -> Settings:
    """`kind` from the environment. Raises ConfigError in one line that names the variable and what is wrong."""
    try:
        return kind()
    except ValidationError as error:
        first = error.errors()[0]
        prefix = kind.model_config.get("env_prefix", "")
        name = f"{prefix}{first['loc'][0]}".upper() if first["loc"] else kind.__name__
        raise ConfigError(f"{name}: {first['msg']}, got {first.get('input')!r}", param=name) from error


def start_tracing(service: str) -> None:
    """Record traces if DIPTYCH_TRACING says so. Raises ConfigError if OpenTelemetry is not installed."""
    try:
        TRACING.configure(service, load_settings(ObserveSettings))
    except ImportError as error:
        raise ConfigError(str(error), param="DIPTYCH_TRACING") from error
