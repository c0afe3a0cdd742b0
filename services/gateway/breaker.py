"""A circuit breaker: a replica that fails again and again rests, then gets one try."""

from collections.abc import Callable
from dataclasses import dataclass

MAX_REST = 60.0  # seconds


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call to a replica. began: when, by the breaker's clock."""

    began: float


class Breaker:
    """`closed` -> `open` after `failures` in a row -> after `rest` seconds `half-open`: one call decides.

    Calls that were under way together fail together, and count once: one death of an engine is one failure, however
    many jobs it had. Each failed try doubles the rest, up to 60 s. now: a monotonic clock in seconds.
    """

    def __init__(self, failures: int, rest: float, now: Callable[[], float]) -> None:
        self._limit = failures
        self._rest = rest
        self._now = now
        self._failed = 0
        self._failed_at = -1.0
        self._trips = 0
        self._until = 0.0
        self._try: Call | None = None

    @property
    def state(self) -> str:
        if self._failed < self._limit:
            return "closed"
        return "half-open" if self._now() >= self._until else "open"

    def allows(self) -> bool:
        """Whether a call may be made now."""
        return self.state == "closed" or (self.state == "half-open" and self._try is None)

    def began(self) -> Call:
        """A call is made: name it again when it ends."""
        call = Call(self._now())
        if self.state == "half-open":
            self._try = call
        return call

    def succeeded(self, call: Call) -> None:
        """A call ended well, or with an error that is not the replica's fault."""
        if call.began >= self._failed_at:
            self._failed = self._trips = 0

    def released(self, call: Call) -> None:
        """A call is over, however it ended: by itself this says nothing about the replica."""
        if self._try is call:
            self._try = None

    def failed(self, call: Call) -> None:
        """A call failed and the replica is to blame."""
        if call.began < self._failed_at:
            return
        self._failed += 1
        self._failed_at = self._now()
        if self._failed >= self._limit:
            self._until = self._failed_at + min(MAX_REST, self._rest * 2**self._trips)
            self._trips += 1
