"""Time that runs on when somebody sets the wall clock: for ages and intervals, never for people."""

from __future__ import annotations

import time
from collections.abc import Callable


class Steady:
    """Unix milliseconds as they were when it was made, and what the monotonic clock adds.

    Near what records say of themselves, as long as nobody sets the clock; never back, never a leap.
    """

    def __init__(
        self,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._zero_ms = wall_ms() - clock() * 1000

    def __call__(self) -> int:
        """Return the milliseconds now."""
        return round(self._zero_ms + self._clock() * 1000)


steady_ms = Steady()
"""Of this process."""
