import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from services.handoff.consumer import Consumer
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from tests.chaos.handoff.processes import FINGERPRINT, KEY, Child, consume, intact, produce

TCP = {"UCX_TLS": "tcp,self"}
PRODUCER = {"announce_grace": 0.0, "quarantine": 1.0, "advertise_host": "127.0.0.1"}


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Polls, since there is no event to wait for; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail("the condition did not come true")
        await asyncio.sleep(0.005)


class Peers:
    """Makes processes, and ends them all with the test."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def producer(self, **settings: Any) -> Child:
        return self._add(Child(produce, PRODUCER | settings))

    def consumer(self, **settings: Any) -> Child:
        return self._add(Child(consume, settings))

    def _add(self, child: Child) -> Child:
        self.children.append(child)
        return child


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    for child in peers.children:
        child.close()


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    consumer = Consumer(HandoffSettings(key=KEY.decode()), FINGERPRINT)
    yield consumer
    await asyncio.to_thread(consumer.close)


@pytest.fixture
async def tcp_consumer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Consumer]:
    """Over TCP a READ needs the producer's progress all the way; over CMA the kernel serves a stopped one too."""
    monkeypatch.setenv("UCX_TLS", TCP["UCX_TLS"])
    consumer = Consumer(HandoffSettings(key=KEY.decode()), FINGERPRINT)
    yield consumer
    await asyncio.to_thread(consumer.close)


@pytest.fixture
async def producer() -> AsyncIterator[Producer]:
    producer = Producer(HandoffSettings(key=KEY.decode(), **PRODUCER), FINGERPRINT)
    yield producer
    await asyncio.to_thread(producer.close)


@pytest.fixture
async def tcp_producer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Producer]:
    monkeypatch.setenv("UCX_TLS", TCP["UCX_TLS"])
    producer = Producer(HandoffSettings(key=KEY.decode(), **PRODUCER), FINGERPRINT)
    yield producer
    await asyncio.to_thread(producer.close)


async def nothing_leaked(producer: Child, consumer: Consumer) -> None:
    """The next hand-off works, and every slot and landing byte comes back."""
    raw, handoff_id = producer.ask("publish", 77, 32768, 30.0)
    assert intact(await consumer.fetch(raw, 30), 77)
    assert producer.ask("release", handoff_id)
    await until(lambda: consumer.stats()["bytes_in_use"] == 0 == consumer.stats()["in_flight"])
    await until(lambda: producer.ask("stats")["slots_live"] == 0 == producer.ask("stats")["slots_resting"])
    assert producer.ask("stats")["bytes_in_use"] == PROBE_BYTES


PROBE_BYTES = 2**20
