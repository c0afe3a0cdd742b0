"""Stage configurations: YAML files and the environment in, checked and literal settings out."""

from services.stages.model import (
    ConnectorSettings,
    Deployment,
    ResolvedStage,
    Role,
    literal_document,
    write_literal,
)
from services.stages.pairing import SchedulerPair
from services.stages.resolve import Inspection, inspect, resolve

__all__ = [
    "ConnectorSettings",
    "Deployment",
    "Inspection",
    "ResolvedStage",
    "Role",
    "SchedulerPair",
    "inspect",
    "literal_document",
    "resolve",
    "write_literal",
]
