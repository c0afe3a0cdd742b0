"""A stack of real services around simulator engines that take no time, for tests of many calls."""

from collections.abc import Iterator

import pytest

from tests.stack import Stack, launched

NO_TIME = {"DIPTYCH_SIM_AR_SECONDS": "0", "DIPTYCH_SIM_STEP_SECONDS": "0", "DIPTYCH_SIM_VAE_SECONDS": "0"}


@pytest.fixture(scope="session")
def sim_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Gateway, AR and DiT with `--engine sim`, ready."""
    folder = tmp_path_factory.mktemp("sim")
    environ = {"DIPTYCH_ENGINE": "sim", "DIPTYCH_STORAGE_URL": str(folder / "images"), **NO_TIME}
    with launched(folder / "services.log", environ) as running:
        yield running
