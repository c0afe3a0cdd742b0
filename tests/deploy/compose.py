"""A compose project under test, driven through the client that is here, as a user would."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

DEPLOY = Path(__file__).parents[2] / "deploy"


def docker(*arguments: str, check: bool = True, timeout: float = 120) -> str:
    """stdout of a docker command. Raises CalledProcessError with what it said."""
    return _run(["docker", *arguments], os.environ, check, timeout)


def _run(command: Sequence[str], environ: Mapping[str, str], check: bool, timeout: float) -> str:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def eventually(look: Callable[[], object], seconds: float, what: str) -> None:
    """Ask until `look` is true. Raises AssertionError that says `what` never came."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.3)


class Compose:
    """Files of deploy/, a project of their own, and variables."""

    def __init__(self, files: Sequence[str], environ: Mapping[str, str], project: str = "") -> None:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
        self._client = ["docker", "compose"] if plugin else ["docker-compose"]
        self.project = project or f"diptychtest{os.getpid()}"
        self._files = list(files)
        self.environ = dict(environ)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.environ['GATEWAY_PORT']}"

    def with_file(self, name: str, **environ: str) -> "Compose":
        """The same project with one more file."""
        return Compose([*self._files, name], self.environ | environ, self.project)

    def __call__(self, *arguments: str, check: bool = True, timeout: float = 120) -> str:
        files = [option for name in self._files for option in ("--file", str(DEPLOY / name))]
        command = [*self._client, "--project-name", self.project, *files, *arguments]
        return _run(command, {**os.environ, **self.environ}, check, timeout)

    def containers(self, service: str) -> list[dict]:
        """`docker inspect` of each container of a service."""
        label = f"label=com.docker.compose.project={self.project}"
        ids = docker(
            "ps", "--all", "--quiet", "--filter", label, "--filter", f"label=com.docker.compose.service={service}"
        )
        return json.loads(docker("inspect", *ids.split())) if ids.split() else []

    def execute(self, service: str, *command: str, check: bool = True) -> str:
        """stdout of a command inside the first container of a service."""
        return docker("exec", self.containers(service)[0]["Id"], *command, check=check)

    def metrics(self, service: str, port: int) -> dict[str, float]:
        """Samples by their full name with labels, read inside the container: the port is not published."""
        url = f"http://127.0.0.1:{port}/metrics"
        fetch = f"import urllib.request as u; print(u.urlopen('{url}', timeout=10).read().decode())"
        lines = self.execute(service, "python3", "-c", fetch).splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", timeout=5).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def wait_ready(self, seconds: float) -> None:
        eventually(self.ready, seconds, f"{self.url}/ready answers 200")
