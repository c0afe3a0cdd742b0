"""The DiT at tensor parallel sizes 1, 2 and, where there are devices for it, 4: `make bench-tp`.

Prints seconds and memory an image beside the figures published for the real model. On a CPU this shows the shape of
the thing only: two ranks on two cores share what one rank had to itself.
"""

import argparse
import asyncio
import statistics
from typing import Any

import psutil

from bench import results
from bench.processes import BenchFailed, Stack, diptych
from bench.stage_times import stages_of

PUBLISHED = {1: (46.778, 23.14), 2: (38.317, 17.804), 4: (32.187, 14.798)}  # s, GiB: vllm-omni pull request 1918
SIDE, STEPS, REPEATS = 256, 8, 9


async def _render(stack: Stack, side: int) -> tuple[float, float]:
    """Median seconds of an image and of its denoising."""
    async with stages_of(stack, side, STEPS) as stages:
        prior = await stages.write()
        await stages.render(prior)  # warm
        seen = [await stages.render(prior) for _ in range(REPEATS)]
    return statistics.median(s for s, _ in seen), statistics.median(times.get("denoise", 0.0) for _, times in seen)


def _measure(tp: int, side: int, config: dict[str, str]) -> dict[str, Any]:
    with diptych(name=f"tp{tp}", DIT_TP=str(tp), **config) as stack:
        seconds, denoise = asyncio.run(_render(stack, side))
        ranks = [tree for name, tree in stack.pids().items() if name.startswith("dit")]
        memory = max(process.memory_info().rss for tree in ranks for process in tree) / 2**30
    return {"tp": tp, "seconds": seconds, "denoise": denoise, "gib_of_one_rank": memory, "start": stack.ready_after}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tp", type=int, nargs="+", default=[tp for tp in (1, 2, 4) if tp <= (psutil.cpu_count() or 1)]
    )
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--config", help="stage configuration, if not the CPU's")
    options = parser.parse_args()
    config = {"DIPTYCH_STAGE_CONFIG": options.config} if options.config else {}
    rows, failed = [], []
    for tp in options.tp:
        try:
            rows.append(_measure(tp, options.side, config))
        except BenchFailed as error:
            failed.append(f"TP {tp}: {error}")
    head = ["TP", "s an image", "of it denoising", "GiB of the largest rank", "published s", "published GiB"]
    print(f"{options.side}x{options.side}, {STEPS} steps, here; published: the real model, GPU not named")
    print(results.table(head, [_row(row) for row in rows]))
    print("\n".join(failed))
    results.write("tp", {"side": options.side, "steps": STEPS, "rows": rows, "failed": failed})


def _row(row: dict[str, Any]) -> list[str]:
    seconds, gib = PUBLISHED.get(row["tp"], ("", ""))
    here = [f"{row['seconds']:.3f}", f"{row['denoise']:.3f}", f"{row['gib_of_one_rank']:.2f}"]
    return [str(row["tp"]), *here, str(seconds), str(gib)]


if __name__ == "__main__":
    main()
