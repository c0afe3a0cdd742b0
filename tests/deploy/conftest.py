"""Deployment tests need root, a container engine and images: tests/deploy/run.sh (`make test-deploy`) brings them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.compose import Compose
from tests.stack import free_ports

if "DIPTYCH_TEST_DEPLOY" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.deploy)
        item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder that run.sh prepared."""
    return Path(os.environ["DIPTYCH_TEST_DEPLOY"])


@pytest.fixture(scope="module")
def stack(tools: Path) -> Iterator[Compose]:
    """compose.cpu.yaml, up and ready on a free port; its logs are kept in compose.log, and nothing else."""
    (port,) = free_ports(1)
    compose = Compose(["compose.cpu.yaml"], {"GATEWAY_PORT": str(port)})
    try:
        compose("up", "--detach", timeout=840)
        compose.wait_ready(120)
        yield compose
    finally:
        (tools / "compose.log").write_text(compose("logs", "--no-color", check=False))
        compose("down", "--volumes", "--remove-orphans", timeout=240)
