"""One replica of a stage, as the gateway sees it: what it says of itself, and what we have given it."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Literal, TypeVar

import httpx
import msgspec

from services.gateway.breaker import Breaker, Call
from services.gateway.stage_client import StageClient
from services.observe import metrics
from services.wire.errors import DiptychError, EngineDied, Overloaded, ProtocolError, StageUnavailable
from services.wire.info import ReplicaInfo, StageInfo

log = logging.getLogger(__name__)

Stage = Literal["ar", "dit"]
Result = TypeVar("Result")
BLAMED = (StageUnavailable, EngineDied, ProtocolError)  # `breaker_failures` of these in a row open the breaker
UNREADY = (StageUnavailable, EngineDied, Overloaded)
STATES = ("ready", "not-ready", "draining", "resting", "unproven", "lost")


class Replica:
    """State of the replica at `client.url`. outstanding: jobs that this gateway has there; work: their sum.

    Work is counted in jobs for the AR and in denoising steps x megapixels for the DiT.
    """

    def __init__(self, stage: Stage, client: StageClient, breaker: Breaker, *, depth: int, lost_after: int) -> None:
        self.stage: Stage = stage
        self.client = client
        self.breaker = breaker
        self.info: StageInfo | None = None
        self.outstanding = 0
        self.work = 0.0
        self.front_began = 0.0  # event-loop time when the job in front of all others here began
        self.proven = True
        self.proved_at = 0.0  # event-loop time of the last hand-off that worked
        self.reason = "not asked yet"
        self.seconds_per_work: float | None = None
        self._depth = depth
        self._lost_after = lost_after
        self._unanswered = 0
        self._elsewhere = 0
        self._gone = True
        self._interrupted = asyncio.Event()

    @property
    def url(self) -> str:
        return self.client.url

    @property
    def instance(self) -> str:
        return self.info.instance if self.info else ""

    @property
    def capacity(self) -> int:
        """Jobs that this gateway may have there at once."""
        return (self.info.capacity if self.info else 0) + self._depth

    @property
    def room(self) -> int:
        """Free places, after those that other callers of this replica hold."""
        return self.capacity - self.outstanding - self._elsewhere

    @property
    def state(self) -> str:
        if self._gone or self.info is None:
            return "lost"
        if self.info.draining:
            return "draining"
        if not self.info.ready:
            return "not-ready"
        if not self.proven:
            return "unproven"
        return "ready" if self.breaker.allows() else "resting"

    @property
    def up(self) -> bool:
        """It says that it is ready, proven or not."""
        return not self._gone and self.info is not None and self.info.ready and not self.info.draining

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    def view(self) -> ReplicaInfo:
        """How this gateway sees it."""
        return ReplicaInfo(
            stage=self.stage,
            url=self.url,
            state=self.state,
            reason=self.reason,
            outstanding=self.outstanding,
            said=self.info,
        )

    def seconds_ahead(self, fallback: float) -> float:
        """Seconds of work in front of a new job, less those that the job in front has had.

        fallback: seconds per work before any was measured.
        """
        elsewhere = self.info.steps_ahead if self.info and self._elsewhere else 0.0
        had = asyncio.get_running_loop().time() - self.front_began if self.outstanding else 0.0
        return max(0.0, (self.work + elsewhere) * (self.seconds_per_work or fallback) - had)

    def heard(self, info: StageInfo) -> None:
        """A poll was answered."""
        if self.info is not None and self.info.instance != info.instance:
            log.info("%s replica %s restarted as %s", self.stage, self.url, info.instance)
            self._interrupt("it was restarted")
        self.info = info
        self._unanswered = 0
        self._elsewhere = max(0, info.running + info.waiting - self.outstanding)
        self._gone = False
        self.reason = info.reason
        self._publish()

    def unheard(self, error: DiptychError) -> None:
        """A poll failed. After `lost_after` in a row, or at once if nobody listens there, the replica is lost."""
        self._unanswered += 1
        self.reason = str(error)
        if self._unanswered >= self._lost_after or isinstance(error.__cause__, httpx.ConnectError):
            self.lose(str(error))
        self._publish()

    def lose(self, why: str) -> None:
        """Nobody answers there: end the calls that still wait for it."""
        if not self._gone:
            log.warning("%s replica %s is lost: %s", self.stage, self.url, why)
        self._gone = True
        self._interrupt(why)

    def failed(self, error: DiptychError, call: Call) -> None:
        """`call` ended with `error`: what that says about this replica."""
        if isinstance(error, BLAMED):
            self.breaker.failed(call)
        else:
            self.breaker.succeeded(call)
        if isinstance(error.__cause__, httpx.ConnectError):
            self.lose(error.message)
        elif isinstance(error, UNREADY) and self.info is not None:
            self.info = msgspec.structs.replace(self.info, ready=False, reason=error.message)  # until the next poll
        self._publish()

    def _interrupt(self, why: str) -> None:
        self.reason = why
        self._interrupted.set()
        self._interrupted = asyncio.Event()

    def watch(self) -> asyncio.Event:
        """Set when this replica is lost or restarted after now. Take it before a call, for all waits of that call."""
        return self._interrupted

    async def unless_lost(self, interrupted: asyncio.Event, call: Awaitable[Result]) -> Result:
        """The result of `call`. Raises StageUnavailable as soon as `interrupted` (see `watch`) is set."""
        task = asyncio.ensure_future(call)
        lost = asyncio.ensure_future(interrupted.wait())
        try:
            await asyncio.wait({task, lost}, return_when="FIRST_COMPLETED")
            if not task.done():
                raise StageUnavailable(f"{self.url} was lost during the call: {self.reason}")
            return task.result()
        finally:
            lost.cancel()
            if not task.done():
                task.cancel()
            await asyncio.gather(task, lost, return_exceptions=True)

    def _publish(self) -> None:
        now = self.state
        for state in STATES:
            metrics.REPLICA_STATE.labels(self.stage, self.url, state).set(state == now)
