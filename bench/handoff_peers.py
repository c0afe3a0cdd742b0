"""The three contestants of `bench.handoff`, each a consumer and a producer in a process of its own: ours, a bare NIXL
READ, and vLLM-Omni's connector."""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

import psutil
import torch

from services.handoff.consumer import Consumer
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import seal

KIB, MIB = 2**10, 2**20
KEY, FINGERPRINT = b"bench", "bench"
SETTINGS = HandoffSettings(key=KEY.decode(), announce_grace=0.0, landing_bytes=96 * MIB, arena_bytes=96 * MIB)
PATIENCE = 120.0  # seconds
_PR_SET_PDEATHSIG = 1

Main = Callable[[Connection], None]


def tensor(length: int) -> torch.Tensor:
    return torch.arange(length // 8)


def _child(main: Main | Callable[[Connection, Connection], None], *ends: Connection) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # SIGTERM would wait while stopped
    with suppress(EOFError):
        main(*ends)


class Contestant:
    """Two processes that are stopped whenever it is not their turn, so that no one else's idle threads are measured."""

    def __init__(self, produce: Main, consume: Callable[[Connection, Connection], None]) -> None:
        context = multiprocessing.get_context("spawn")
        to_producer, from_consumer = context.Pipe()
        self._connection, from_us = context.Pipe()
        self._processes = [
            context.Process(target=_child, args=(produce, from_consumer), daemon=True),
            context.Process(target=_child, args=(consume, from_us, to_producer), daemon=True),
        ]
        for process in self._processes:
            process.start()
        for end in (to_producer, from_consumer, from_us):
            end.close()
        self._receive()  # it is ready
        self._signal(signal.SIGSTOP)

    def ask(self, *command: Any) -> Any:
        """Sends a command to the consumer while both processes run, and waits for its answer."""
        self._signal(signal.SIGCONT)
        try:
            self._connection.send(command)
            return self._receive()
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def _receive(self) -> Any:
        end = time.monotonic() + PATIENCE
        while not self._connection.poll(1.0):
            if time.monotonic() > end or not all(process.is_alive() for process in self._processes):
                raise SystemExit(f"{self._processes[1].name} does not answer")
        return self._connection.recv()

    def _signal(self, number: int) -> None:
        for process in self._processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)


@contextmanager
def contestants() -> Iterator[dict[str, Contestant]]:
    """All three, stopped. Ends them afterwards."""
    found: dict[str, Contestant] = {}
    pairs = {"ours": (produce, consume), "bare": (bare_produce, bare_consume), "upstream": (up_produce, up_consume)}
    try:
        for name, (producer, consumer) in pairs.items():
            found[name] = Contestant(producer, consumer)
        yield found
    finally:
        for each in found.values():
            each.close()


def ask(other: Connection, *command: Any) -> Any:
    other.send(command)
    return other.recv()


def growth(in_use: float) -> dict[str, float]:
    """What could leak in this process. in_use: slots, or fetches under way."""
    own = psutil.Process()
    return {
        "rss_mib": own.memory_info().rss / MIB,
        "file_descriptors": own.num_fds(),
        "threads": own.num_threads(),
        "in_use": in_use,
        "cpu_seconds": sum(own.cpu_times()[:2]),
    }


# --- ours


def produce(connection: Connection) -> None:
    producer = Producer(SETTINGS, FINGERPRINT)
    sources: dict[int, dict[str, torch.Tensor]] = {}
    while True:
        name, *arguments = connection.recv()
        if name == "publish":
            bundle = sources.setdefault(arguments[0], {"ids": tensor(arguments[0])})
            began = time.perf_counter()
            ticket = producer.publish(bundle, 120.0)
            raw = seal(ticket, KEY)
            connection.send((raw, ticket.handoff_id, time.perf_counter() - began))
        elif name == "release":
            connection.send(producer.release(arguments[0]))
        elif name == "forget":
            connection.send(sources.pop(arguments[0], None) is not None)
        else:
            stats = producer.stats()
            connection.send(growth(stats["slots_live"] + stats["slots_resting"]))


def consume(connection: Connection, other: Connection) -> None:
    asyncio.run(_consume(connection, other, Consumer(SETTINGS, FINGERPRINT)))


async def _consume(connection: Connection, other: Connection, consumer: Consumer) -> None:
    connection.send("ready")
    while True:
        name, *arguments = connection.recv()  # nothing else runs in this loop
        if name == "turn":
            connection.send([await _round(consumer, other, arguments[0]) for _ in range(arguments[1])])
        elif name == "forget":
            connection.send(ask(other, "forget", *arguments))
        elif name == "many":
            connection.send(await _many(consumer, other, *arguments))
        elif name == "idle":
            connection.send(await _idle(other, *arguments))
        else:
            connection.send(list(consumer.transports().values()))


async def _round(consumer: Consumer, other: Connection, length: int) -> tuple[float, float]:
    """Seconds of publish and of fetch."""
    raw, handoff_id, published = ask(other, "publish", length)
    began = time.perf_counter()
    bundle = await consumer.fetch(raw, 60)
    fetched = time.perf_counter() - began
    if int(bundle["ids"][-1]) != length // 8 - 1:
        raise SystemExit("wrong bytes")
    del bundle
    ask(other, "release", handoff_id)
    return published, fetched


