"""The table of `diptych status`, from what services say of themselves."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from services import cli
from services.console import status
from services.console.status import COLUMNS, gateway_rows, rows_of, stage_row, table
from services.wire.info import GatewayInfo, ReplicaInfo, StageInfo

AR = StageInfo(
    instance="ar-1",
    stage="ar",
    ready=True,
    model="m",
    engine="sim",
    running=2,
    waiting=1,
    capacity=8,
    handoff={"slots_live": 3.0, "arena_bytes": 100.0, "bytes_in_use": 25.0},
    uptime=7200.0,
)
GATEWAY = GatewayInfo(
    instance="gateway-1",
    ready=False,
    reason="no dit replica is known",
    jobs={"queue": 4, "ar": 1, "ready": 0, "dit": 2},
    max_jobs=256,
    engine="sim",
    replicas=[
        ReplicaInfo(stage="ar", url="http://ar", state="ready", said=AR),
        ReplicaInfo(stage="dit", url="http://dit", state="lost", reason="not reachable"),
    ],
)


def served(body: bytes, status: int = 200) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status, content=body)))


def test_a_stage_is_one_row() -> None:
    row = dict(zip(COLUMNS, stage_row("http://ar", AR), strict=True))
    assert row["STATE"] == "ready"
    assert (row["RUNS"], row["WAITS"], row["SLOTS"], row["ARENA"], row["UP"]) == ("2/8", "1", "3", "25%", "2.0h")


def test_a_gateway_shows_its_replicas_too() -> None:
    rows = rows_of(served(msgspec.json.encode(GATEWAY)), "http://gateway/")
    assert rows == gateway_rows("http://gateway/", GATEWAY)
    assert [row[0] for row in rows] == ["gateway", "ar", "dit"]
    assert rows[0][3:5] == ("3", "4/256")
    assert rows[2][2] == "lost"
    assert rows[2][-1] == "not reachable"


def test_what_is_no_service_of_ours_is_said() -> None:
    assert "not a Diptych service" in rows_of(served(b"<html>"), "http://x")[0][-1]
    assert "--key" in rows_of(served(b"{}", 401), "http://x")[0][-1]
    assert "HTTP 500" in rows_of(served(b"", 500), "http://x")[0][-1]


def test_columns_line_up() -> None:
    lines = table(gateway_rows("http://gateway", GATEWAY)).splitlines()
    assert len({line.index("http") for line in lines[1:]}) == 1
    assert lines[0].startswith("STAGE")


def test_an_unreachable_deployment_is_exit_code_1() -> None:
    result = CliRunner().invoke(cli.main, ["status", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "ConnectError" in result.output


@pytest.fixture
def deployment() -> Iterator[Any]:
    """A server that says `told` to whoever brings the key; `keys` are those that were brought."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.keys.append(self.headers["authorization"])
            body = msgspec.json.encode(server.told)
            self.send_response(200 if self.path == "/v1/info" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.told, server.keys = GATEWAY, []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_status_shows_the_whole_deployment_and_exits_by_its_health(deployment: Any) -> None:
    sick = CliRunner().invoke(cli.main, ["status", deployment.url], env={"DIPTYCH_API_KEY": "k"})
    assert sick.exit_code == 1
    assert [line.split()[0] for line in sick.output.splitlines()] == ["STAGE", "gateway", "ar", "dit"]
    assert "not reachable" in sick.output
    deployment.told = AR
    well = CliRunner().invoke(cli.main, ["status", deployment.url, deployment.url, "--key", "other"])
    assert well.exit_code == 0
    assert [line.split()[2] for line in well.output.splitlines()[1:]] == ["ready", "ready"]
    assert deployment.keys == ["Bearer k", "Bearer other", "Bearer other"]


def test_top_shows_it_again_and_again_until_ctrl_c(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        deployment.told = AR
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(status.time, "sleep", sleep)
    shown = CliRunner().invoke(cli.main, ["top", deployment.url, "--interval", "0.5"], color=True)
    assert shown.exit_code == 0
    assert slept == [0.5, 0.5]
    first, second = shown.output.split(status.CLEAR)[1:]
    assert "lost" in first
    assert "lost" not in second
    assert "every 0.5 s" in second
