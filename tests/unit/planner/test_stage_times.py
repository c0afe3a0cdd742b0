from collections.abc import Callable

import pytest

from services.planner.profile import Profile
from services.planner.stage_times import ar_times, dit_times
from services.planner.workload import Kind, parse_mix
from services.wire.errors import ConfigError

BIG = Kind(1024, 1024, 50)
MIX = parse_mix(("1024x1024:50",))


def test_the_measured_points_come_back(make: Callable[..., Profile]) -> None:
    (ar,), (dit,) = ar_times(make(), 80, MIX), dit_times(make(), 80)
    assert ar.alone(BIG) == 10
    assert ar.alone(BIG) * ar.slowdown(4) == 20
    assert dit.seconds(BIG) == pytest.approx(20)
    assert ar.max_batch == 4
    assert ar.most(MIX) == pytest.approx(4 / 20)


def test_between_and_beyond_the_points(make: Callable[..., Profile]) -> None:
    (ar,), (dit,) = ar_times(make(), 80, MIX), dit_times(make(), 80)
    assert ar.slowdown(2) == pytest.approx(1 + 1 / 3)
    assert ar.slowdown(99) == 2  # a batch does not grow beyond what was measured
    assert ar.alone(Kind(512, 512, 50)) == pytest.approx(10 * (256 + 256 + 1) / 1281)  # prior tokens
    assert dit.seconds(Kind(1024, 1024, 25)) == pytest.approx(10)
    assert dit.seconds(Kind(512, 512, 50)) == pytest.approx(5)


def test_two_sizes_give_the_power_of_growth_and_fixed_parts_do_not_scale(make: Callable[..., Profile]) -> None:
    runs = [
        {"width": 512, "height": 512, "steps": 10, "seconds": 3.0, "fixed_seconds": 1.0},
        {"width": 1024, "height": 1024, "steps": 10, "seconds": 17.0, "fixed_seconds": 1.0},  # 4 x pixels, 8 x seconds
    ]
    (dit,) = dit_times(make(dit={"runs": runs}), 80)
    assert dit.seconds(Kind(1024, 1024, 20)) == pytest.approx(33)
    assert dit.seconds(Kind(2048, 2048, 10)) == pytest.approx(1 + 16 * 8)
    assert dit.seconds(Kind(1024, 512, 10)) == pytest.approx(1 + 2 * 8**0.5)


def test_memory_bounds_the_batch_and_the_tensor_parallel_sizes(make: Callable[..., Profile]) -> None:
    run = {"width": 1024, "height": 1024, "memory_gib": 18, "seconds": {1: 10.0, 4096: 20.0}}
    profile = make(ar={"kv_kib_per_token": 40, "runs": [run, run | {"tp": 2, "memory_gib": 9}]})
    one, two = ar_times(profile, 24, MIX)
    kv_of_one_image = 40 * 1281 / 2**20  # GiB
    assert one.max_batch == int((24 * 0.9 - 18) / kv_of_one_image)
    assert two.max_batch == int((24 * 0.9 - 9) / (kv_of_one_image / 2))
    assert [each.tp for each in ar_times(profile, 16, MIX)] == [2]
    assert ar_times(profile, 24, MIX, batch=3)[0].max_batch == 3


def test_a_gpu_that_holds_neither_stage_is_named(make: Callable[..., Profile]) -> None:
    run = {"width": 1024, "height": 1024, "steps": 50, "seconds": 20.0, "memory_gib": 20}
    profile = make(dit={"runs": [run]})
    with pytest.raises(ConfigError, match=r"DiT stage .* fits no GPU of 16 GiB"):
        dit_times(profile, 16)
    with pytest.raises(ConfigError, match="AR stage"):
        ar_times(make(ar={"runs": [{"width": 64, "height": 64, "memory_gib": 50, "seconds": {1: 1.0}}]}), 40, MIX)
