"""Replicas and pools of the simulation: the same choices that `services.gateway.pool` makes, on a simulated clock."""

import heapq
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import simpy

EPSILON = 1e-9


class Server:
    """One replica: up to `places` jobs share it, each `slowdown(n)` times slower than alone while n of them run.

    Progress is kept as virtual time (seconds of work that every running job has got), so that an arrival or a
    departure costs a heap operation and not a pass over all jobs. Jobs beyond `places` wait their turn inside.
    """

    def __init__(self, env: "simpy.Environment", places: int, slowdown: Callable[[int], float]) -> None:
        self.index = 0
        self.outstanding = 0  # given by the pool
        self.free_at = 0.0  # when those should be done
        self.busy_seconds = 0.0
        self.job_seconds = 0.0  # the same, times the jobs that ran
        self.stretch = 1.0  # by the other stage on the same cores
        self.watch: Callable[[], None] | None = None  # told when this server starts or stops working
        self._env = env
        self._places = places
        self._slowdown = slowdown
        self._running: list[tuple[float, int, simpy.Event]] = []
        self._waiting: deque[tuple[float, simpy.Event]] = deque()
        self._virtual = 0.0
        self._at = 0.0
        self._order = 0
        self._epoch = 0

    @property
    def running(self) -> int:
        return len(self._running)

    def serve(self, seconds: float) -> "simpy.Event":
        """An event that comes when a job of `seconds` alone is done."""
        done = self._env.event()
        self._waiting.append((seconds, done))
        self._changed()
        return done

    def restretch(self, stretch: float) -> None:
        """From now on every job takes `stretch` times as long."""
        if stretch != self.stretch:
            self._advance()
            self.stretch = stretch
            self._schedule()

    def _changed(self) -> None:
        before = bool(self._running)
        self._advance()
        while self._waiting and len(self._running) < self._places:
            seconds, done = self._waiting.popleft()
            heapq.heappush(self._running, (self._virtual + seconds, self._order, done))
            self._order += 1
        self._schedule()
        if self.watch is not None and before != bool(self._running):
            self.watch()

    def _pace(self) -> float:
        return 1 / (self._slowdown(len(self._running)) * self.stretch)

    def _advance(self) -> None:
        passed = self._env.now - self._at
        self._at = self._env.now
        if self._running:
            self._virtual += passed * self._pace()
            self.busy_seconds += passed
            self.job_seconds += passed * len(self._running)

    def _schedule(self) -> None:
        """Wake up when the next job is done, unless something changes before."""
        self._epoch += 1
        if not self._running:
            return
        epoch = self._epoch
        wait = max(0.0, (self._running[0][0] - self._virtual) / self._pace())
        self._env.timeout(wait).callbacks.append(lambda _: self._finish(epoch))

    def _finish(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        self._advance()
        first = self._running[0][0]
        while self._running and self._running[0][0] <= first + EPSILON:
            heapq.heappop(self._running)[2].succeed()
        self._changed()
        if self.watch is not None and not self._running:
            self.watch()


class Pool:
    """Gives jobs to servers. room: jobs that one server may hold. by_time: the DiT's order, else the AR's.

    AR: the server with the most room. DiT: an idle one, else the one that should be free first. A job that finds no
    room waits, first come first served. The heap holds stale entries; a stamp tells them from current ones.
    """

    def __init__(self, env: "simpy.Environment", servers: list[Server], room: int, *, by_time: bool) -> None:
        self.servers = servers
        self._env = env
        self._room = room
        self._by_time = by_time
        self._waiting: deque[tuple[float, simpy.Event]] = deque()
        self._stamps = [0] * len(servers)
        self._heap: list[tuple[float, float, int, int]] = []
        for index, server in enumerate(servers):
            server.index = index
            self._offer(server)

    def acquire(self, work: float) -> "Generator[simpy.Event, Server, Server]":
        """A server, once one has room."""
        if (server := self._best()) is None:
            asked = self._env.event()
            self._waiting.append((work, asked))
            server = yield asked
        else:
            self._give(server, work)
        return server

    def release(self, server: Server) -> None:
        """A job left `server`; the next one that waits gets its place."""
        server.outstanding -= 1
        self._offer(server)
        while self._waiting and (free := self._best()) is not None:
            next_work, asked = self._waiting.popleft()
            self._give(free, next_work)
            asked.succeed(free)

    def _give(self, server: Server, work: float) -> None:
        server.outstanding += 1
        server.free_at = max(self._env.now, server.free_at) + work
        self._offer(server)

    def _offer(self, server: Server) -> None:
        self._stamps[server.index] += 1
        if server.outstanding < self._room:
            ahead = (
                (float(server.outstanding > 0), server.free_at) if self._by_time else (float(server.outstanding), 0.0)
            )
            heapq.heappush(self._heap, (*ahead, server.index, self._stamps[server.index]))

    def _best(self) -> Server | None:
        while self._heap:
            *_, index, stamp = self._heap[0]
            if stamp == self._stamps[index]:
                return self.servers[index]
            heapq.heappop(self._heap)
        return None
