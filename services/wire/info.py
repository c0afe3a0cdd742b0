"""`GET /v1/info`: what a service says of itself."""

from typing import Annotated

import msgspec
from msgspec import Meta


class StageInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One service's identity and load.

    instance: unique per process start. fingerprint: of the model's configuration; both stages must agree.
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

    instance: Annotated[str, Meta(description="Unique per process start.")]
    ready: Annotated[bool, Meta(description="Both stages take work, and this gateway does not drain.")]
    stage: Annotated[str, Meta(description="Always `gateway`.")] = "gateway"
    reason: Annotated[str, Meta(description="Why it is not ready.")] = ""
    draining: Annotated[bool, Meta(description="It takes no new work, and ends when the rest is done.")] = False
    engine: Annotated[str, Meta(description="What the stages run: `vllm-omni` or `sim`.")] = ""
    jobs: Annotated[dict[str, int], Meta(description="Images by phase: `queue`, `ar`, `ready`, `dit`.")] = {}
    max_jobs: Annotated[int, Meta(description="Images that it holds at most, waiting or running.")] = 0
    estimate: Annotated[float, Meta(description="Seconds that one more image takes in both stages; 0: unknown.")] = 0.0
    replicas: Annotated[list[ReplicaInfo], Meta(description="The stage replicas, and what each says of itself.")] = []
    uptime: Annotated[float, Meta(description="Seconds since the start.")] = 0.0
