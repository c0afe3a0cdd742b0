"""`diptych status` and `diptych top`: the whole deployment as one table."""

import time

import click
import httpx
import msgspec

from services.wire.info import GatewayInfo, ReplicaInfo, StageInfo

TIMEOUT = 5.0  # seconds for one service to answer
CLEAR = "\x1b[H\x1b[2J"  # cursor home, erase
COLUMNS = ("STAGE", "URL", "STATE", "RUNS", "WAITS", "SLOTS", "ARENA", "ENGINE", "TP", "UP", "NOTE")

Row = tuple[str, ...]


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s"


def _arena(handoff: dict[str, float]) -> str:
    size = handoff.get("arena_bytes", 0)
    return f"{handoff.get('bytes_in_use', 0) / size:.0%}" if size else "-"


def stage_row(url: str, info: StageInfo, state: str = "", note: str = "") -> Row:
    """A stage service's row. state: what a gateway says of it; by default, what it says of itself."""
    own = "draining" if info.draining else "ready" if info.ready else "not-ready"
    return (
        info.stage,
        url,
        state or own,
        f"{info.running}/{info.capacity}",
        str(info.waiting),
        f"{info.handoff['slots_live']:.0f}" if "slots_live" in info.handoff else "-",
        _arena(info.handoff),
        info.engine,
        str(info.tensor_parallel_size),
        _ago(info.uptime),
        note or info.reason,
    )


def _replica_row(replica: ReplicaInfo) -> Row:
    if replica.said is None:
        return (replica.stage, replica.url, replica.state, *"-" * 7, replica.reason)
    return stage_row(replica.url, replica.said, replica.state, replica.reason)


def gateway_rows(url: str, info: GatewayInfo) -> list[Row]:
    """A gateway's row, and one for each replica that it knows."""
    running = sum(count for phase, count in info.jobs.items() if phase != "queue")
    state = "draining" if info.draining else "ready" if info.ready else "not-ready"
    note = info.reason or (f"one more image: about {info.estimate:.1f} s" if info.estimate else "")
    waits = f"{info.jobs.get('queue', 0)}/{info.max_jobs}"
    own = ("gateway", url, state, str(running), waits, "-", "-", info.engine, "-", _ago(info.uptime), note)
    return [own, *map(_replica_row, info.replicas)]


def rows_of(client: httpx.Client, url: str) -> list[Row]:
    """The rows of one service at base URL `url`; an unreachable or foreign one gets a row that says so."""
    try:
        reply = client.get(f"{url.rstrip('/')}/v1/info")
        reply.raise_for_status()
        stage = msgspec.json.decode(reply.content, type=dict[str, msgspec.Raw]).get("stage", b"")
        if b"gateway" in bytes(stage) or not stage:
            return gateway_rows(url, msgspec.json.decode(reply.content, type=GatewayInfo))
        return [stage_row(url, msgspec.json.decode(reply.content, type=StageInfo))]
    except httpx.HTTPStatusError as error:
        why = "a key is needed: --key" if error.response.status_code == 401 else f"HTTP {error.response.status_code}"
    except httpx.HTTPError as error:
        why = f"{type(error).__name__}: {error}"
    except msgspec.MsgspecError as error:
        why = f"not a Diptych service: {error}"
    return [("?", url, "lost", *"-" * 7, why)]


def table(rows: list[Row]) -> str:
    """`rows` under COLUMNS, aligned."""
    cells = [COLUMNS, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def deployment(urls: tuple[str, ...], key: str) -> tuple[str, bool]:
    """The table for all `urls`, and whether every row is ready. key: the gateway's API key, or ""."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(timeout=TIMEOUT, headers=headers, trust_env=False) as client:
        rows = [row for url in urls for row in rows_of(client, url)]
    return table(rows), all(row[2] == "ready" for row in rows)


def refresh(urls: tuple[str, ...], key: str, interval: float) -> None:
    """Print the table again and again, until Ctrl-C."""
    try:
        while True:
            text, _ = deployment(urls, key)
            click.echo(f"{CLEAR}{time.strftime('%H:%M:%S')}  every {interval:g} s, Ctrl-C ends\n\n{text}")
            time.sleep(interval)
    except KeyboardInterrupt:
        click.echo()
