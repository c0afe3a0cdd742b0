from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner import profile as profiles
from services.planner.predict import predict
from services.planner.profile import Profile
from services.planner.search import meets, monolith, plan
from services.planner.workload import Target, parse_mix
from services.wire.errors import ConfigError

MIX = parse_mix(("1024x1024:50",))


@pytest.mark.parametrize(("rate", "p95"), [(0.05, None), (0.5, None), (0.5, 60.0), (3.0, 45.0)])
def test_the_plan_meets_the_target_and_one_dit_less_does_not(
    make: Callable[..., Profile], rate: float, p95: float | None
) -> None:
    target = Target(rate, MIX, p95)
    found = plan(make(), target, 80)
    assert meets(found.prediction, target)
    fewer = replace(found.fleet, dit=found.fleet.dit - 1)
    assert found.fleet.dit == 1 or not meets(predict(fewer, rate, MIX), target)


@given(st.floats(0.01, 20), st.floats(32, 300))
@settings(max_examples=12, deadline=None)
def test_any_plan_meets_its_target(rate: float, p95: float) -> None:
    target = Target(rate, MIX, 2 * p95)
    found = plan(profiles.load("a800"), target, 80)
    assert meets(found.prediction, target)
    other = monolith(profiles.load("a800"), target, 80)
    assert other is not None
    assert meets(other.prediction, target)
    assert other.fleet.ar == other.fleet.dit
    assert found.fleet.gpus <= other.fleet.gpus  # a pair is a fleet too


def test_a_tight_p95_buys_tensor_parallel_dits() -> None:
    table = profiles.load("dit-tp")
    calm = plan(table, Target(0.1, MIX, 200.0), 80)
    tight = plan(table, Target(0.1, MIX, 60.0), 80)
    assert calm.fleet.dit_times.tp == 1
    assert tight.fleet.dit_times.tp == 4
    assert tight.prediction.p95 <= 60 < table.ar.runs[0].seconds[1] + 38.317


def test_a_monolith_on_one_gpu_runs_its_stages_in_turn() -> None:
    found = monolith(profiles.load("h100"), Target(0.001, MIX), 80)
    assert found is not None
    assert found.fleet.gpus == 1
    assert found.prediction.most == pytest.approx(1 / found.fleet.alone(MIX[0]), rel=1e-6)


def test_a_p95_below_the_time_of_one_image_is_said_to_be_so(make: Callable[..., Profile]) -> None:
    with pytest.raises(ConfigError, match=r"takes 30\.0 s with nobody else there"):
        plan(make(), Target(1.0, MIX, 29.0), 80)


def test_a_few_slow_images_may_miss_the_p95(make: Callable[..., Profile]) -> None:
    mix = parse_mix(("512x512:50:0.97", "1024x1024:50:0.03"))
    found = plan(make(), Target(0.1, mix, 25.0), 80)
    assert found.prediction.p95 <= 25 < found.fleet.alone(mix[1])


def test_a_rate_beyond_any_fleet_is_refused(make: Callable[..., Profile]) -> None:
    with pytest.raises(ConfigError, match="at most 5000 replicas"):
        plan(make(), Target(1e5, MIX), 80)
    assert monolith(make(), Target(1e5, MIX), 80) is None


def test_a_saturated_fleet_has_no_latency(make: Callable[..., Profile]) -> None:
    found = plan(make(), Target(0.1, MIX), 80)
    beyond = predict(found.fleet, 2 * found.prediction.most, MIX)
    assert not beyond.stable
    assert beyond.p50 == float("inf")
