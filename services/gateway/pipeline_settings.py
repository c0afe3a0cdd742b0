"""The pipeline's share of the gateway's settings. `GatewaySettings` inherits them: one settings class a service."""

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class PipelineSettings(BaseSettings):
    """`DIPTYCH_*` variables of the pipeline. Durations are seconds.

    ar_urls, dit_urls: comma-separated base URLs, or `dns://name:port`, resolved again every `resolve_interval`.
    """

    model_config = SettingsConfigDict(env_prefix="DIPTYCH_", frozen=True, env_ignore_empty=True, extra="ignore")

    ar_urls: str = Field(
        default="http://127.0.0.1:8101",
        validation_alias=AliasChoices("ar_urls", "DIPTYCH_AR_URLS", "AR_URLS"),
        description="Where the AR replicas are.",
    )
    dit_urls: str = Field(
        default="http://127.0.0.1:8102",
        validation_alias=AliasChoices("dit_urls", "DIPTYCH_DIT_URLS", "DIT_URLS"),
        description="Where the DiT replicas are.",
    )
    resolve_interval: float = Field(default=5, gt=0, description="How often dns:// names are resolved again.")
    poll_interval: float = Field(default=1, gt=0, description="How often a replica is asked for its state.")
    poll_timeout: float = Field(default=5, gt=0, description="How long a replica may take to say its state.")
    lost_after: int = Field(default=3, ge=1, description="Unanswered polls in a row until a replica counts as lost.")
    connect_timeout: float = Field(default=3, gt=0, description="How long a connection to a replica may take.")
    max_jobs: int = Field(default=256, ge=1, description="Images in the gateway at once, waiting or running.")
    tenant_share: float = Field(default=0.5, gt=0, le=1, description="Share of max_jobs that one API key may hold.")
    look_ahead: int = Field(default=0, ge=0, description="Jobs ahead of the DiTs at most; 0: from measured times.")
    dit_depth: int = Field(default=1, ge=0, description="Jobs that wait inside a DiT, so that it never idles.")
    outage_grace: float = Field(default=10, ge=0, description="How long a stage may be gone until requests get 503.")
    replica_wait: float = Field(default=120, gt=0, description="How long an accepted job waits for a replica.")
    max_attempts: int = Field(default=4, ge=1, description="Calls to one stage for one job at most.")
    retry_share: float = Field(default=0.2, ge=0, le=1, description="Retries as a share of first calls.")
    retry_burst: int = Field(default=32, ge=0, description="Retries that may happen at once on top of the share.")
    breaker_failures: int = Field(default=3, ge=1, description="Failures in a row that take a replica out.")
    breaker_rest: float = Field(default=5, gt=0, description="How long it stays out; doubles up to 60 s.")
    probe: bool = Field(default=True, description="Try a tiny hand-off before a replica gets work.")
    probe_interval: float = Field(default=30, gt=0, description="How often a proven replica is tried again.")
