"""The scheduler of a stage, as vLLM-Omni itself pairs it with `async_scheduling`."""

from dataclasses import dataclass

from services.stages.findings import Findings, shown
from services.stages.upstream import upstream_value
from services.stages.view import StageView

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


def resolve_pair(execution_type: str, async_scheduling: bool | None) -> SchedulerPair:
    """The pair for a stage. execution_type: `llm_ar`, `llm_generation` or `diffusion`; None: the key is not given.

    Source: `_resolve_scheduler` and `BaseVllmOmniStageConfig.scheduler_cls` (unset means on).
    """
    kind = upstream_value(_STAGE_CONFIG, "StageExecutionType")(execution_type)
    wanted = True if async_scheduling is None else async_scheduling
    choose = upstream_value(_STAGE_CONFIG, "_resolve_scheduler")
    path = upstream_value(_STAGE_CONFIG, "_scheduler_path")(choose(kind, wanted))
    return SchedulerPair(path, None if path is None else wanted)


def check_pairing(view: StageView, platform: str | None, findings: Findings) -> SchedulerPair:
    """The pair of a stage; a pinned `scheduler_cls` is an error, with its reason."""
    wanted = view.values.get("async_scheduling")
    pair = resolve_pair(view.kind.execution_type, wanted if isinstance(wanted, bool) else None)
    pinned = view.values.get("scheduler_cls")
    if pinned is not None:
        findings.error(view.place_of("scheduler_cls"), view.key_of("scheduler_cls"), _reason(pinned, pair, platform))
    return pair


def _reason(pinned: object, pair: SchedulerPair, platform: str | None) -> str:
    on = f" on {platform}" if platform else ""
    if pair.scheduler_cls is None:
        return "a diffusion stage has no such scheduler; remove this line"
    if pinned == pair.scheduler_cls:
        return f"vLLM-Omni chooses this class{on} by itself and refuses a pinned one; remove this line"
    flag = "true" if pair.async_scheduling else "false"
    return (
        f"{shown(pinned).strip(chr(39)).rpartition('.')[2]} does not fit async_scheduling: {flag}{on}, which runs "
        f"{str(pair.scheduler_cls).rpartition('.')[2]}: the engine dies with a KeyError at the first request (and "
        "vLLM-Omni 0.30 refuses the key); remove this line"
    )
