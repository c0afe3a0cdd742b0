"""One tiny checkpoint for all unit tests of this room."""

from pathlib import Path

import pytest

from services.omni.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
