"""The scheduler of a stage, as vLLM-Omni itself pairs it with `async_scheduling`."""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from services.stages.source_reader import evaluate, imported_names

_STAGE_CONFIG = "vllm_omni.config.stage_config"


@dataclass(frozen=True, slots=True)
class SchedulerPair:
    """A scheduler class by dotted path (None: a diffusion stage has none) and whether async scheduling is on."""

    scheduler_cls: str | None
    async_scheduling: bool | None

    def __str__(self) -> str:
        if self.scheduler_cls is None:
            return "-"
        return f"{self.scheduler_cls.rpartition('.')[2]}, async {'on' if self.async_scheduling else 'off'}"


@cache
def _upstream() -> dict[str, Any]:
    """`_resolve_scheduler` and `_scheduler_path` of vLLM-Omni, with stand-ins for the classes that they choose from."""
    stand_ins: dict[str, Any] = {"Enum": Enum}
    for local, (module, name) in imported_names(_STAGE_CONFIG).items():
        if ".core.sched." in module:
            stand_ins[local] = type(name, (), {"__module__": module, "__qualname__": name})
    return evaluate(_STAGE_CONFIG, {"StageExecutionType", "_resolve_scheduler", "_scheduler_path"}, stand_ins)


def resolve_pair(execution_type: str, async_scheduling: bool | None) -> SchedulerPair:
    """The pair for a stage. execution_type: `llm_ar`, `llm_generation` or `diffusion`; None: the key is not given.

    Source: `_resolve_scheduler` and `BaseVllmOmniStageConfig.scheduler_cls` (unset means on).
    """
    upstream = _upstream()
    kind = upstream["StageExecutionType"](execution_type)
    wanted = True if async_scheduling is None else async_scheduling
    path = upstream["_scheduler_path"](upstream["_resolve_scheduler"](kind, wanted))
    return SchedulerPair(path, None if path is None else wanted)
