"""The closed forms, against cases that are known exactly."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.queueing import erlang_c, shared, single
from services.wire.errors import ConfigError


@pytest.mark.parametrize(
    ("offered", "servers", "waits"),
    [(0.5, 1, 0.5), (1.0, 2, 1 / 3), (8.0, 10, 0.4092)],  # M/M/1: the load; M/M/2: 2 load^2 / (1 + load); tables
)
def test_erlang_c(offered: float, servers: int, waits: float) -> None:
    assert erlang_c(offered, servers) == pytest.approx(waits, abs=1e-4)


@given(st.floats(0.01, 0.99), st.integers(1, 500))
def test_waiting_is_a_probability_and_rises_with_load(load: float, servers: int) -> None:
    here, more = erlang_c(load * servers, servers), erlang_c(min(0.995, load * 1.004) * servers, servers)
    assert 0 <= here <= more <= 1


def test_one_place_a_server_is_the_single_server_queue() -> None:
    stage = shared(0.8, 1.0, 1, 1, lambda _: 1.0)
    assert stage.load == pytest.approx(0.8)
    assert stage.present == pytest.approx(0.8 / 0.2, rel=1e-4)  # M/M/1


def test_a_batch_that_costs_nothing_is_a_server_for_everyone() -> None:
    stage = shared(2.0, 3.0, 1, 1000, lambda _: 1.0)
    assert stage.present == pytest.approx(6.0)  # M/G/infinity
    assert all(slow == pytest.approx(1.0) and wait == 0 for _, slow, wait in stage.seen)


@given(st.floats(0.05, 0.95), st.integers(1, 6), st.integers(1, 16))
def test_what_jobs_see_agrees_with_littles_law(load: float, servers: int, places: int) -> None:
    slowdown = lambda n: 1 + 0.1 * (n - 1)  # noqa: E731
    alone = 2.0
    rate = load * servers * places / (alone * slowdown(places))
    stage = shared(rate, alone, servers, places, slowdown)
    sojourn = math.fsum(p * (slow * alone + wait) for p, slow, wait in stage.seen)
    assert sojourn == pytest.approx(stage.present / rate, rel=1e-3)
    assert math.fsum(p for p, _, _ in stage.seen) == pytest.approx(1, abs=1e-4)


def test_constant_times_halve_the_wait_of_exponential_ones() -> None:
    constant, exponential = single(0.8, 1.0, 1, 0.0), single(0.8, 1.0, 1, 1.0)
    assert exponential.waits / exponential.rate == pytest.approx(2 * constant.waits / constant.rate)
    assert constant.longer(-1) == 1


def test_more_states_than_can_be_counted_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than the planner counts"):
        shared(1.0, 1.0, 5000, 4096, lambda _: 1.0)
