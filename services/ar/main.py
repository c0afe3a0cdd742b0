"""Puts the AR service together from its settings, and runs it."""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from fastapi import FastAPI

from services.ar.app import ar_app
from services.ar.service import ArService
from services.ar.settings import ArSettings
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.observe.logs import configure_logging
from services.serving.app import Failure, serve
from services.serving.engine import PriorEngine
from services.serving.identity import identify
from services.serving.ledger import JobLedger
from services.serving.settings import load_settings, start_tracing
from services.serving.supervisor import EngineSupervisor
from services.wire.errors import ConfigError
from services.wire.info import StageInfo

log = logging.getLogger(__name__)


def run() -> NoReturn:
    """Run until a signal, and end the process. Raises ConfigError with one line that names the setting."""
    configure_logging("ar")
    start_tracing("ar")
    settings = load_settings(ArSettings)
    build_engine, identity, connector = _engine(settings)
    handoff = load_settings(HandoffSettings).under(connector)
    service: ArService

    def build(on_failure: Failure) -> FastAPI:
        nonlocal service
        service = ArService(
            EngineSupervisor(build_engine, stage="ar", **settings.supervision()),
            Producer(handoff, identity.fingerprint),
            JobLedger(identity.capacity + settings.max_waiting, "ar"),
            identity,
            key=handoff.secret(),
            lease=settings.lease,
        )
        if settings.warm_up:
            service.supervisor.warm_up = service.warm_up
        return ar_app(service, max_body=settings.max_body, on_failure=on_failure, step_timeout=settings.step_timeout)

    serve(
        build,
        lambda: service.drain(),
        host=settings.ar_host,
        port=settings.ar_port,
        setting="DIPTYCH_AR_PORT",
        drain_timeout=settings.drain_timeout,
    )


def _engine(settings: ArSettings) -> tuple[Callable[[], PriorEngine], StageInfo, Mapping[str, Any]]:
    if settings.engine == "sim":
        from services.sim.prior import simulated_ar

        return *simulated_ar(), {}
    from services.omni.ar_stage import VllmArEngine
    from services.omni.checkpoint import open_checkpoint
    from services.stages import resolve

    deployment = resolve(settings.stage_config, role="ar", environ=os.environ)
    for finding in deployment.findings:
        log.log(logging.WARNING if finding.level == "warning" else logging.INFO, "%s", finding)
    stage = deployment.ar
    if stage is None:
        raise ConfigError(f"{settings.stage_config}: there is no AR stage in it")
    checkpoint = open_checkpoint(stage.model, 0)
    identity = identify(
        "ar",
        model=stage.model,
        fingerprint=checkpoint.fingerprint,
        engine="vllm-omni",
        capacity=stage.max_num_seqs,
        devices=stage.devices,
        tensor_parallel_size=stage.tensor_parallel_size,
    )
    return lambda: VllmArEngine(checkpoint, stage.engine_args, stage.platforms), identity, deployment.connector.extra
