"""Settings of logging and tracing, the same for all services."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ObserveSettings(BaseSettings):
    """`DIPTYCH_LOG_*` and `DIPTYCH_TRACING`."""

    model_config = SettingsConfigDict(env_prefix="DIPTYCH_", frozen=True, env_ignore_empty=True, extra="ignore")

    log_format: Literal["text", "json"] = Field(default="text", description="A line for people, or one JSON object.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The least to log.")
    log_prompts: bool = Field(default=False, description="Log prompts. They may be private: off unless asked.")
    tracing: bool = Field(default=False, description="Send OpenTelemetry traces; OTEL_* variables say where.")
