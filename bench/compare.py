"""Writes bench/compare.md from what the benches left in bench/results: `python -m bench.compare`."""

from pathlib import Path
from typing import Any

from bench import results

OUT = Path(__file__).parent / "compare.md"


def main() -> None:
    """Write the page from whatever results there are."""
    parts = [
        "# Diptych beside its peers",
        "",
        "Made by `python -m bench.compare` from the results of the benches; do not edit.",
    ]
    for section in (_pipeline, _handoff, _gateway, _dit, _ar):
        lines = section()
        parts += ["", *lines] if lines else []
    OUT.write_text("\n".join(parts).rstrip() + "\n")


def _conditions(found: dict[str, Any]) -> list[str]:
    m = found["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return [
        f"{m['cores']} cores of {m['cpu']}, {m['memory_gib']} GiB, GPU: {m['gpu']}; Linux {m['kernel']}, "
        f"Python {m['python']}.",
        f"{packages}. Commit {found['commit']}, {found['made']}, `{found['command']}`.",
    ]


def _pipeline() -> list[str]:
    found = results.read("pipeline")
    if found is None:
        return []
    stacks = found["stacks"]
    return [
        "## The whole stack and `vllm serve --omni`",
        "",
        *_conditions(found),
        "",
        "The tiny random checkpoint, 256x256, 8 steps; clients that each ask again as soon as they have an image.",
        "",
        _rates(stacks),
        "",
        _starts(stacks),
    ]


def _handoff() -> list[str]:
    found = results.read("handoff")
    if found is None:
        return []
    names = {"ours": "diptych", "bare": "bare NIXL READ", "upstream": "vLLM-Omni NixlConnector", "memcpy": "memcpy"}
    rows = [
        [_size(int(length)), names[who], *(f"{row[key]:.3f}" for key in ("publish_ms", "fetch_ms", "both_ms"))]
        for length, sizes in found["sizes"].items()
        for who, row in sizes.items()
    ]
    return [
        "## The hand-off, a bare NIXL READ, and vLLM-Omni's connector",
        "",
        *_conditions(found),
        f"Load {found['load_before']:.1f} before, {found['load_after']:.1f} after.",
        "",
        "Medians; producer and consumer are two processes of one machine, and the contestants take turns.",
        "",
        results.table(["bytes", "who", "publish ms", "fetch ms", "both ms"], rows),
        "",
        goals(found["goals"]),
    ]


def goals(found: list[dict[str, Any]]) -> str:
    """The goals of a bench, met or not."""
    rows = [[row["goal"], f"{row['found']:.3g}", row["bound"], "yes" if row["met"] else "NO"] for row in found]
    return results.table(["goal", "found", "bound", "met"], rows)


def _size(length: int) -> str:
    return f"{length >> 20} MiB" if length >= 1 << 20 else f"{length >> 10} KiB"


def _gateway() -> list[str]:
    found = results.read("gateway")
    if found is None:
        return []
    return [
        "## The gateway, LiteLLM's proxy, and a minimal pass-through",
        "",
        *_conditions(found),
        "",
        "Stages of zero delay, one noisy 1024x1024 PNG a reply, all processes on the same cores.",
        "",
        gateways(found["rows"]),
    ]


def gateways(found: list[dict[str, Any]]) -> str:
    """The table of bench.gateway."""
    rows = [
        [
            row["name"],
            f"{row['added'] * 1000:.2f}",
            f"{row['requests_a_second']:.1f}",
            f"{row['probe_p99'] * 1000:.1f}",
            f"{row['memory_mib']:.0f}",
        ]
        for row in found
    ]
    head = ["through", "added ms, 1 client", "requests/s, 32 clients", "health p99 ms under load", "peak MiB"]
    return results.table(head, rows)


def _dit() -> list[str]:
    found = results.read("dit")
    if found is None:
        return []
    return [
        "## The denoising loop and vLLM-Omni's own",
        "",
        *_conditions(found),
        "",
        f"The tiny checkpoint in {found['dtype']}, {found['side']}x{found['side']}; the kinds take turns.",
        "",
        steps(found["kinds"]),
    ]


def steps(kinds: dict[str, dict[str, Any]]) -> str:
    """The table of bench.dit."""
    rows = [[kind, f"{row['median_ms']:.1f}", f"{row['min_ms']:.1f}", row["stalls"]] for kind, row in kinds.items()]
    return results.table(["a step of", "median ms", "least ms", "waits of a CUDA host"], rows)


def _ar() -> list[str]:
    found = results.read("ar")
    if found is None:
        return []
    return [
        "## The AR stage by batch",
        "",
        *_conditions(found),
        "",
        f"The tiny checkpoint, {found['side']}x{found['side']}, {found['tokens']} tokens an image.",
        "",
        batches(found["batches"]),
    ]


def batches(found: list[dict[str, Any]]) -> str:
    """The table of bench.ar."""
    keys = ("seconds", "tokens_per_second", "images_per_second")
    rows = [[str(row["batch"]), *(f"{row[key]:.2f}" for key in keys)] for row in found]
    return results.table(["batch", "seconds", "tokens/s", "images/s"], rows)


def _rates(stacks: dict[str, Any]) -> str:
    rows = [
        [
            name,
            str(row["clients"]),
            f"{row['rate']:.3f}",
            *(f"{row[p]:.2f}" for p in ("p50", "p95", "p99")),
            f"{row['others']:.0%}",
        ]
        for name, stack in stacks.items()
        for row in stack["rows"]
    ]
    return results.table(["stack", "clients", "images/s", "p50 s", "p95 s", "p99 s", "others"], rows)


def _starts(stacks: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{stack['start']:.1f}",
            f"{sum(stack['memory'].values()):.2f}",
            " ".join(f"{k} {v:.2f}" for k, v in stack["memory"].items()),
        ]
        for name, stack in stacks.items()
    ]
    return results.table(["stack", "ready after s", "peak GiB", "of which"], rows)


if __name__ == "__main__":
    main()
