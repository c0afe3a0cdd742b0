"""compose.cpu.yaml as a user would run it: real engines, real NIXL between containers, the published port."""

import base64
import io
import json
import os
import signal
import subprocess

import httpx
from PIL import Image

from tests.deploy.compose import docker, eventually
from tests.stack import free_ports

GENERATION = {"prompt": 'a red apple, labelled "Diptych"', "size": "200x136", "num_inference_steps": 2, "seed": 11}


def generate(stack, **changes) -> httpx.Response:
    return httpx.post(f"{stack.url}/v1/images/generations", json=GENERATION | changes, timeout=180)


def picture(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text)))


def kill(container: dict) -> None:
    """SIGKILL to a container's first process, as the kernel does to one that is out of memory."""
    os.kill(container["State"]["Pid"], signal.SIGKILL)


def test_services_start_in_health_order(stack):
    (ar,), (dit,), (gateway,), (model,) = map(stack.containers, ("ar", "dit", "gateway", "model"))
    assert model["State"]["ExitCode"] == 0
    for engine in (ar, dit):
        assert engine["State"]["Health"]["Status"] == "healthy"
        assert model["State"]["FinishedAt"] <= engine["State"]["StartedAt"] < gateway["State"]["StartedAt"]
    eventually(
        lambda: stack.containers("gateway")[0]["State"]["Health"]["Status"] == "healthy", 60, "a healthy gateway"
    )


def test_a_generation_comes_back_and_its_tokens_crossed_by_nixl(stack):
    before = stack.metrics("dit", 8102)
    reply = generate(stack)
    assert reply.status_code == 200, reply.text
    image = picture(reply.json()["data"][0]["b64_json"])
    assert (image.format, image.size) == ("PNG", (200, 136))
    after = stack.metrics("dit", 8102)
    moved = sum(after[name] - before.get(name, 0) for name in after if name.startswith("diptych_nixl_bytes_total"))
    assert moved >= (224 // 32) * (160 // 32) * 4  # the large grid of the canonical size, 4 bytes a token


def test_an_edit_comes_back(stack):
    source = io.BytesIO()
    Image.effect_noise((96, 64), 60).convert("RGB").save(source, "PNG")
    reply = httpx.post(
        f"{stack.url}/v1/images/edits",
        data={"prompt": "make it blue", "size": "96x64", "num_inference_steps": "2"},
        files={"image": ("source.png", source.getvalue(), "image/png")},
        timeout=180,
    )
    assert reply.status_code == 200, reply.text
    assert picture(reply.json()["data"][0]["b64_json"]).size == (96, 64)


def test_a_stream_shows_previews_and_completes(stack):
    events = []
    body = GENERATION | {"stream": True, "partial_images": 2, "num_inference_steps": 4}
    with httpx.stream("POST", f"{stack.url}/v1/images/generations", json=body, timeout=180) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: ")]
    assert [event["type"].rsplit(".", 1)[1] for event in events] == ["partial_image", "partial_image", "completed"]
    assert picture(events[-1]["b64_json"]).size == (200, 136)


def test_a_stored_result_is_served(stack):
    url = generate(stack, response_format="url").json()["data"][0]["url"]
    assert url.startswith(stack.url)
    assert Image.open(io.BytesIO(httpx.get(url, timeout=30).content)).size == (200, 136)


def test_no_container_has_root_or_may_write_outside_its_volumes(stack):
    for service in ("ar", "dit", "gateway"):
        status = dict(line.split(":", 1) for line in stack.execute(service, "cat", "/proc/1/status").splitlines())
        assert status["Uid"].split() == ["10001"] * 4
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"].strip() == "1"
        assert "no" in stack.execute(service, "sh", "-c", "touch /app/x 2>/dev/null && echo yes || echo no")


def test_only_the_gateway_is_published(stack):
    for service in ("ar", "dit"):
        assert not any(stack.containers(service)[0]["NetworkSettings"]["Ports"].values())
    (published,) = stack.containers("gateway")[0]["NetworkSettings"]["Ports"]["8000/tcp"]
    assert published["HostIp"] == "127.0.0.1"


def test_prometheus_scrapes_every_service_and_loads_the_rules(stack, tools):
    """With the distribution's Prometheus: the image that the file names cannot be had everywhere."""
    recipe = "FROM diptych-base:bookworm\nCOPY prometheus /bin/prometheus\nENTRYPOINT ['/bin/prometheus']\n".replace(
        "'", '"'
    )
    image = f"{stack.project}-prometheus"
    context = str((tools / "prometheus/usr/bin").resolve())
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", image, "--file", "-", context], input=recipe.encode(), check=True
    )
    (port,) = free_ports(1)
    watched = stack.with_file("compose.observability.yaml", PROMETHEUS_IMAGE=image, PROMETHEUS_PORT=str(port))

    def ask(path: str) -> dict:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10).json()["data"]
        except httpx.TransportError:
            return {}

    def jobs_up() -> set[str]:
        return {
            target["labels"]["job"] for target in ask("targets").get("activeTargets", []) if target["health"] == "up"
        }

    try:
        watched("up", "--detach", "--no-deps", "prometheus")
        eventually(lambda: jobs_up() == {"diptych-gateway", "diptych-ar", "diptych-dit"}, 120, "three scraped jobs")
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        assert len(rules) >= 10
        assert all(rule["health"] in ("ok", "unknown") for rule in rules)
        images = 'query?query=sum(diptych_images_total{outcome="ok"})'
        eventually(lambda: float(ask(images)["result"][0]["value"][1]) >= 1, 60, "a counted image")
    finally:
        watched("rm", "--stop", "--force", "prometheus")
        docker("volume", "rm", f"{stack.project}_prometheus", check=False)
        docker("image", "rm", image, check=False)