async def _many(consumer: Consumer, other: Connection, count: int, at_once: int) -> dict[str, Any]:
    """`count` hand-offs of 32 KiB, `at_once` READs started together; what grew meanwhile in both processes."""

    async def batch() -> None:
        tickets = [ask(other, "publish", 32 * KIB) for _ in range(at_once)]
        await asyncio.gather(*(consumer.fetch(raw, 60) for raw, _, _ in tickets))
        for _, handoff_id, _ in tickets:
            ask(other, "release", handoff_id)

    for _ in range(max(4, 100 // at_once)):
        await batch()
    before = await _settled(consumer, other)
    began = time.perf_counter()
    for _ in range(count // at_once):
        await batch()
    seconds = time.perf_counter() - began
    after = await _settled(consumer, other)
    grown = [
        {name: round(late[name] - early[name], 2) for name in late}
        for early, late in zip(*(before, after), strict=True)
    ]
    return {
        "count": count // at_once * at_once,
        "at_once": at_once,
        "per_second": round(count // at_once * at_once / seconds, 1),
        "producer_growth": grown[0],
        "consumer_growth": grown[1],
        "agents": consumer.stats()["peers"],
        "landing_bytes_in_use": consumer.stats()["bytes_in_use"],
    }


async def _settled(consumer: Consumer, other: Connection) -> tuple[dict[str, float], dict[str, float]]:
    """Both processes once no slot is in use and no fetch under way, or as they are after 5 s."""
    for _ in range(50):
        found = ask(other, "stats"), growth(consumer.stats()["in_flight"])
        if not found[0]["in_use"] and not found[1]["in_use"]:
            break
        await asyncio.sleep(0.1)  # the reaper looks four times a second
    return found


async def _idle(other: Connection, seconds: float) -> dict[str, float]:
    """CPU of both processes while nothing happens, in percent of a core."""
    before, mine = ask(other, "stats")["cpu_seconds"], time.process_time()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    wall = time.perf_counter() - began
    return {
        "consumer_percent": round(100 * (time.process_time() - mine) / wall, 2),
        "producer_percent": round(100 * (ask(other, "stats")["cpu_seconds"] - before) / wall, 2),
    }


# --- a bare NIXL READ: registered, touched memory, one READ for all, busy-polled


def bare_produce(connection: Connection) -> None:
    from nixl._api import nixl_agent, nixl_agent_config

    agent = nixl_agent("bare-producer", nixl_agent_config(backends=["UCX"]))
    kept: dict[int, Any] = {}
    while True:
        name, length = connection.recv()
        if name == "serve":
            source = tensor(length)
            kept[length] = source, agent.register_memory([source])
            connection.send((agent.get_agent_metadata(), source.data_ptr()))
        else:
            agent.deregister_memory(kept.pop(length)[1])
            connection.send(True)


def bare_consume(connection: Connection, other: Connection) -> None:
    from nixl._api import nixl_agent, nixl_agent_config

    agent = nixl_agent("bare-consumer", nixl_agent_config(backends=["UCX"]))
    kept: dict[int, Any] = {}
    connection.send("ready")
    while True:
        name, length, *count = connection.recv()
        if name == "forget":
            agent.deregister_memory(kept.pop(length)[1])
            connection.send(ask(other, "forget", length))
            continue
        if length not in kept:
            metadata, address = ask(other, "serve", length)
            target = torch.zeros(length // 8, dtype=torch.int64)
            registered = agent.register_memory([target])
            remote = agent.get_xfer_descs([(address, length, 0)], "DRAM")
            kept[length] = target, registered, remote, agent.add_remote_agent(metadata)
        connection.send([(0.0, _bare_read(agent, *kept[length])) for _ in range(count[0])])


def _bare_read(agent: Any, target: torch.Tensor, _: Any, remote: Any, peer: str) -> float:
    began = time.perf_counter()
    handle = agent.initialize_xfer("READ", agent.get_xfer_descs([target]), remote, peer)
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    seconds = time.perf_counter() - began
    agent.release_xfer_handle(handle)
    if state != "DONE" or int(target[-1]) != target.numel() - 1:
        raise SystemExit(f"the bare READ of {8 * target.numel()} bytes failed")
    return seconds


# --- vLLM-Omni's connector


def _connector(role: str) -> Any:
    from vllm_omni.distributed.omni_connectors.connectors.nixl_connector import NixlConnector

    stage = 0 if role == "sender" else 1
    return NixlConnector(
        {"stage_id": stage, "role": role, "host": "127.0.0.1", "backends": ["UCX"], "metadata_query_timeout_ms": 5000}
    )


def up_produce(connection: Connection) -> None:
    sender = _connector("sender")
    while True:
        key, length = connection.recv()
        payload = {"prior_token_ids": tensor(length), "height": 1024, "width": 1024}
        began = time.perf_counter()
        _, _, metadata = sender.put("0", "1", key, payload)
        connection.send((metadata, time.perf_counter() - began))


def up_consume(connection: Connection, other: Connection) -> None:
    receiver = _connector("receiver")
    ask(other, "warm-up", 8 * KIB)  # so that it is ready when we say so
    connection.send("ready")
    sent = 0
    while True:
        name, length, *count = connection.recv()
        if name == "forget":
            connection.send(True)
            continue
        times = []
        for _ in range(count[0]):
            sent += 1
            metadata, put = ask(other, f"key-{sent}", length)
            began = time.perf_counter()
            got = receiver.get("0", "1", f"key-{sent}", metadata)
            times.append((put, time.perf_counter() - began))
            if got is None:
                raise SystemExit("vLLM-Omni's connector returned nothing")
        connection.send(times)
