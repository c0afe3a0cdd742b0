"""A producer or a consumer in a process of its own, driven through a pipe, to be stopped, killed and replaced."""

import asyncio
import multiprocessing
import os
import signal
from contextlib import suppress
from typing import Any

import torch

from services.handoff.consumer import Consumer
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import seal
from services.wire.errors import HandoffError

KEY = b"chaos"
FINGERPRINT = "tiny"
PATIENCE = 90  # seconds until a process that does not answer fails the test

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


def payload(seed: int, length: int) -> dict[str, torch.Tensor]:
    """A bundle of `length` bytes that only this seed makes."""
    return {"ids": torch.arange(length // 8) * 3 + seed}


def intact(bundle: dict[str, torch.Tensor], seed: int) -> bool:
    return torch.equal(bundle["ids"], torch.arange(bundle["ids"].numel()) * 3 + seed)


class Child:
    """One process that runs `main(connection, settings)`."""

    def __init__(self, main: Any, settings: dict[str, Any]) -> None:
        self.connection, theirs = _context.Pipe()
        self.process = _context.Process(target=main, args=(theirs, {"key": KEY.decode()} | settings), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, *command: Any) -> None:
        self.connection.send(command)

    def receive(self) -> Any:
        if not self.connection.poll(PATIENCE):
            raise TimeoutError("the child process does not answer")
        answer = self.connection.recv()
        if isinstance(answer, HandoffError):
            raise answer
        return answer

    def ask(self, *command: Any) -> Any:
        self.send(*command)
        return self.receive()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join(PATIENCE)

    def close(self) -> None:
        if self.process.is_alive():
            with suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
            self.process.kill()
        self.process.join(PATIENCE)
        self.connection.close()


def produce(connection: Any, settings: dict[str, Any]) -> None:
    """Answers publish(seed, length, lease), release(id), stats()."""
    os.environ |= settings.pop("environment", {})
    producer = Producer(HandoffSettings(**settings), FINGERPRINT)
    with suppress(EOFError):
        while True:
            name, *arguments = connection.recv()
            try:
                connection.send(_produce(producer, name, arguments))
            except HandoffError as error:
                connection.send(error)


def _produce(producer: Producer, name: str, arguments: list[Any]) -> Any:
    if name == "publish":
        seed, length, lease = arguments
        ticket = producer.publish(payload(seed, length), lease)
        return seal(ticket, KEY), ticket.handoff_id
    if name == "release":
        return producer.release(arguments[0])
    return producer.stats()


def consume(connection: Any, settings: dict[str, Any]) -> None:
    """Answers fetch([(raw, seed), ...], deadline) with one outcome a ticket, all at once, and stats()."""
    os.environ |= settings.pop("environment", {})
    asyncio.run(_consume(connection, Consumer(HandoffSettings(**settings), FINGERPRINT)))


async def _consume(connection: Any, consumer: Consumer) -> None:
    while True:
        try:
            name, *arguments = await asyncio.to_thread(connection.recv)
        except EOFError:
            return
        if name == "fetch":
            tickets, deadline = arguments
            connection.send(await asyncio.gather(*(_outcome(consumer, raw, seed, deadline) for raw, seed in tickets)))
        else:
            connection.send(consumer.stats())


async def _outcome(consumer: Consumer, raw: bytes, seed: int, deadline: float) -> str:
    try:
        return "intact" if intact(await consumer.fetch(raw, deadline), seed) else "wrong bytes"
    except HandoffError as error:
        return error.code
