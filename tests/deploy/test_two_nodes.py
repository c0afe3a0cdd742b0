"""launch.sh on two nodes, each with its own variables: the image comes back, and its tokens crossed the wire."""

import base64
import io
import json

import pytest
from PIL import Image

from tests.deploy.compose import eventually
from tests.deploy.nodes import ROOT, two_nodes

PYTHON = str(ROOT / ".venv/bin/python")
UCX = {"UCX_TLS": "tcp,self", "DIPTYCH_HANDOFF_PORT_RANGE": "41000-41063", "DIPTYCH_HANDOFF_TRANSFER_DEADLINE": "4"}
POST = """
import httpx, json, sys
reply = httpx.post(sys.argv[1], content=sys.argv[2], headers={"content-type": "application/json"}, timeout=170)
print(json.dumps({"status": reply.status_code, "body": reply.json()}))
"""
GET = "import httpx, sys; print(httpx.get(sys.argv[1], timeout=10).text)"


class Deployment:
    """The AR on one node; the DiT and the gateway on the other."""

    def __init__(self, ar, dit) -> None:
        self.ar, self.dit = ar, dit

    def generate(self, size: str, **changes) -> dict:
        body = json.dumps({"prompt": "a red apple", "size": size, "num_inference_steps": 1, "seed": 5} | changes)
        url = "http://127.0.0.1:8000/v1/images/generations"
        return json.loads(self.dit.run(PYTHON, "-c", POST, url, body))

    def moved_by_nixl(self) -> float:
        lines = self.dit.run(PYTHON, "-c", GET, f"http://{self.dit.address}:8102/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("diptych_nixl_bytes_total"))


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    logs = tmp_path_factory.mktemp("nodes")
    with two_nodes(logs) as (first, second):
        gateway = {
            "AR_URLS": f"http://{first.address}:8101",
            "DIT_URLS": f"http://{second.address}:8102",
            "DIPTYCH_DEADLINE": "60",
            "DIPTYCH_OUTAGE_GRACE": "2",
        }
        launched = [
            first.launch("ar", ADVERTISE_HOST=first.address, **UCX),
            second.launch("dit", ADVERTISE_HOST=second.address, **UCX),
            second.launch("gateway", **gateway),
        ]
        eventually(lambda: all(service.ready() for service in launched), 400, "all three services are ready")
        yield Deployment(first, second)


def test_an_image_comes_back_and_its_tokens_crossed_the_wire(deployment):
    deployment.generate("256x256")  # the connection's own messages are not counted below
    nixl, wire, device = deployment.moved_by_nixl(), deployment.dit.ucx_bytes(), deployment.dit.received_bytes()
    reply = deployment.generate("1024x1024")
    assert reply["status"] == 200, reply["body"]
    image = Image.open(io.BytesIO(base64.b64decode(reply["body"]["data"][0]["b64_json"])))
    assert image.size == (1024, 1024)
    moved = deployment.moved_by_nixl() - nixl
    assert moved >= 32 * 32 * 4  # 1024 tokens of the large grid, 4 bytes each
    assert deployment.dit.ucx_bytes() - wire >= moved
    assert deployment.dit.received_bytes() - device >= moved


def test_closed_ports_give_a_clear_error_in_time_and_open_ones_an_image(deployment):
    deployment.dit.close_ucx_ports()
    try:
        reply = deployment.generate("256x256")
    finally:
        deployment.dit.open_ucx_ports()
    assert reply["status"] in (503, 504), reply
    error = reply["body"]["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert any(word in error["message"].lower() for word in ("hand-off", "handoff", "transfer", "peer", "read")), error
    eventually(lambda: deployment.generate("256x256")["status"] == 200, 120, "an image once the ports are open")


def test_a_wrong_advertised_address_ends_the_launch_with_its_name(deployment):
    launched = deployment.ar.launch("ar", ADVERTISE_HOST=deployment.dit.address, DIPTYCH_AR_PORT="8191", **UCX)
    assert launched.process.wait(30) == 2
    assert deployment.dit.address in launched.log.read_text()
