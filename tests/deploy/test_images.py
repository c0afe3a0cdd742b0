"""What is in the two images, and what is not."""

import json
import subprocess

import pytest

from tests.deploy.compose import docker

ENGINE, GATEWAY = "diptych-engine:cpu", "diptych-gateway:latest"


def run(image: str, *command: str, options: tuple[str, ...] = ()) -> str:
    return docker("run", "--rm", "--network", "none", *options, "--entrypoint", command[0], image, *command[1:])


def test_the_gateway_is_small_and_has_no_torch():
    assert int(docker("image", "inspect", "--format", "{{.Size}}", GATEWAY)) < 250 * 10**6
    found = "import importlib.util as u; print([n for n in ('torch', 'vllm', 'nixl', 'pip') if u.find_spec(n)])"
    assert run(GATEWAY, "python3", "-c", found).strip() == "[]"


def test_the_engine_has_one_nixl_wheel():
    listed = "from importlib.metadata import distributions as d; print(*sorted(x.name for x in d()))"
    names = run(ENGINE, "python3", "-c", listed).split()
    assert [name for name in names if name.startswith("nixl")] == ["nixl", "nixl-cu13"]


@pytest.mark.parametrize("image", [ENGINE, GATEWAY])
def test_an_image_names_an_unprivileged_user_and_an_init(image):
    config = json.loads(docker("image", "inspect", image))[0]["Config"]
    assert config["User"] == "10001:0"
    assert config["Entrypoint"] == ["tini", "--", "diptych"]


@pytest.mark.parametrize("image", [ENGINE, GATEWAY])
def test_any_user_id_may_run_it_on_a_read_only_root(image):
    folder = {ENGINE: "/var/cache/diptych", GATEWAY: "/var/lib/diptych"}[image]
    options = ("--user", "234567:0", "--read-only", "--cap-drop", "ALL", "--volume", folder)
    assert run(image, "sh", "-c", f"touch {folder}/x && id -u", options=options).strip() == "234567"


@pytest.mark.parametrize("image", [ENGINE, GATEWAY])
def test_build_secrets_stay_out(image):
    look = "find /run/secrets /root/.cache /root/.config -type f 2>/dev/null; cat /etc/pip.conf 2>/dev/null; true"
    assert run(image, "sh", "-c", look, options=("--user", "0")).strip() == ""  # mount points stay, files do not
    assert "pip.conf:" not in docker("history", "--no-trunc", image)


def test_an_unknown_command_ends_with_a_word_not_a_traceback():
    done = subprocess.run(["docker", "run", "--rm", GATEWAY, "nonsense"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "No such command" in done.stderr


def test_a_wrong_setting_is_named_before_anything_starts():
    command = ["docker", "run", "--rm", "--env", "DIPTYCH_GATEWAY_PORT=none", GATEWAY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "DIPTYCH_GATEWAY_PORT" in done.stderr
    assert "Traceback" not in done.stderr
