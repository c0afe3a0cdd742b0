"""`diptych demo`: one picture through the public API, with the time that each stage took."""

import base64
from pathlib import Path

import click
import httpx

from services.wire.errors import DiptychError, StageUnavailable

PROMPT = 'a red apple on a wooden table, with a label that says "Diptych"'


def paint_one(url: str, out: Path, *, size: str = "256x256", steps: int = 8) -> None:
    """Write one PNG to `out`. Raises StageUnavailable or DiptychError with the gateway's own words."""
    body = {"prompt": PROMPT, "size": size, "num_inference_steps": steps, "seed": 7}
    try:
        reply = httpx.post(f"{url}/v1/images/generations", json=body, timeout=600)
    except httpx.TransportError as error:
        raise StageUnavailable(f"no gateway on {url}: {error}") from error
    if reply.status_code != httpx.codes.OK:
        raise DiptychError(f"HTTP {reply.status_code}: {reply.text[:500]}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(base64.b64decode(reply.json()["data"][0]["b64_json"]))
    click.echo(f"wrote {out.resolve()}: {size}, {steps} steps, {reply.elapsed.total_seconds():.2f} s in all")
    for name, milliseconds in _phases(reply.headers.get("server-timing", "")):
        click.echo(f"  {name:8} {milliseconds / 1000:7.3f} s")


def _phases(header: str) -> list[tuple[str, float]]:
    """(phase, milliseconds) of a Server-Timing header such as `ar;dur=812.4, denoise;dur=190.1`."""
    found = []
    for entry in filter(None, (part.strip() for part in header.split(","))):
        name, _, duration = entry.partition(";dur=")
        found.append((name, float(duration)))
    return found
