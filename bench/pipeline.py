"""The whole stack beside `vllm serve --omni`: same checkpoint, same machine, same run. `make bench`.

Prints images a second, latency percentiles, the stage split, peak memory and start-up for 1 AR : 1 DiT and the
monolith at each number of clients, then 1 AR : 2 DiT; writes bench/results/pipeline.json and bench/compare.md.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from bench import compare, results
from bench.load import Ask, Seen, closed
from bench.monolith import monolith
from bench.processes import Stack, diptych
from bench.stages import phases

IMAGES = {1: 16, 4: 40, 8: 56, 16: 64}  # by clients: about half a minute each on two cores
WARM_UP = 4  # images, not measured
NOISY = 0.10  # of the machine: more than this used by others makes a row untrustworthy


def measure(make: Callable[[], AbstractContextManager[Stack]], clients: list[int], rounds: int) -> dict[str, Any]:
    """One stack at each number of clients, `rounds` times from a fresh start; of the rounds, the median rate's row."""
    rows: dict[int, list[dict[str, Any]]] = {count: [] for count in clients}
    starts, memory, commands = [], {}, []
    for _ in range(rounds):
        with make() as stack:
            starts.append(stack.ready_after)
            pids = [process.pid for process in stack.processes.values()]
            say(f"{stack.name}: ready after {stack.ready_after:.1f} s")
            asyncio.run(closed(stack.url, 1, WARM_UP, Ask()))
            for count in clients:
                rows[count].append(_row(stack, count, pids))
            memory, commands = stack.memory(), stack.commands
    best = [sorted(rows[count], key=lambda row: row["rate"])[len(rows[count]) // 2] for count in clients]
    return {"start": statistics.median(starts), "starts": starts, "memory": memory, "commands": commands, "rows": best}


def _row(stack: Stack, clients: int, pids: list[int]) -> dict[str, Any]:
    before, cpu = phases(stack.url), stack.cpu_seconds()
    seen: Seen = asyncio.run(closed(stack.url, clients, IMAGES.get(clients, 4 * clients), Ask(), pids))
    after = phases(stack.url)
    split = {name: (after[name] - before.get(name, 0.0)) / max(1, seen.images) for name in after}
    used = {name: (spent - cpu[name]) / max(1, seen.images) for name, spent in stack.cpu_seconds().items()}
    noisy = f" ({seen.others:.0%} of the machine was used by others)" if seen.others > NOISY else ""
    say(f"  {clients:2} clients: {seen.rate:.3f} images/s, p50 {seen.at(0.5):.2f} s{noisy} {seen.errors or ''}")
    return seen.row() | {"split": split, "cpu_seconds_an_image": used}


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=1, help="fresh starts of each stack")
    parser.add_argument("--only", choices=["diptych", "monolith", "two-dits"], action="append")
    options = parser.parse_args()
    wanted = options.only or ["diptych", "monolith", "two-dits"]
    stacks: dict[str, Callable[[], AbstractContextManager[Stack]]] = {
        "monolith": monolith,
        "diptych": diptych,
        "two-dits": lambda: diptych(dit=2, name="two-dits"),
    }
    found = {name: measure(stacks[name], options.clients, options.rounds) for name in stacks if name in wanted}
    old = results.read("pipeline") or {}
    results.write("pipeline", {"stacks": old.get("stacks", {}) | found if options.only else found})
    compare.main()


if __name__ == "__main__":
    main()
