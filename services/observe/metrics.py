"""Every metric of the three services, in one place: names, units and labels.

Base units (seconds, bytes), prefix `diptych_`. Labels are bounded: stage is `ar` or `dit`; outcome, reason and phase
are names from the error tree and the phase lists; replica is a configured or resolved URL. No prompt, user or id.
"""

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

SECONDS = (
    0.005,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    20,
    30,
    45,
    60,
    90,
    120,
    180,
    300,
    600,
)  # an image: 1-300 s

# The gateway
REQUESTS = Counter("diptych_requests", "HTTP requests by route and status.", ["route", "status"])
REQUEST_SECONDS = Histogram(
    "diptych_request_seconds", "From the request's first byte to the reply's last.", ["route"], buckets=SECONDS
)
IMAGES = Counter("diptych_images", "Jobs (one image each) by how they ended: `ok`, or an error's code.", ["outcome"])
IMAGE_SECONDS = Histogram(
    "diptych_image_seconds", "One accepted job, from its place in the queue to its end.", buckets=SECONDS
)
PHASE_SECONDS = Histogram(
    "diptych_phase_seconds",
    "Phases of a job: queue (gateway), ar, publish, ready (its priors wait for a DiT), handoff, dit_queue (inside the "
    "DiT), denoise, vae, encode.",
    ["phase"],
    buckets=SECONDS,
)
QUEUE_JOBS = Gauge("diptych_queue_jobs", "Jobs that wait in the gateway for their turn.")
ACTIVE_JOBS = Gauge("diptych_active_jobs", "Jobs past the queue, by what they do now.", ["phase"])
SHED = Counter("diptych_shed", "Jobs refused before they were accepted, by reason.", ["reason"])
RETRIES = Counter("diptych_retries", "Calls to a stage that were made again, by the error's code.", ["stage", "reason"])
RETRIES_REFUSED = Counter("diptych_retries_refused", "Retries that were not made, by why.", ["stage", "reason"])
REPLICA_STATE = Gauge("diptych_replica_state", "1 for the state a replica is in.", ["stage", "replica", "state"])
REPLICA_OUTSTANDING = Gauge(
    "diptych_replica_outstanding_jobs", "Jobs that this gateway has at a replica.", ["stage", "replica"]
)
REPLICA_CALLS = Counter(
    "diptych_replica_calls", "Calls to a replica by outcome: `ok`, or an error's code.", ["stage", "replica", "outcome"]
)

# The stage services
STAGE_JOBS = Counter("diptych_stage_jobs", "Jobs of a stage service by how they ended.", ["stage", "outcome"])
STAGE_RUNNING = Gauge("diptych_stage_running_jobs", "Jobs in a stage service now.", ["stage"])
STAGE_SECONDS = Histogram(
    "diptych_stage_seconds", "One job in a stage service, by phase.", ["stage", "phase"], buckets=SECONDS
)
STEPS = Counter("diptych_denoise_steps", "Denoising steps of all images in this DiT service.")
ENGINE_STARTS = Counter("diptych_engine_starts", "Starts of the engine, the first included.", ["stage"])
ENGINE_DEATHS = Counter("diptych_engine_deaths", "Engines that died, hung, or did not start.", ["stage"])
ENGINE_READY = Gauge("diptych_engine_ready", "1 while the engine takes work.", ["stage"])

# The hand-off: see `services.observe.handoff`, which reads its own counts.


def observe_stage(stage: str, times: dict[str, float]) -> None:
    """One finished job of a stage service. times: seconds by phase."""
    for phase, seconds in times.items():
        STAGE_SECONDS.labels(stage, phase).observe(seconds)


def exposition() -> tuple[bytes, str]:
    """The body and content type of `GET /metrics`."""
    return generate_latest(), CONTENT_TYPE_LATEST
