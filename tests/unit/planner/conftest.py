"""A small profile with round numbers: AR 10 s alone, 20 s for four together; DiT 20 s."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from services.planner.profile import Profile, parse

ROUND: dict[str, Any] = {
    "name": "round",
    "origin": "measured",
    "device": "a test",
    "memory_gib": 80,
    "sources": ["made up"],
    "ar": {"runs": [{"width": 1024, "height": 1024, "seconds": {1: 10.0, 4: 20.0}}]},
    "dit": {"runs": [{"width": 1024, "height": 1024, "steps": 50, "seconds": 20.0}]},
}


@pytest.fixture
def content() -> dict[str, Any]:
    """The profile as it would be in a file; a test may change it."""
    return deepcopy(ROUND)


@pytest.fixture
def make() -> Callable[..., Profile]:
    """A profile with some of its top-level fields replaced."""
    return lambda **changes: parse(json.dumps(ROUND | changes), "test")
