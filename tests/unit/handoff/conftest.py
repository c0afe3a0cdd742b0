import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from services.handoff.consumer import Consumer
from services.handoff.memory import Fabric
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings

FINGERPRINT = "tiny"
BASE = {"arena_bytes": 2**21, "landing_bytes": 2**21, "announce_grace": 0.0, "advertise_host": "127.0.0.1"}


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


@pytest.fixture
async def pair(fabric: Fabric) -> AsyncIterator[Callable[..., tuple[Producer, Consumer]]]:
    """Makes a producer and a consumer over the double; closes them with the test."""
    made: list[Producer | Consumer] = []

    def make(**settings: Any) -> tuple[Producer, Consumer]:
        ours = HandoffSettings(**(BASE | settings))
        made.append(Producer(ours, FINGERPRINT, fabric.agent("ar")))
        made.append(Consumer(ours, FINGERPRINT, fabric.agent("dit")))
        return made[-2], made[-1]  # type: ignore[return-value]

    yield make
    for end in made:
        await asyncio.to_thread(end.close)
