"""docs/settings.md is what the settings classes say, and names every variable that the code reads."""

import importlib.util
import re
from pathlib import Path

import pytest
from pydantic import Field
from pydantic_settings import BaseSettings

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "docs/settings_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(writer):
    assert (ROOT / "docs/settings.md").read_text() == writer.page(), (
        "run: python docs/settings_page.py > docs/settings.md"
    )


def test_every_settings_class_is_on_the_page(writer):
    source = "\n".join(path.read_text() for path in (ROOT / "services").rglob("*settings.py"))
    classes = set(re.findall(r"^class (\w+Settings)\(", source, re.M))
    shown = {parent.__name__ for _, kind, _, _ in writer.ROOMS for parent in kind.__mro__}
    assert classes <= shown


def test_a_field_becomes_a_row(writer):
    class Example(BaseSettings, env_prefix="DIPTYCH_"):
        workers: int = Field(default=2, ge=1, le=64, description="How many.")
        names: tuple[str, ...] = Field(default=("a", "b"), description="Which | ones.")

    first, second = writer.rows(Example, ())
    assert first == "| `DIPTYCH_WORKERS` | whole number, from 1 to 64 | `2` | How many. |"
    assert second == "| `DIPTYCH_NAMES` | comma list | `a,b` | Which \\| ones. |"


def test_every_setting_says_what_it_does(writer):
    silent = [
        f"{kind.__name__}.{name}"
        for _, kind, _, _ in writer.ROOMS
        for name, field in kind.model_fields.items()
        if not field.description
    ]
    assert silent == []
