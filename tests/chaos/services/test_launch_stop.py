"""Ctrl-C on a whole deployment: what runs is finished, in whatever order the parts need; a second one is at once."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.chaos.services.fleet import QUICK, eventually
from tests.stack import Stack, launched

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

BODY = {"prompt": "a fox", "size": "128x128", "num_inference_steps": 100}


@asynccontextmanager
async def painting(log: Path, step_seconds: float) -> AsyncIterator[tuple[Stack, "asyncio.Task[httpx.Response]"]]:
    """A deployment whose DiT has two jobs, one of which waits inside it."""
    with launched(log, QUICK | {"DIPTYCH_SIM_STEP_SECONDS": str(step_seconds)}) as stack:
        async with httpx.AsyncClient(base_url=stack.gateway, timeout=60) as client:
            asking = asyncio.create_task(client.post("/v1/images/generations", json=BODY | {"n": 3}))
            running = lambda: httpx.get(f"{stack.dit}/v1/info").json().get("running")  # noqa: E731
            await asyncio.to_thread(eventually, running, 20, "the DiT paints")
            assert not asking.done()
            yield stack, asking
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


async def test_ctrl_c_lets_the_running_request_finish(tmp_path: Path) -> None:
    async with painting(tmp_path / "log", step_seconds=0.01) as (stack, asking):
        stack.process.send_signal(signal.SIGINT)
        reply = await asking
        assert reply.status_code == 200, reply.text
        assert len(reply.json()["data"]) == 3
        assert await asyncio.to_thread(stack.process.wait, 30) == 130


async def test_a_second_ctrl_c_waits_for_nothing(tmp_path: Path) -> None:
    async with painting(tmp_path / "log", step_seconds=0.15) as (stack, asking):  # 15 s an image
        stack.process.send_signal(signal.SIGINT)
        drains = lambda: "draining" in httpx.get(f"{stack.gateway}/ready").text  # noqa: E731
        await asyncio.to_thread(eventually, drains, 10, "the gateway drains")
        stack.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(stack.process.wait, 10) == 130
        reply = await asking
        assert reply.status_code == 503
        assert reply.json()["error"]["code"] == "server_is_overloaded"
