"""The hand-off beside a bare NIXL READ and vLLM-Omni's own connector: two processes, one machine, one run.

    python -m bench.handoff [--quick]

Writes bench/results/handoff.json. Needs about 4 GiB of memory; on a busy machine the figures are of that machine.
"""

import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import click
import numpy as np
import psutil
import torch
from nixl._api import nixl_agent, nixl_agent_config

from bench import results
from services.handoff.consumer import Consumer
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import seal

KIB, MIB = 2**10, 2**20
SMALL, BIG = (32 * KIB, 128 * KIB), (64 * MIB, 1024 * MIB)
KEY, FINGERPRINT = b"bench", "bench"
SETTINGS = HandoffSettings(key=KEY.decode(), announce_grace=0.0, landing_bytes=96 * MIB, arena_bytes=96 * MIB)


def tensor(length: int) -> torch.Tensor:
    return torch.arange(length // 8)


class Other:
    """The producer side of one contestant, in a process of its own."""

    def __init__(self, main: Callable[[Connection], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=main, args=(theirs,), daemon=True)
        self.process.start()

    def ask(self, *command: Any) -> Any:
        self.connection.send(command)
        return self.connection.recv()

    def __enter__(self) -> "Other":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.send(None)
        self.process.join(20)
        self.process.kill()


def median_ms(seconds: list[float]) -> float:
    return round(1e3 * statistics.median(seconds), 4)


# --- ours


def produce(connection: Connection) -> None:
    producer = Producer(SETTINGS, FINGERPRINT)
    sources: dict[int, dict[str, torch.Tensor]] = {}
    with suppress(EOFError):
        while (command := connection.recv()) is not None:
            if command[0] == "publish":
                bundle = sources.setdefault(command[1], {"ids": tensor(command[1])})
                began = time.perf_counter()
                ticket = producer.publish(bundle, 120.0)
                raw = seal(ticket, KEY)
                connection.send((raw, ticket.handoff_id, time.perf_counter() - began))
            elif command[0] == "release":
                connection.send(producer.release(command[1]))
            elif command[0] == "forget":
                connection.send(sources.pop(command[1], None) is not None)
            else:
                connection.send(growth(producer.stats()["slots_live"] + producer.stats()["slots_resting"]))
    producer.close()


def growth(slots: float) -> dict[str, float]:
    """What could leak in this process."""
    own = psutil.Process()
    return {
        "rss_mib": own.memory_info().rss / MIB,
        "file_descriptors": own.num_fds(),
        "threads": own.num_threads(),
        "slots": slots,
        "cpu_seconds": sum(own.cpu_times()[:2]),
    }


async def ours(other: Other, length: int, rounds: int) -> dict[str, float]:
    """Medians of publish, of fetch, and of their sum, after a warm-up."""
    consumer = CONSUMER[0]
    published, fetched, totals = [], [], []
    for index in range(rounds + max(2, rounds // 10)):
        raw, handoff_id, publish = other.ask("publish", length)
        began = time.perf_counter()
        bundle = await consumer.fetch(raw, 60)
        fetch = time.perf_counter() - began
        if not index and not torch.equal(bundle["ids"], tensor(length)):
            raise SystemExit("wrong bytes")
        del bundle
        other.ask("release", handoff_id)
        if index >= max(2, rounds // 10):
            published.append(publish)
            fetched.append(fetch)
            totals.append(publish + fetch)
    other.ask("forget", length)
    return {
        "publish_ms": median_ms(published),
        "fetch_ms": median_ms(fetched),
        "publish_and_fetch_ms": median_ms(totals),
        "fetch_gb_s": length / statistics.median(fetched) / 1e9,
    }


CONSUMER: list[Consumer] = []


async def many(other: Other, count: int, at_once: int) -> dict[str, Any]:
    """`count` hand-offs of 32 KiB, `at_once` in flight; what grew meanwhile in both processes."""
    consumer = CONSUMER[0]

    async def one() -> None:
        raw, handoff_id, _ = other.ask("publish", 32 * KIB)
        await consumer.fetch(raw, 60)
        other.ask("release", handoff_id)

    for _ in range(4):
        await asyncio.gather(*(one() for _ in range(at_once)))
    before = other.ask("stats"), growth(consumer.stats()["in_flight"])
    began = time.perf_counter()
    for _ in range(count // at_once):
        await asyncio.gather(*(one() for _ in range(at_once)))
    seconds = time.perf_counter() - began
    await asyncio.sleep(1.0)  # the reaper's next look
    after = other.ask("stats"), growth(consumer.stats()["in_flight"])
    grown = [
        {name: round(late[name] - early[name], 2) for name in late} for early, late in zip(before, after, strict=True)
    ]
    return {
        "count": count // at_once * at_once,
        "at_once": at_once,
        "per_second": round(count / seconds, 1),
        "producer_growth": grown[0],
        "consumer_growth": grown[1],
        "agents": consumer.stats()["peers"],
        "landing_bytes_in_use": consumer.stats()["bytes_in_use"],
    }


async def idle(other: Other, seconds: float) -> dict[str, float]:
    """CPU of both processes while nothing happens, in percent of a core."""
    before, mine = other.ask("stats")["cpu_seconds"], time.process_time()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    wall = time.perf_counter() - began
    return {
        "consumer_percent": round(100 * (time.process_time() - mine) / wall, 2),
        "producer_percent": round(100 * (other.ask("stats")["cpu_seconds"] - before) / wall, 2),
    }


# --- a bare NIXL READ


def raw_produce(connection: Connection) -> None:
    agent, kept = nixl_agent("raw-producer", nixl_agent_config(backends=["UCX"])), None
    while (command := connection.recv()) is not None:
        if kept is not None:
            agent.deregister_memory(kept)
        source = tensor(command[1])
        kept = agent.register_memory([source])
        connection.send((agent.get_agent_metadata(), source.data_ptr()))


def raw(other: Other, lengths: dict[int, int]) -> dict[int, float]:
    """Median seconds of one READ into registered, touched memory, by length; busy-polled."""
    agent = nixl_agent("raw-consumer", nixl_agent_config(backends=["UCX"]))
    found = {}
    for length, rounds in lengths.items():
        metadata, address = other.ask("serve", length)
        peer = agent.add_remote_agent(metadata)
        target = torch.zeros(length // 8, dtype=torch.int64)
        registered = agent.register_memory([target])
        remote = agent.get_xfer_descs([(address, length, 0)], "DRAM")
        times = []
        for _ in range(rounds + 2):
            began = time.perf_counter()
            handle = agent.initialize_xfer("READ", agent.get_xfer_descs([target]), remote, peer)
            state = agent.transfer(handle)
            while state == "PROC":
                state = agent.check_xfer_state(handle)
            times.append(time.perf_counter() - began)
            agent.release_xfer_handle(handle)
        if state != "DONE" or not torch.equal(target, tensor(length)):
            raise SystemExit(f"the bare READ of {length} bytes failed")
        found[length] = statistics.median(times[2:])
        agent.deregister_memory(registered)
    return found


# --- vLLM-Omni's connector


def connector(role: str) -> Any:
    from vllm_omni.distributed.omni_connectors.connectors.nixl_connector import NixlConnector

    stage = 0 if role == "sender" else 1
    return NixlConnector(
        {"stage_id": stage, "role": role, "host": "127.0.0.1", "backends": ["UCX"], "metadata_query_timeout_ms": 5000}
    )


def upstream_produce(connection: Connection) -> None:
    sender = connector("sender")
    while (command := connection.recv()) is not None:
        _, key, length = command
        payload = {"prior_token_ids": tensor(length), "height": 1024, "width": 1024}
        began = time.perf_counter()
        _, _, metadata = sender.put("0", "1", key, payload)
        connection.send((metadata, time.perf_counter() - began))
    sender.close()


def upstream(other: Other, lengths: dict[int, int]) -> dict[int, dict[str, float]]:
    receiver, found = connector("receiver"), {}
    for length, rounds in lengths.items():
        puts, gets = [], []
        for index in range(rounds + 3):
            key = f"{length}-{index}"
            metadata, put = other.ask("put", key, length)
            began = time.perf_counter()
            got = receiver.get("0", "1", key, metadata)
            if got is None:
                raise SystemExit("vLLM-Omni's connector returned nothing")
            gets.append(time.perf_counter() - began)
            puts.append(put)
        both = [put + get for put, get in zip(puts, gets, strict=True)]
        found[length] = {
            "put_ms": median_ms(puts[3:]), "get_ms": median_ms(gets[3:]), "put_and_get_ms": median_ms(both[3:])
        }  # fmt: skip
    receiver.close()
    return found


# --- the run


def memcpy_gb_s(length: int = 256 * MIB) -> float:
    source, target = np.ones(length, np.uint8), np.zeros(length, np.uint8)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        target[:] = source
        times.append(time.perf_counter() - began)
    return length / statistics.median(times) / 1e9


async def measure(rounds: int, count: int) -> dict[str, Any]:
    lengths = dict.fromkeys(SMALL, rounds) | dict.fromkeys(BIG, max(3, rounds // 40))
    found: dict[str, Any] = {"load_before": os.getloadavg()[0], "cores": os.cpu_count(), "memcpy_gb_s": memcpy_gb_s()}
    with Other(produce) as other:
        CONSUMER.append(Consumer(SETTINGS, FINGERPRINT))
        found["ours"] = {length: await ours(other, length, each) for length, each in lengths.items()}
        found["idle"] = await idle(other, 4.0)
        found["in_a_row"] = await many(other, count, 1)
        found["at_once"] = await many(other, max(640, count // 4), 64)
        found["transports"] = list(CONSUMER[0].transports().values())
        CONSUMER[0].close()
    with Other(raw_produce) as other:
        bare = raw(other, lengths)
        found["bare_read"] = {n: {"ms": 1e3 * s, "gb_s": n / s / 1e9} for n, s in bare.items()}
    with Other(upstream_produce) as other:
        found["vllm_omni"] = upstream(other, dict.fromkeys(SMALL, min(50, rounds)) | {64 * MIB: 5})
    found["load_after"] = os.getloadavg()[0]
    return found | {"ratios": ratios(found)}


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """The goals: 10 times faster than the connector when small, 80 % of a bare READ when big."""
    ours_, bare, theirs = found["ours"], found["bare_read"], found["vllm_omni"]
    return {
        f"times_faster_than_vllm_omni_{n // KIB}_kib": theirs[n]["put_and_get_ms"] / ours_[n]["publish_and_fetch_ms"]
        for n in SMALL
    } | {
        f"{name}_{n // MIB}_mib": ours_[n]["fetch_gb_s"] / base
        for n in BIG
        for name, base in (("share_of_bare_read", bare[n]["gb_s"]), ("share_of_memcpy", found["memcpy_gb_s"]))
    }


def table(found: dict[str, Any]) -> None:
    print(f"memcpy {found['memcpy_gb_s']:.2f} GB/s, load {found['load_before']:.1f} on {found['cores']} cores")
    print(
        f"{'bytes':>12} {'publish':>9} {'fetch':>9} {'both ms':>9} {'GB/s':>7} | {'bare READ ms':>12} {'GB/s':>7} | put+get ms"
    )
    for n, mine in found["ours"].items():
        bare, theirs = found["bare_read"][n], found["vllm_omni"].get(n, {}).get("put_and_get_ms", float("nan"))
        print(
            f"{n:>12} {mine['publish_ms']:>9.3f} {mine['fetch_ms']:>9.3f} {mine['publish_and_fetch_ms']:>9.3f} "
            f"{mine['fetch_gb_s']:>7.2f} | {bare['ms']:>12.3f} {bare['gb_s']:>7.2f} | {theirs:>10.3f}"
        )
    for name in ("ratios", "idle", "in_a_row", "at_once", "transports"):
        print(name, found[name])


@click.command()
@click.option("--rounds", default=400, show_default=True, help="Hand-offs a small size.")
@click.option("--count", default=10_000, show_default=True, help="Hand-offs in a row.")
@click.option("--quick", is_flag=True, help="A tenth of both.")
def main(rounds: int, count: int, quick: bool) -> None:
    """Measure, print a table, write bench/results/handoff.json."""
    found = asyncio.run(measure(rounds // (10 if quick else 1), count // (10 if quick else 1)))
    table(found)
    results.write("handoff", found)


if __name__ == "__main__":
    main()
