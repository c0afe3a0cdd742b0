"""One gateway with a fake painter for all tests that need no settings of their own."""

from collections.abc import AsyncIterator

import pytest

from tests.service.gateway.serve import Served, serving


@pytest.fixture(scope="session")
async def shared(tmp_path_factory) -> AsyncIterator[Served]:
    async with serving(storage_url=str(tmp_path_factory.mktemp("images"))) as served:
        yield served


@pytest.fixture
def gateway(shared: Served) -> Served:
    """The shared gateway, with a painter that forgot earlier tests."""
    fresh = type(shared.painter)()
    vars(shared.painter).update(vars(fresh), started=1)
    return shared
