"""The real stack, started once for all end-to-end tests."""

from collections.abc import Iterator

import pytest

from tests.stack import Stack, launched


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Gateway, AR and DiT on the tiny checkpoint, ready."""
    with launched(tmp_path_factory.mktemp("stack") / "services.log") as running:
        yield running


@pytest.fixture(scope="session")
def base_url(stack: Stack) -> str:
    """The gateway of the real stack."""
    return stack.gateway
