"""A small stage configuration, and how the tests speak about what is wrong with one."""

from collections.abc import Callable
from pathlib import Path

from services.stages import Inspection

ROOT = Path(__file__).parents[3]

# The least that passes: a published checkpoint, two stages on two devices.
MINIMAL = """
model: zai-org/GLM-Image
async_chunk: false
stages:
  - stage_id: 0
    devices: "0"
  - stage_id: 1
    devices: "1"
"""

Check = Callable[..., Inspection]


def messages(inspection: Inspection) -> list[str]:
    """The errors as `line key: message`."""
    return [f"{item.place.line} {item.key}: {item.message}" for item in inspection.errors]
