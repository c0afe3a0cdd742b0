"""A circuit breaker: a replica that fails again and again rests, then gets one try."""

from collections.abc import Callable

MAX_REST = 60.0  # seconds


class Breaker:
    """`closed` -> `open` after `failures` in a row -> after `rest` seconds `half-open`: one call decides.

    Each failed try doubles the rest, up to 60 s. now: a monotonic clock in seconds.
    """

    def __init__(self, failures: int, rest: float, now: Callable[[], float]) -> None:
        self._limit = failures
        self._rest = rest
        self._now = now
        self._failed = 0
        self._trips = 0
        self._until = 0.0
        self._trying = False

    @property
    def state(self) -> str:
        if self._failed < self._limit:
            return "closed"
        return "half-open" if self._now() >= self._until else "open"

    def allows(self) -> bool:
        """Whether a call may be made now."""
        return self.state == "closed" or (self.state == "half-open" and not self._trying)

    def began(self) -> None:
        """A call was made."""
        self._trying = self.state == "half-open"

    def succeeded(self) -> None:
        """A call ended well, or with an error that is not the replica's fault."""
        self._failed = self._trips = 0
        self._trying = False

    def released(self) -> None:
        """A call is over, however it ended: by itself this says nothing about the replica."""
        self._trying = False

    def failed(self) -> None:
        """A call failed and the replica is to blame."""
        self._failed += 1
        self._trying = False
        if self._failed >= self._limit:
            self._until = self._now() + min(MAX_REST, self._rest * 2**self._trips)
            self._trips += 1
