"""Both stage services in this process, on real sockets and real NIXL, around engines that a test scripts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest
import torch
import uvicorn
from fastapi import FastAPI

from services.ar.app import ar_app
from services.ar.service import ArService
from services.dit.app import dit_app
from services.dit.service import DitService
from services.dit.settings import DitSettings
from services.handoff.consumer import Consumer
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.serving.engine import PRIOR_TOKENS, FinalImage, PartialImage, PriorResult, StepDone
from services.serving.identity import identify
from services.serving.ledger import JobLedger
from services.serving.server import configuration, listen
from services.serving.supervisor import EngineSupervisor
from services.wire.errors import EngineDied


class ScriptedEngine:
    """Either engine. raises: what the next job raises; hold: jobs wait for this event; entered: a job began."""

    def __init__(self) -> None:
        self.raises: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.dead = False
        self.starts = 0

    async def start(self):
        self.starts += 1
        self.dead = False

    async def stop(self): ...

    async def abort(self, request_id): ...

    async def check_health(self):
        if self.dead:
            raise EngineDied("its process is gone")

    async def _script(self):
        self.entered.set()
        if self.raises is not None:
            raise self.raises
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.left.set()

    async def write(self, job):
        await self._script()
        tokens = (job.width // 32) * (job.height // 32)
        bundle = {PRIOR_TOKENS: torch.arange(tokens, dtype=torch.int32)}
        return PriorResult(bundle=bundle, text_tokens=3, image_tokens=0, prior_tokens=tokens)

    async def paint(self, job, bundle):
        yield StepDone(1, job.steps)
        await self._script()
        pixels = np.full((job.height, job.width, 3), int(bundle[PRIOR_TOKENS].sum()) % 256, np.uint8)
        for index in range(job.previews):
            yield PartialImage(index, pixels // 2)
        yield FinalImage(pixels, {"denoise": 0.5})


@asynccontextmanager
async def _served(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    bound = listen("127.0.0.1", 0, "-")
    server = uvicorn.Server(configuration(app))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        async with asyncio.timeout(20):
            while not server.started or (await client.get("/ready")).status_code != 200:
                await asyncio.sleep(0.01)
        yield client
    server.should_exit = True
    await task


class Services:
    """The two services, their engines, and a client for each."""

    def __init__(self) -> None:
        self.ar_engine, self.dit_engine = ScriptedEngine(), ScriptedEngine()
        handoff = HandoffSettings(arena_bytes=2**20, landing_bytes=2**20, progress_delay_us=1000)
        ledgers = JobLedger(2), JobLedger(2)
        about = {"model": "scripted", "fingerprint": "f", "engine": "scripted", "capacity": 1}
        supervision = {"start_timeout": 5, "health_interval": 0.02, "max_restarts": 2}
        self.ar = ArService(
            EngineSupervisor(lambda: self.ar_engine, **supervision),
            Producer(handoff, "f"),
            ledgers[0],
            identify("ar", **about),
            key=handoff.secret(),
            lease=60,
        )
        self.dit = DitService(
            EngineSupervisor(lambda: self.dit_engine, **supervision),
            Consumer(handoff, "f"),
            ledgers[1],
            identify("dit", **about),
            DitSettings(),
        )


@pytest.fixture(scope="session")
async def shared_services() -> AsyncIterator[tuple[Services, httpx.AsyncClient, httpx.AsyncClient]]:
    services = Services()
    async with (
        _served(ar_app(services.ar, max_body=2**20)) as ar_client,
        _served(dit_app(services.dit, max_body=2**20)) as dit_client,
    ):
        yield services, ar_client, dit_client


@pytest.fixture
def services(shared_services):
    """The running services with fresh scripts."""
    running = shared_services[0]
    for engine in (running.ar_engine, running.dit_engine):
        ScriptedEngine.__init__(engine)
    return running


@pytest.fixture
def ar(shared_services):
    """A client of the AR service."""
    return shared_services[1]


@pytest.fixture
def dit(shared_services):
    """A client of the DiT service."""
    return shared_services[2]
