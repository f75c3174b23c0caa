"""What a rate is here, the same for every contender.

Receives samples of "so much is done" over time, gives rows per second and medians.

**The rule.** A sampler asks every 20 ms (ClickHouse: every 100 ms) how much is done and
visible. The clock starts at the first sample that shows at least `WARM_UP` (a fifth) of the
work done and stops at the first that shows all of it; the rate is what was done between
those two samples. So start-up (JVM, Python, Spark, joining the group), first-time
compilation and the wait for the first commit are left out for all, and the wait for the
last commit counts for all.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from relay.errors import ConfigError, NotExactlyOnce, Unavailable

WARM_UP = 0.2
"""Share of the work before the clock starts."""
SHORT_SECONDS = 3.0
"""A run with a shorter clock says little: transactions and blocks come in steps."""
EVERY_SECONDS = 0.02
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender.

    Attributes:
        rows_per_second: by the rule above.
        seconds: between the two samples.
        seconds_with_start: from the start of its process until all was done.
    """

    rows_per_second: float
    seconds: float
    seconds_with_start: float


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of one contender on one shape of work."""

    contender: str
    per_message: int
    runs: tuple[Run, ...]
    role: str
    """`product`, `peer` (the fastest counts), `ceiling`, or `other`, shown for itself."""

    @property
    def median(self) -> float:
        """Rows per second."""
        return statistics.median(run.rows_per_second for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "median_rows_per_second": self.median}


def watch(
    done: Callable[[], int],
    total: int,
    rows: int,
    still_runs: Callable[[], None],
    started: float,
    every: float = EVERY_SECONDS,
) -> Run:
    """Samples until all is done.

    Args:
        done: how much is done now, in the unit of `total`.
        total: when all is done.
        rows: what `total` is in rows.
        still_runs: raises if the contender has died.
        started: `time.monotonic()` when the contender's process was started.
        every: seconds between samples.

    Raises:
        NotExactlyOnce: more was done than there was.
        ConfigError: too little work to measure.
        Unavailable: nothing moved for five minutes.
    """
    return rate(samples(done, total, still_runs, every), total, rows, started)


def samples(
    done: Callable[[], int],
    total: int,
    still_runs: Callable[[], None],
    every: float = EVERY_SECONDS,
) -> list[tuple[float, int]]:
    """(time, how much is done) whenever that has changed, until it is `total` or more.

    Raises:
        Unavailable: nothing moved for five minutes.
    """
    taken = [(time.monotonic(), done())]
    while taken[-1][1] < total:
        still_runs()
        now = done()
        if now != taken[-1][1]:
            taken.append((time.monotonic(), now))
        elif time.monotonic() - taken[-1][0] > _PATIENCE_SECONDS:
            raise Unavailable(
                f"stuck at {now} of {total} for {_PATIENCE_SECONDS:g} s",
                "Run it again with --keep DIRECTORY and look into the logs there.",
            )
        time.sleep(every)  # the sampling interval itself
    return taken


def rate(samples: list[tuple[float, int]], total: int, rows: int, started: float) -> Run:
    """The rule above, on samples of (time, done) that grow up to `total`.

    Raises:
        NotExactlyOnce: more was done than there was.
        ConfigError: all was done between two samples.
    """
    end, all_done = samples[-1]
    if all_done != total:
        raise NotExactlyOnce(f"{all_done} done of {total}: something was counted twice")
    begin, before = next(sample for sample in samples if sample[1] >= WARM_UP * total)
    if begin == end:
        raise ConfigError("all was done between two samples", "Take more --rows.")
    seconds = end - begin
    return Run((total - before) / total * rows / seconds, seconds, end - started)
