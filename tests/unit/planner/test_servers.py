"""The simulated replicas, against arithmetic done by hand."""

import simpy

from services.planner.servers import Pool, Server


def _ends(env: simpy.Environment, server: Server, jobs: list[tuple[float, float]]) -> list[float]:
    ends: list[float] = [0.0] * len(jobs)

    def one(at: int, begins: float, seconds: float):
        yield env.timeout(begins)
        yield server.serve(seconds)
        ends[at] = env.now

    for at, (begins, seconds) in enumerate(jobs):
        env.process(one(at, begins, seconds))
    env.run()
    return ends


def test_jobs_slow_each_other_while_they_share_a_batch() -> None:
    env = simpy.Environment()
    server = Server(env, 4, lambda n: float(n))
    assert _ends(env, server, [(0, 10), (5, 10)]) == [15, 20]  # 5 alone, then both at half the pace
    assert server.busy_seconds == 20
    assert server.job_seconds == 15 + 15


def test_jobs_beyond_the_places_wait_their_turn() -> None:
    env = simpy.Environment()
    assert _ends(env, Server(env, 1, lambda _: 1.0), [(0, 10), (0, 10), (0, 5)]) == [10, 20, 25]


def test_the_other_stage_on_the_same_cores_stretches_the_rest_of_a_job() -> None:
    env = simpy.Environment()
    server = Server(env, 1, lambda _: 1.0)

    def disturb():
        yield env.timeout(4)
        server.restretch(2.0)

    env.process(disturb())
    assert _ends(env, server, [(0, 10)]) == [4 + 2 * 6]


def _acquired(env: simpy.Environment, pool: Pool, count: int, seconds: float = 10.0) -> list[int]:
    order: list[int] = []

    def one():
        server = yield from pool.acquire(seconds)
        order.append(server.index)

    for _ in range(count):
        env.process(one())
    env.run()
    return order


def test_the_ar_replica_with_the_most_room_gets_the_next_job() -> None:
    env = simpy.Environment()
    pool = Pool(env, [Server(env, 2, lambda _: 1.0) for _ in range(3)], 2, by_time=False)
    assert _acquired(env, pool, 5) == [0, 1, 2, 0, 1]


def test_of_busy_dits_the_one_that_is_free_first_gets_the_next_job() -> None:
    env = simpy.Environment()
    pool = Pool(env, [Server(env, 1, lambda _: 1.0) for _ in range(2)], 2, by_time=True)
    assert _acquired(env, pool, 1, seconds=10) == [0]
    env.timeout(3)
    env.run()
    assert _acquired(env, pool, 1, seconds=8) == [1]  # free at 11, the other one at 10
    assert _acquired(env, pool, 1) == [0]


def test_a_job_that_finds_no_room_gets_the_next_free_place() -> None:
    env = simpy.Environment()
    pool = Pool(env, [Server(env, 1, lambda _: 1.0)], 1, by_time=True)
    assert _acquired(env, pool, 2) == [0]  # the second one waits
    pool.release(pool.servers[0])
    env.run()
    assert pool.servers[0].outstanding == 1
