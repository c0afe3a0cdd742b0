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
    for section in (_pipeline,):
        parts += ["", *section()]
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
