"""The hand-off beside a bare NIXL READ and vLLM-Omni's own connector: two processes each, one machine, one run.

    python -m bench.handoff [--quick]

The three take turns within each second, and those whose turn it is not are stopped, so that noise hits all alike;
ratios are medians over the turns. Writes bench/results/handoff.json. Needs about 6 GiB of memory; on a busy machine the
figures are of that machine.
"""

import os
import statistics
import time
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from bench import compare, results
from bench.handoff_peers import KIB, MIB, Contestant, contestants

SMALL, BIG = (32 * KIB, 128 * KIB), (64 * MIB, 1024 * MIB)
PUBLISH_AND_FETCH_MS = {32 * KIB: 0.5, 128 * KIB: 1.0}  # the goals: at most
TIMES_FASTER, SHARE_OF_BARE, IDLE_PERCENT = 10.0, 0.8, 3.0  # at least, at least, at most
UPSTREAM_MOST = 64 * MIB  # bytes
MEMCPY = 256 * MIB  # bytes

Turn = dict[str, list[tuple[float, float]]]  # by contestant: seconds of (publish, fetch), one pair a hand-off


def turns(peers: dict[str, Contestant], length: int, count: int, each: int) -> list[Turn]:
    """`count` turns of `each` hand-offs for everyone, the first turn and two hand-offs a small turn as warm-up."""
    extra = 2 if length in SMALL else 0
    copied = np.ones(MEMCPY, np.uint8), np.full(MEMCPY, 2, np.uint8)  # touched pages
    found: list[Turn] = []
    for _ in range(count + 1):
        turn: Turn = {}
        for name, peer in peers.items():
            if name != "upstream" or length <= UPSTREAM_MOST:
                turn[name] = peer.ask("turn", length, each + extra)[extra:]
        if length in BIG:
            turn["memcpy"] = [(0.0, memcpy_seconds(*copied) * length / MEMCPY)]
        found.append(turn)
    for peer in peers.values():
        peer.ask("forget", length)
    return found[1:]


def memcpy_seconds(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> float:
    began = time.perf_counter()
    target[:] = source
    return time.perf_counter() - began


def summary(found: list[Turn], length: int) -> dict[str, Any]:
    """By contestant: medians over all hand-offs, in milliseconds, and the median rate of the fetches."""
    summed = {}
    for name in found[0]:
        pairs = [pair for turn in found for pair in turn[name]]
        publish, fetch = zip(*pairs, strict=True)
        summed[name] = {
            "publish_ms": _ms(publish),
            "fetch_ms": _ms(fetch),
            "both_ms": _ms(map(sum, pairs)),
            "fetch_gb_s": round(length / statistics.median(fetch) / 1e9, 3),
        }
    return summed


def _ms(seconds: Any) -> float:
    return round(1e3 * statistics.median(seconds), 4)


def ratio(found: list[Turn], over: str, under: str, *, fetch_only: bool) -> float:
    """The median over the turns of `over`'s median time divided by `under`'s."""
    of = lambda turn, name: statistics.median(pair[1] if fetch_only else sum(pair) for pair in turn[name])  # noqa: E731
    return round(statistics.median(of(turn, over) / of(turn, under) for turn in found), 3)


def measure(rounds: int, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {"load_before": os.getloadavg()[0], "cores": os.cpu_count(), "sizes": {}, "ratios": {}}
    with contestants() as peers:
        for length in (*SMALL, *BIG):
            each, many = (10, max(4, rounds // 10)) if length in SMALL else (1, max(5, rounds // 20))
            measured = turns(peers, length, many, each)
            found["sizes"][length] = summary(measured, length)
            found["ratios"][length] = ratios(measured, length)
        ours = peers["ours"]
        found["idle"] = ours.ask("idle", 4.0)
        found["in_a_row"] = ours.ask("many", count, 1)
        found["at_once"] = ours.ask("many", max(640, count // 4), 64)
        found["transports"] = ours.ask("transports")
    found["load_after"] = os.getloadavg()[0]
    return found | {"goals": goals(found)}


def ratios(found: list[Turn], length: int) -> dict[str, float]:
    """Above 1: ours is faster."""
    shares = {
        f"fetch_over_{name}": ratio(found, name, "ours", fetch_only=True)
        for name in ("bare", "memcpy")
        if name in found[0]
    }
    if "upstream" in found[0]:
        shares["times_faster_than_upstream"] = ratio(found, "upstream", "ours", fetch_only=False)
    return shares


def goals(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Each with what was found, its bound, and whether it was met."""
    rows: list[tuple[str, float, str, float]] = []
    for length, bound in PUBLISH_AND_FETCH_MS.items():
        rows.append(
            (f"publish and fetch, {length // KIB} KiB, ms", found["sizes"][length]["ours"]["both_ms"], "<=", bound)
        )
        faster = found["ratios"][length]["times_faster_than_upstream"]
        rows.append((f"times faster than vLLM-Omni's, {length // KIB} KiB", faster, ">=", TIMES_FASTER))
    for length in BIG:
        share = found["ratios"][length]["fetch_over_bare"]
        rows.append((f"share of a bare READ's rate, {length // MIB} MiB", share, ">=", SHARE_OF_BARE))
    rows += [(f"idle, {name}", value, "<=", IDLE_PERCENT) for name, value in found["idle"].items()]
    for name in ("in_a_row", "at_once"):
        for side in ("producer_growth", "consumer_growth"):
            grown = found[name][side]
            rows += [
                (f"{name}, {side}, {what}", grown[what], "<=", 0) for what in ("file_descriptors", "threads", "in_use")
            ]
            rows.append((f"{name}, {side}, MiB", grown["rss_mib"], "<=", 8.0))  # an allocator's slack, not a slope
    return [
        {
            "goal": goal,
            "found": value,
            "bound": f"{sign} {bound}",
            "met": value <= bound if sign == "<=" else value >= bound,
        }
        for goal, value, sign, bound in rows
    ]


def show(found: dict[str, Any]) -> None:
    print(f"load {found['load_before']:.1f} to {found['load_after']:.1f} on {found['cores']} cores")
    rows = [
        [str(length), name, *(str(row[column]) for column in ("publish_ms", "fetch_ms", "both_ms", "fetch_gb_s"))]
        for length, sizes in found["sizes"].items()
        for name, row in sizes.items()
    ]
    print(results.table(["bytes", "who", "publish ms", "fetch ms", "both ms", "fetch GB/s"], rows))
    print(compare.goals(found["goals"]))
    for name in ("ratios", "in_a_row", "at_once", "transports"):
        print(name, found[name])


@click.command()
@click.option("--rounds", default=400, show_default=True, help="Hand-offs a small size; a twentieth of them a big one.")
@click.option("--count", default=10_000, show_default=True, help="Hand-offs in a row; a quarter of them 64 at once.")
@click.option("--quick", is_flag=True, help="A tenth of both.")
def main(rounds: int, count: int, quick: bool) -> None:
    """Measure, print tables, write bench/results/handoff.json."""
    found = measure(rounds // (10 if quick else 1), count // (10 if quick else 1))
    show(found)
    results.write("handoff", found)


if __name__ == "__main__":
    main()
