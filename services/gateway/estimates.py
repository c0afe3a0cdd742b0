"""How long things take, measured while serving: what waits, look-ahead and Retry-After are computed from."""

import math

WEIGHT = 0.2  # of the newest measurement


class Estimates:
    """Exponential averages. ar: seconds of one AR call; render: seconds of one DiT call; None before the first."""

    def __init__(self) -> None:
        self.ar: float | None = None
        self.render: float | None = None
        self.per_work: float | None = None

    def wrote(self, seconds: float) -> None:
        """An AR call took `seconds`."""
        self.ar = blend(self.ar, seconds)

    def rendered(self, seconds: float, work: float) -> None:
        """A DiT call of `work` steps x megapixels took `seconds`, without its wait."""
        self.render = blend(self.render, seconds)
        self.per_work = blend(self.per_work, seconds / max(work, 1e-9))

    def wait(self, *, jobs_ahead: int, work_ahead: float, work: float, ar_places: int, dit_places: int) -> float:
        """Seconds until a job of `work` is done, behind so many jobs; 0 while nothing has been measured.

        The two stages overlap, so the slower one sets the pace.
        """
        if self.ar is None or self.per_work is None:
            return 0.0
        painting = work_ahead * self.per_work / max(1, dit_places)
        writing = jobs_ahead * self.ar / max(1, ar_places)
        return max(painting, writing) + self.ar + work * self.per_work

    def look_ahead(self, *, ar_places: int, dit_places: int) -> int:
        """How many jobs should be ahead of the DiTs so that none idles: Little's law, plus one a DiT.

        More would only age in the arena, and jobs that have left the queue can no longer be overtaken fairly.
        """
        least = max(1, dit_places + 1)
        if self.ar is None or not self.render or not dit_places:
            return least
        needed = math.ceil(self.ar * dit_places / self.render) + dit_places
        return max(least, min(needed, ar_places + dit_places))


def blend(old: float | None, new: float, weight: float = WEIGHT) -> float:
    """The exponential average after one more value."""
    return new if old is None else old + weight * (new - old)
