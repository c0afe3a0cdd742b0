"""When a failed call may be made again: by the error's remedy, within a budget, and never for ever."""

from services.observe import metrics
from services.wire.errors import DiptychError


class RetryBudget:
    """Retries as a share of first calls, so that a storm of failures cannot double the load.

    Each first call earns `share` of a retry, up to `burst` in store; the store starts full.
    """

    def __init__(self, share: float, burst: int) -> None:
        self._share = share
        self._burst = float(burst)
        self._tokens = self._burst

    def earn(self) -> None:
        """A first call was made."""
        self._tokens = min(self._burst, self._tokens + self._share)

    def spend(self, stage: str, error: DiptychError) -> bool:
        """Take one retry for this error, and count it; False if the budget is used up."""
        if self._tokens < 1:
            metrics.RETRIES_REFUSED.labels(stage, "budget").inc()
            return False
        self._tokens -= 1
        metrics.RETRIES.labels(stage, error.code).inc()
        return True
