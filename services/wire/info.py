"""`GET /v1/info`: what a service says of itself."""

import msgspec


class StageInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One service's identity and load.

    instance: unique per process start. fingerprint: of model, revision, dtype and schema; both stages must agree.
    waiting, running: jobs now; capacity: jobs that run at once. engine: `vllm-omni` or `sim`.
    steps_ahead: denoising steps x megapixels still to do (DiT). transports: UCX transport by peer.
    """

    instance: str
    stage: str
    ready: bool
    model: str
    fingerprint: str = ""
    engine: str = ""
    versions: dict[str, str] = {}
    tensor_parallel_size: int = 1
    devices: str = ""
    waiting: int = 0
    running: int = 0
    capacity: int = 1
    steps_ahead: float = 0.0
    draining: bool = False
    reason: str = ""
    transports: dict[str, str] = {}
    handoff: dict[str, float] = {}
    uptime: float = 0.0


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stage replica as a gateway sees it. outstanding: this gateway's jobs there. said: its last `StageInfo`.

    state: `ready`, `not-ready`, `draining`, `resting` (its breaker is open), `unproven` (no hand-off worked), `lost`.
    """

    stage: str
    url: str
    state: str
    reason: str = ""
    outstanding: int = 0
    said: StageInfo | None = None


class GatewayInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gateway: its jobs by phase (`queue`, `ar`, `ready`, `dit`), and all replicas that it knows."""

    instance: str
    ready: bool
    stage: str = "gateway"
    reason: str = ""
    draining: bool = False
    engine: str = ""
    jobs: dict[str, int] = {}
    max_jobs: int = 0
    estimate: float = 0.0
    replicas: list[ReplicaInfo] = []
    uptime: float = 0.0
