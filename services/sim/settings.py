"""What the simulator engines take long over, and how they fail."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class SimSettings(BaseSettings):
    """`DIPTYCH_SIM_*` variables. Durations are seconds, rates are shares of jobs, drawn from `seed`."""

    model_config = SettingsConfigDict(env_prefix="DIPTYCH_SIM_", frozen=True, env_ignore_empty=True, extra="ignore")

    start_seconds: float = Field(default=0.2, ge=0, description="Until an engine is ready.")
    ar_batch: int = Field(default=8, ge=1, description="Priors written at once.")
    ar_seconds: float = Field(default=0.2, ge=0, description="One prior alone.")
    ar_batch_cost: float = Field(default=0.02, ge=0, description="How much each other job in the batch adds, a share.")
    step_seconds: float = Field(default=0.01, ge=0, description="One denoising step of one megapixel or less.")
    vae_seconds: float = Field(default=0.01, ge=0, description="Latents to pixels.")
    fail_rate: float = Field(default=0, ge=0, le=1, description="Jobs that the engine refuses (EngineFailed).")
    die_rate: float = Field(default=0, ge=0, le=1, description="Jobs under which the engine core dies.")
    exit_rate: float = Field(default=0, ge=0, le=1, description="Jobs under which the whole service dies.")
    hang_rate: float = Field(default=0, ge=0, le=1, description="Jobs under which the engine core hangs.")
    invalid_rate: float = Field(default=0, ge=0, le=1, description="Priors with a token that is out of range.")
    start_failures: int = Field(default=0, ge=0, description="Engine starts that fail before one succeeds.")
    seed: int = Field(default=0, description="Of the draws above.")
