"""The simulation, and the closed form against it."""

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from services.gateway.estimates import Estimates
from services.planner.predict import Fleet, predict
from services.planner.profile import Contention, Profile
from services.planner.simulate import _Run, simulate
from services.planner.stage_times import ar_times, dit_times
from services.planner.workload import parse_mix
from services.wire.errors import ConfigError

MIX = parse_mix(("1024x1024:50",))


def _fleet(profile: Profile, ar: int = 1, dit: int = 4) -> Fleet:
    return Fleet(ar=ar, ar_times=ar_times(profile, 80, MIX)[0], dit=dit, dit_times=dit_times(profile, 80)[0])


def test_one_client_sees_both_stages_one_after_the_other(make: Callable[..., Profile]) -> None:
    found = simulate(_fleet(make()), MIX, jobs=100, seed=1, clients=1)
    assert found.p50 == found.p99 == pytest.approx(30.0)
    assert found.rate == pytest.approx(1 / 30)


def test_enough_clients_keep_the_slower_stage_busy(make: Callable[..., Profile]) -> None:
    few_dits = simulate(_fleet(make(), dit=2), MIX, jobs=2000, seed=1, clients=32)
    many_dits = simulate(_fleet(make(), dit=16), MIX, jobs=2000, seed=1, clients=64)
    assert few_dits.rate == pytest.approx(2 / 20, rel=0.02)  # the DiT's
    assert many_dits.rate == pytest.approx(4 / 20, rel=0.02)  # the AR's, with full batches
    assert many_dits.batch == pytest.approx(4, rel=0.02)


def test_a_seed_repeats_a_run_and_another_one_does_not(make: Callable[..., Profile]) -> None:
    runs = [simulate(_fleet(make()), MIX, jobs=500, seed=seed, rate=0.15) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(("ar", "dit", "load"), [(1, 3, 0.5), (1, 3, 0.85), (4, 12, 0.8), (20, 60, 0.9)])
def test_the_closed_form_is_within_15_percent_of_the_simulation(
    make: Callable[..., Profile], ar: int, dit: int, load: float
) -> None:
    fleet = _fleet(make(), ar, dit)
    rate = load * min(fleet.ar_most(MIX), fleet.dit_most(MIX))
    expected, found = predict(fleet, rate, MIX), simulate(fleet, MIX, jobs=8000, seed=3, rate=rate)
    assert found.rate == pytest.approx(rate, rel=0.03)
    assert found.dit_busy == pytest.approx(expected.dit_load, rel=0.05)
    assert found.p50 == pytest.approx(expected.p50, rel=0.15)
    assert found.p95 == pytest.approx(expected.p95, rel=0.15)


def test_a_thousand_replicas_can_be_simulated(make: Callable[..., Profile]) -> None:
    fleet = _fleet(make(), 250, 1000)
    found = simulate(fleet, MIX, jobs=5000, seed=1, rate=0.8 * fleet.dit_most(MIX))
    assert 30 <= found.p50 <= found.p95 < 60


def test_shared_cores_slow_both_stages(make: Callable[..., Profile]) -> None:
    alone = _fleet(make(), dit=1)
    shared = replace(alone, contention=Contention(ar=2, dit=2))
    one = simulate(shared, MIX, jobs=100, seed=1, clients=1)
    assert one.p50 == pytest.approx(30.0)  # one image is never in both stages
    pair = [simulate(fleet, MIX, jobs=1000, seed=1, clients=8).rate for fleet in (alone, shared)]
    assert pair[1] < 0.8 * pair[0]
    assert predict(shared, 0.02, MIX).p50 > predict(alone, 0.02, MIX).p50


@pytest.mark.parametrize(("ar", "dit"), [(0.5, 2.0), (20.0, 5.0), (3.0, 3.0), (1000.0, 1.0)])
def test_the_look_ahead_is_the_gateways(make: Callable[..., Profile], ar: float, dit: float) -> None:
    simpy = pytest.importorskip("simpy")
    run = _Run(simpy.Environment(), _fleet(make(), ar=2, dit=5), MIX, None)  # type: ignore[arg-type]
    estimates = Estimates()
    assert run._look_ahead() == estimates.look_ahead(ar_places=8, dit_places=5)  # before anything was measured
    run._ar_seconds, run._dit_seconds = ar, dit
    estimates.wrote(ar)
    estimates.rendered(dit, 1.0)
    assert run._look_ahead() == estimates.look_ahead(ar_places=8, dit_places=5)


@pytest.mark.parametrize("jobs", [0, 99, 10**9])
def test_a_number_of_jobs_out_of_range_is_refused(make: Callable[..., Profile], jobs: int) -> None:
    with pytest.raises(ConfigError, match="--jobs"):
        simulate(_fleet(make()), MIX, jobs=jobs, seed=1, rate=0.1)


def test_without_simpy_it_says_what_to_install(make: Callable[..., Profile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simpy", None)
    with pytest.raises(ConfigError, match="pip install simpy"):
        simulate(_fleet(make()), MIX, jobs=100, seed=1, rate=0.1)
