"""Puts the DiT service together from its settings, and runs it."""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from fastapi import FastAPI

from services.dit.app import dit_app
from services.dit.service import DitService
from services.dit.settings import DitSettings
from services.handoff.consumer import Consumer
from services.handoff.settings import HandoffSettings
from services.observe.logs import configure_logging
from services.serving.app import Failure, serve
from services.serving.engine import RenderEngine
from services.serving.identity import identify
from services.serving.ledger import JobLedger
from services.serving.settings import load_settings, start_tracing
from services.serving.supervisor import EngineSupervisor
from services.wire.errors import ConfigError
from services.wire.info import StageInfo

log = logging.getLogger(__name__)


def run() -> NoReturn:
    """Run until a signal, and end the process. Raises ConfigError with one line that names the setting."""
    configure_logging("dit")
    start_tracing("dit")
    settings = load_settings(DitSettings)
    build_engine, identity, connector = _engine(settings)
    handoff = load_settings(HandoffSettings).under(connector)
    service: DitService

    def build(on_failure: Failure) -> FastAPI:
        nonlocal service
        service = DitService(
            EngineSupervisor(build_engine, stage="dit", **settings.supervision()),
            Consumer(handoff, identity.fingerprint),
            JobLedger(identity.capacity + settings.max_waiting, "dit"),
            identity,
            settings,
        )
        if settings.warm_up:
            service.supervisor.warm_up = service.warm_up
        return dit_app(service, max_body=settings.max_body, on_failure=on_failure, step_timeout=settings.step_timeout)

    serve(
        build,
        lambda: service.drain(),
        host=settings.dit_host,
        port=settings.dit_port,
        setting="DIPTYCH_DIT_PORT",
        drain_timeout=settings.drain_timeout,
    )


def _engine(settings: DitSettings) -> tuple[Callable[[], RenderEngine], StageInfo, Mapping[str, Any]]:
    if settings.engine == "sim":
        from services.sim.render import simulated_dit

        return *simulated_dit(), {}
    from services.omni.checkpoint import open_checkpoint
    from services.omni.dit_stage import VllmDitEngine
    from services.stages import resolve

    deployment = resolve(settings.stage_config, role="dit", environ=os.environ)
    for finding in deployment.findings:
        log.log(logging.WARNING if finding.level == "warning" else logging.INFO, "%s", finding)
    stage = deployment.dit
    if stage is None:
        raise ConfigError(f"{settings.stage_config}: there is no DiT stage in it")
    checkpoint = open_checkpoint(stage.model, 1)
    identity = identify(
        "dit",
        model=stage.model,
        fingerprint=checkpoint.fingerprint,
        engine="vllm-omni",
        capacity=stage.max_num_seqs,
        devices=stage.devices,
        tensor_parallel_size=stage.tensor_parallel_size,
    )
    return lambda: VllmDitEngine(checkpoint, stage.engine_args, stage.platforms), identity, deployment.connector.extra