def test_a_second_dit_is_found_and_used(stack):
    stack("up", "--detach", "--no-recreate", "--scale", "dit=2", "dit", timeout=300)
    ready = "diptych_replica_state{replica="

    def replicas() -> int:
        samples = stack.metrics("gateway", 8000)
        return sum(
            value
            for name, value in samples.items()
            if name.startswith(ready) and 'stage="dit"' in name and '"ready"' in name
        )

    eventually(lambda: replicas() == 2, 300, "two ready DiT replicas")
    reply = generate(stack, n=4, num_inference_steps=8)
    assert reply.status_code == 200, reply.text
    calls = [name for name in stack.metrics("gateway", 8000) if "replica_calls_total" in name and 'stage="dit"' in name]
    assert len([name for name in calls if 'outcome="ok"' in name]) == 2
    stack("up", "--detach", "--no-recreate", "--scale", "dit=1", "dit", timeout=300)
    eventually(lambda: replicas() == 1, 60, "one DiT replica again")


def test_killed_engines_come_back_by_themselves(stack):
    for service in ("dit", "ar"):
        before = stack.containers(service)[0]
        kill(before)
        eventually(lambda: stack.containers(service)[0]["RestartCount"] == 1, 60, f"a restart of {service}")  # noqa: B023
        eventually(lambda: generate(stack).status_code == 200, 300, f"an image after {service} was killed")
        assert stack.containers(service)[0]["State"]["StartedAt"] > before["State"]["StartedAt"]


def test_a_killed_gateway_comes_back(stack):
    kill(stack.containers("gateway")[0])
    eventually(lambda: stack.containers("gateway")[0]["RestartCount"] == 1, 60, "a restart of the gateway")
    stack.wait_ready(60)
    assert generate(stack).status_code == 200


def test_a_stop_is_clean_and_leaves_nothing(stack):
    stack("stop", "--timeout", "190", timeout=240)
    for service in ("gateway", "ar", "dit"):
        assert stack.containers(service)[0]["State"]["ExitCode"] == 0, service
    stack("down", "--volumes", timeout=120)
    label = f"label=com.docker.compose.project={stack.project}"
    for kind in ("container", "network", "volume"):
        assert docker(kind, "ls", "--quiet", "--filter", label, *(["--all"] if kind == "container" else [])) == ""
