"""The replicas of one stage: found, polled, and given to jobs, least work first."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.gateway.breaker import Breaker, Call
from services.gateway.discovery import Discovery
from services.gateway.estimates import blend
from services.gateway.replica import Replica, Stage
from services.gateway.stage_client import StageClient
from services.observe import metrics
from services.wire.errors import DiptychError, ProtocolError, StageUnavailable
from services.wire.info import StageInfo

log = logging.getLogger(__name__)

Prove = Callable[[Replica], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """depth: jobs a replica may hold beyond its capacity. Durations are seconds; see PipelineSettings."""

    resolve_interval: float
    poll_interval: float
    poll_timeout: float
    lost_after: int
    connect_timeout: float
    breaker_failures: int
    breaker_rest: float
    depth: int = 0
    probe_interval: float = 30.0


@dataclass(frozen=True, slots=True)
class _Turn:
    """A place at a replica, and the call that it is for."""

    replica: Replica
    call: Call


@dataclass(eq=False, slots=True)
class _Waiter:
    work: float
    avoid: frozenset[str]
    given: "asyncio.Future[_Turn]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Pool:
    """The replicas of `stage`. prove: run before a replica gets work, and then now and again; raises DiptychError."""

    def __init__(self, stage: Stage, discovery: Discovery, options: PoolOptions) -> None:
        self.stage: Stage = stage
        self.replicas: dict[str, Replica] = {}
        self.seconds_per_work: float | None = None
        self.changed = asyncio.Event()
        self._discovery = discovery
        self._options = options
        self.prove: Prove | None = None
        self._proofs: dict[str, asyncio.Task[None]] = {}
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._finding: asyncio.Task[None] | None = None
        self._waiting: list[_Waiter] = []
        self._down_since: float | None = None

    async def start(self) -> None:
        """Begin to find and poll the replicas; returns at once."""
        self._down_since = asyncio.get_running_loop().time()
        self._finding = asyncio.create_task(self._keep_finding(), name=f"{self.stage}-discovery")

    async def stop(self) -> None:
        """End all polls and close all connections."""
        tasks = [*self._polls.values(), *self._proofs.values(), *([self._finding] if self._finding else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in self.replicas.values():
            await replica.client.close()

    @property
    def ready(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.ready]

    @property
    def down_for(self) -> float:
        """Seconds since the last moment with a ready replica; 0 while there is one."""
        now = asyncio.get_running_loop().time()
        return 0.0 if self.ready or self._down_since is None else now - self._down_since

    @property
    def capacity(self) -> int:
        """Jobs that may be in this stage at once."""
        return sum(replica.capacity for replica in self.ready)

    @asynccontextmanager
    async def replica(
        self, work: float, deadline: float, avoid: frozenset[str] = frozenset()
    ) -> AsyncIterator[Replica]:
        """A place at the replica that will be free first, not one of the instances in `avoid` while others are ready.

        work: jobs (AR) or steps x megapixels (DiT). deadline: event-loop time. Raises StageUnavailable when it passes.
        """
        turn = await self._acquire(_Waiter(work, avoid), deadline)
        replica = turn.replica
        outcome = "cancelled"
        try:
            yield replica
            outcome = "ok"
            replica.breaker.succeeded(turn.call)
        except DiptychError as error:
            outcome = error.code
            replica.failed(error, turn.call)
            raise
        finally:
            metrics.REPLICA_CALLS.labels(self.stage, replica.url, outcome).inc()
            self._give_back(turn, work)

    def _give_back(self, turn: _Turn, work: float) -> None:
        replica = turn.replica
        replica.breaker.released(turn.call)
        replica.outstanding -= 1
        replica.front_began = asyncio.get_running_loop().time()
        replica.work = max(0.0, replica.work - work) if replica.outstanding else 0.0
        metrics.REPLICA_OUTSTANDING.labels(self.stage, replica.url).set(replica.outstanding)
        self.serve()

    async def _acquire(self, waiter: _Waiter, deadline: float) -> _Turn:
        self._waiting.append(waiter)
        self.serve()
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter.given
        except BaseException as error:
            self._withdraw(waiter)
            if isinstance(error, TimeoutError):
                why = self.why_not_ready()
                raise StageUnavailable(f"no {self.stage} replica took this job in time: {why}") from error
            raise

    def _withdraw(self, waiter: _Waiter) -> None:
        """Forget a waiter; a place that it was given in the same instant goes to the next one."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        if waiter.given.done() and not waiter.given.cancelled():
            self._give_back(waiter.given.result(), waiter.work)

    def serve(self) -> None:
        """Give places to those that wait, in order."""
        for waiter in list(self._waiting):
            replica = self._best(waiter)
            if replica is None or waiter.given.done():
                continue
            self._waiting.remove(waiter)
            if not replica.outstanding:
                replica.front_began = asyncio.get_running_loop().time()
            replica.outstanding += 1
            replica.work += waiter.work
            metrics.REPLICA_OUTSTANDING.labels(self.stage, replica.url).set(replica.outstanding)
            waiter.given.set_result(_Turn(replica, replica.breaker.began()))
        self.changed.set()
        self.changed = asyncio.Event()

    def _best(self, waiter: _Waiter) -> Replica | None:
        ready = self.ready
        candidates = [replica for replica in ready if replica.instance not in waiter.avoid] or ready
        free = [replica for replica in candidates if replica.room > 0]
        return min(free, key=self._order, default=None)

    def _order(self, replica: Replica) -> tuple[float, float, float]:
        """Least first; of equals, the one that has rested longest."""
        if self.stage == "ar":
            return -replica.room, replica.outstanding, replica.front_began
        idle = replica.room > self._options.depth  # an idle DiT beats any that still paints
        return 0.0 if idle else 1.0, replica.seconds_ahead(self.seconds_per_work or 1.0), replica.front_began

    def measured(self, replica: Replica, work: float, seconds: float) -> None:
        """A job of `work` took `seconds` at `replica`."""
        rate = seconds / work if work else seconds
        replica.seconds_per_work = blend(replica.seconds_per_work, rate)
        self.seconds_per_work = blend(self.seconds_per_work, rate)

    def why_not_ready(self) -> str:
        """What is wrong with each replica, in one line."""
        if not self.replicas:
            return f"no {self.stage} replica is known"
        return "; ".join(
            f"{r.url} is {r.state}" + (f" ({r.reason})" if r.reason else "") for r in self.replicas.values()
        )

    async def _keep_finding(self) -> None:
        await self._find()
        while self._discovery.dynamic:
            await asyncio.sleep(self._options.resolve_interval)
            await self._find()

    async def _find(self) -> None:
        try:
            urls = await self._discovery.urls()
        except StageUnavailable as error:
            log.warning("%s; keeping the %d replicas that are known", error, len(self.replicas))
            return
        for url in urls:
            if url not in self.replicas:
                replica = self._new(url)
                self.replicas[url] = replica
                self._polls[url] = asyncio.create_task(self._poll(replica), name=f"{self.stage}-poll")
        for url in set(self.replicas) - set(urls):
            await self._remove(url)

    def _new(self, url: str) -> Replica:
        options = self._options
        breaker = Breaker(options.breaker_failures, options.breaker_rest, asyncio.get_running_loop().time)
        client = StageClient(url, connect_timeout=options.connect_timeout)
        return Replica(self.stage, client, breaker, depth=options.depth, lost_after=options.lost_after)

    async def _remove(self, url: str) -> None:
        """Forget a replica that is gone from DNS; jobs that still run there end by themselves or by its death."""
        replica = self.replicas[url]
        if replica.outstanding and replica.state != "lost":
            return
        del self.replicas[url]
        poll = self._polls.pop(url)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        await replica.client.close()

    async def _poll(self, replica: Replica) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self._heard(replica, await replica.client.info(self._options.poll_timeout))
            except DiptychError as error:
                replica.unheard(error)
            if self.ready:
                self._down_since = None
            elif self._down_since is None:
                self._down_since = loop.time()
            self.serve()
            await asyncio.sleep(max(0.05, began + self._options.poll_interval - loop.time()))

    def _heard(self, replica: Replica, info: StageInfo) -> None:
        if info.stage != self.stage:
            raise ProtocolError(f"{replica.url} is a {info.stage} service, not a {self.stage} service")
        if info.instance != replica.instance and self.prove is not None:
            replica.proven = False
        replica.heard(info)
        due = not replica.proven or asyncio.get_running_loop().time() > replica.proved_at + self._options.probe_interval
        if self.prove is not None and replica.up and due and replica.url not in self._proofs:
            task = self._proofs[replica.url] = asyncio.create_task(self._try(self.prove, replica), name="probe")
            task.add_done_callback(lambda _: self._proofs.pop(replica.url, None))

    async def _try(self, prove: Prove, replica: Replica) -> None:
        """Prove a replica. One that was proven stays so if nobody is there to try it with."""
        instance = replica.instance
        try:
            await prove(replica)
        except StageUnavailable as error:
            replica.reason = error.message
        except DiptychError as error:
            replica.proven = False
            replica.reason = f"no hand-off works: {error.message}"
        else:
            if instance == replica.instance:
                replica.proven = True
                replica.proved_at = asyncio.get_running_loop().time()
        self.serve()
