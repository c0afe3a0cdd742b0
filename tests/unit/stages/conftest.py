"""A stage configuration from a few lines of text, and its check."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from services.stages import Inspection, Role, inspect
from tests.unit.stages.files import Check


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Write the text to a file and inspect it."""

    def run(text: str, *, role: Role = "all", environ: Mapping[str, str] | None = None) -> Inspection:
        path = tmp_path / "stages.yaml"
        path.write_text(dedent(text), encoding="utf-8")
        return inspect(path, role=role, environ=environ or {})

    return run
