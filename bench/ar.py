"""The AR stage alone: start-up, and tokens a second by batch.

    python -m bench.ar [--model DIR] [--side 256] [--batches 1,4,8]

Without --model: the tiny checkpoint, which is real machinery and no model; its figures say what the machinery costs.
"""

import time

STARTED = time.perf_counter()  # before the imports, which are most of a start

import asyncio  # noqa: E402
import statistics  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import click  # noqa: E402

from bench import compare, results  # noqa: E402
from services.omni.ar_stage import VllmArEngine  # noqa: E402
from services.omni.checkpoint import open_checkpoint  # noqa: E402
from services.omni.tiny_model import write_tiny_model  # noqa: E402
from services.serving.engine import PriorJob  # noqa: E402
from services.wire.geometry import prior_budget  # noqa: E402

ROOT = Path(__file__).parents[1]


@click.command()
@click.option("--model", help="A checkpoint directory; default: the tiny checkpoint.")
@click.option("--side", default=256, show_default=True, help="Pixels.")
@click.option("--batches", default="1,4,8", show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--kv-mib", default=128, show_default=True, help="KV cache, MiB.")
def main(model: str | None, side: int, batches: str, repeats: int, kv_mib: int) -> None:
    """Measure the AR stage and write bench/results/ar.json."""
    path = model or str(write_tiny_model(ROOT / ".cache" / "tiny-glm-image"))
    sizes = [int(size) for size in batches.split(",")]
    found = asyncio.run(measure(path, side, sizes, repeats, kv_mib << 20))
    print(f"start-up {found['start_seconds']:.1f} s, imports included; {found['tokens']} tokens an image")
    print(compare.batches(found["batches"]))
    print(results.write("ar", found))


async def measure(model: str, side: int, sizes: list[int], repeats: int, kv_bytes: int) -> dict[str, Any]:
    """Medians over `repeats` runs of each batch size, after one run to warm up."""
    args = {
        "devices": "0",
        "max_num_seqs": max(sizes),
        "max_model_len": 8192,
        "max_num_batched_tokens": 8192,
        "enforce_eager": True,
        "kv_cache_memory_bytes": kv_bytes,
    }
    engine = VllmArEngine(open_checkpoint(model, 0), args)
    await engine.start()
    start_seconds = time.perf_counter() - STARTED
    tokens = prior_budget(side, side, edit=False) - 1
    rows = []
    try:
        for size in sizes:
            await _batch(engine, side, size, run=0)
            seconds = statistics.median([await _batch(engine, side, size, run) for run in range(1, repeats + 1)])
            rates = {"tokens_per_second": size * tokens / seconds, "images_per_second": size / seconds}
            rows.append({"batch": size, "seconds": seconds, **rates})
    finally:
        await engine.stop()
    return {"start_seconds": start_seconds, "side": side, "tokens": tokens, "repeats": repeats, "batches": rows}


async def _batch(engine: VllmArEngine, side: int, size: int, run: int) -> float:
    jobs = [
        PriorJob(request_id=f"{size}-{run}-{i}", prompt=f"a cat, number '{i}'", width=side, height=side, seed=i)
        for i in range(size)
    ]
    started = time.perf_counter()
    await asyncio.gather(*(engine.write(job) for job in jobs))
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
