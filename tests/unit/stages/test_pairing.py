"""The scheduler pair of each stage, and what becomes of a pinned class: the failure that this room exists for."""

from pathlib import Path

import pytest

from services.stages import SchedulerPair, inspect
from services.stages.pairing import resolve_pair
from services.stages.source_reader import root_of
from tests.unit.stages.files import MINIMAL, Check, messages

SYNC = "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"
ASYNC = "vllm_omni.core.sched.omni_ar_scheduler.OmniARAsyncScheduler"


@pytest.mark.parametrize(
    ("flag", "pair", "said"),
    [
        (None, SchedulerPair(ASYNC, True), "OmniARAsyncScheduler, async on"),
        (True, SchedulerPair(ASYNC, True), "OmniARAsyncScheduler, async on"),
        (False, SchedulerPair(SYNC, False), "OmniARScheduler, async off"),
    ],
)
def test_the_pair_of_an_ar_stage(flag: bool | None, pair: SchedulerPair, said: str) -> None:
    assert resolve_pair("llm_ar", flag) == pair
    assert str(pair) == said


def test_a_diffusion_stage_has_none() -> None:
    assert resolve_pair("diffusion", True) == SchedulerPair(None, None)


def pinned(scheduler: str, flag: str = "") -> str:
    return MINIMAL.replace('    devices: "0"\n', f'    devices: "0"\n    scheduler_cls: {scheduler}\n{flag}')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (pinned(SYNC), "OmniARScheduler does not fit async_scheduling: true, which runs OmniARAsyncScheduler"),
        (pinned(SYNC, "    async_scheduling: true\n"), "OmniARScheduler does not fit async_scheduling: true"),
        (pinned(ASYNC, "    async_scheduling: false\n"), "OmniARAsyncScheduler does not fit async_scheduling: false"),
        (pinned(ASYNC), "vLLM-Omni chooses this class by itself and refuses a pinned one; remove this line"),
        (pinned(SYNC, "    async_scheduling: false\n"), "vLLM-Omni chooses this class by itself"),
        (pinned("[1]"), "does not fit async_scheduling"),
        (pinned("''"), "does not fit async_scheduling"),
        (MINIMAL + f"    scheduler_cls: {SYNC}\n", "a diffusion stage has no such scheduler; remove this line"),
        (
            MINIMAL.replace('    devices: "0"\n', f'    devices: "0"\n    engine_args: {{scheduler_cls: {SYNC}}}\n'),
            "OmniARScheduler does not fit",
        ),
    ],
)
def test_a_pinned_scheduler_is_refused_with_its_reason(check: Check, text: str, says: str) -> None:
    found = messages(check(text))
    assert len(found) == 1
    assert says in found[0]
    assert "remove this line" in found[0]


def test_a_platform_changes_the_pair_that_is_checked(check: Check) -> None:
    block = f"platforms: {{npu: {{stages: [{{stage_id: 0, async_scheduling: false, scheduler_cls: {SYNC}}}]}}}}\n"
    assert "vLLM-Omni chooses this class on npu by itself" in messages(check(MINIMAL + block))[0]
    block = f"platforms: {{npu: {{stages: [{{stage_id: 0, scheduler_cls: {SYNC}}}]}}}}\n"
    assert "does not fit async_scheduling: true on npu" in messages(check(MINIMAL + block))[0]


def test_the_platform_block_that_vllm_omni_bundles_is_flagged_at_its_line() -> None:
    path = root_of("vllm_omni") / "deploy" / "glm_image.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "scheduler_cls:" in text)
    found = [item for item in inspect(path, role="all", environ={}).errors if item.key.endswith("scheduler_cls")]
    assert [(item.place.line, item.key) for item in found] == [(line, "platforms.npu.stages[0].scheduler_cls")]
    assert "OmniARScheduler does not fit async_scheduling: true on npu" in found[0].message
    outside = [
        item for item in inspect(path, role="all", environ={}).errors if not item.key.startswith("platforms.npu")
    ]
    assert outside == []


def test_no_other_bundled_file_makes_the_checker_stumble() -> None:
    folder = root_of("vllm_omni") / "deploy"
    paths = sorted(Path(folder).glob("*.yaml"))
    assert len(paths) > 50
    for path in paths[::4]:
        assert inspect(path, role="all", environ={}).findings is not None
