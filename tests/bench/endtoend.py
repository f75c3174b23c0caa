"""`python -m tests.bench endtoend`: relay, loader and all servers at a high rate, for minutes.

Receives a directory and a Load, gives figures: the lag (rows in the source that ClickHouse does
not show yet) once a second, whether it grows, and the rate. In the end all rows are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from relay.errors import NotExactlyOnce, Unavailable
from tests.bench import live, rows
from tests.bench import source as sources
from tests.bench.figures import Figure, quantile, slope
from tests.bench.live import Load
from tests.bench.rows import Shape

RATE = 405_000.0
"""By default: the feed itself has to be above the limit, which it reaches but for its flush."""
RATE_LIMIT = 400_000.0  # by issue 8
GROWTH_LIMIT = 0.01
"""A lag grows where it gains more than this share of the rate: 1.2 s of rows in two minutes."""
EVERY_SECONDS = 1.0
_SETTLED_SHARE = 0.1
"""Of the time, at its beginning, that the slope leaves out: an empty pipeline fills."""


class Sample(NamedTuple):
    """What was there at a moment, in rows since the measurement began."""

    at: float
    written: int
    shown: int

    @property
    def lag(self) -> int:
        """Rows in the source that ClickHouse does not show."""
        return self.written - self.shown


def fed(samples: Sequence[Sample], seconds: float) -> list[Sample]:
    """Those from when the first rows came, for as long as rows came, on that clock.

    Raises:
        Unavailable: no rows came.
    """
    first = next((n for n, sample in enumerate(samples) if sample.written), None)
    if first is None:
        raise Unavailable("no sample while rows came", "Take more --seconds.")
    # Rows came from some moment between the two samples on.
    begin = samples[max(0, first - 1)].at
    moved = [sample._replace(at=sample.at - begin) for sample in samples[first:]]
    return [sample for sample in moved if sample.at <= seconds]


def figures(samples: Sequence[Sample], load: Load) -> list[Figure]:
    """Rate and lag, by the samples while rows came; a rate is demanded where it was ordered."""
    all_fed = fed(samples, load.seconds)
    settled = [sample for sample in all_fed if sample.at >= _SETTLED_SHARE * load.seconds]
    rate = slope([(sample.at, sample.shown) for sample in settled])
    growth = slope([(sample.at, sample.lag) for sample in settled]) / load.rate
    lags = [(float(sample.lag), 1) for sample in settled]
    return [
        Figure("queryable per second while fed", rate, "rows/s", "higher", _demanded(load)),
        Figure("growth of the lag, share of the rate", growth, "", "neither", GROWTH_LIMIT),
        Figure("lag, p50", quantile(lags, 0.5), "rows", "lower"),
        Figure("lag, most", quantile(lags, 1.0), "rows", "lower"),
    ]


def _demanded(load: Load) -> float | None:
    return RATE_LIMIT if load.rate >= RATE_LIMIT else None


def run(directory: Path, load: Load, progress: Callable[[str], None]) -> list[Figure]:
    """One run, its contents compared.

    Raises:
        NotExactlyOnce: a row is missing, doubled, or another.
    """
    with live.running(directory, load, progress, block_column=True) as running:
        written = sources.EndOffsets(running.stack.bootstrap, [live.TOPIC])
        samples: list[Sample] = []
        before = running.visible()
        progress(f"{load.rate:,.0f} rows/s for {load.seconds:g} s")
        began = time.monotonic()
        with running.feeding(load.seconds, "feed") as feed:
            meter = running.meter()
            while not feed.process.ended:
                running.still_run()
                time.sleep(EVERY_SECONDS)  # the sampling interval
                meter.look()
                # ClickHouse first: rows that come in between count as lag, never as none.
                shown = running.visible() - before
                came = written() * load.per_message - before
                samples.append(Sample(time.monotonic() - began, came, shown))
                progress(f"{samples[-1].at:4.0f} s: {shown:,} rows, lag {samples[-1].lag:,}")
            used = meter.figures(time.monotonic() - began)
            sent = feed.fed()
            ended = time.monotonic()
            running.arrived(sent)
        drained = time.monotonic() - ended
        written.close()
        judge(running.client, load.shape, sent.ends)
    rate = (sum(sent.ends) - before) / sent.seconds
    return [
        Figure("rate of the feed", rate, "rows/s", "higher", _demanded(load)),
        *figures(samples, load),
        Figure("until all was queryable, after the feed", drained, "s", "lower"),
        Figure("rows compared, each once", sum(sent.ends), "rows"),
        *sent.figures(),
        *used,
    ]


def judge(client: Client, shape: Shape, ends: list[int]) -> None:
    """Every table holds rows 0 to its end, each once and as it was made.

    Raises:
        NotExactlyOnce: naming the table.
    """
    for table, end in zip(shape.names, ends, strict=True):
        count, different, beyond, wrong = client.query(
            f"SELECT count(), uniqExact(event), countIf(event >= {end}), "
            f"countIf({rows.wrong(shape)}) FROM {table}"
        ).result_rows[0]
        if (count, different, beyond, wrong) != (end, end, 0, 0):
            raise NotExactlyOnce(
                f"{table}: {end} rows were sent, {count} are there, {different} of them "
                f"different, {beyond} that were never sent, {wrong} with other contents"
            )
