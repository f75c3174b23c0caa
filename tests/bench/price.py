"""`python -m tests.bench price`: what exactly once costs, by the time between commits.

Receives a directory, sizes and intervals, gives curves over the interval. A plain pass-through
copies the same topic at least once and exactly once, with nothing else between the two, and the
relay forms its blocks beside them. A backlog shows their rates. At a steady rate each shows the
cores that it and the broker use, and how old rows are when they are committed; of the product
also, with the loader, how old they are when ClickHouse shows them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from relay.dev.stack import Stack
from tests.bench import contenders, freshness, measure, relay_bench, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Process
from tests.bench.feed import Order
from tests.bench.figures import Curve, Figure, quantile
from tests.bench.live import Load
from tests.bench.relay_bench import Kind
from tests.bench.source import Source
from tests.bench.usage import Meter

INTERVALS = (0.05, 0.1, 0.25, 1.0, 3.0, 10.0)
PARTS = ("rate", "steady", "freshness")
RATE_INTERVALS = 5
"""A backlog has to last so many intervals: its end waits for a commit, and so would the rate."""
TWICE, ONCE, PRODUCT = "pass-through, at least once", "pass-through, exactly once", "block-relay"
_MOST_ROWS_PER_SECOND = 7_000_000
"""What the fastest contender moves here, and a little more: a slower one makes the backlog last."""
_WARM_UP_SECONDS = 8.0
_EVERY_SECONDS = 0.02
_ENDING_SECONDS = 150.0  # the feed's flush waits 120 s for the broker

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything.

    Attributes:
        intervals: between commits, in seconds.
        rows: of the backlog.
        runs: rounds over the backlog.
        load: the steady rate.
    """

    intervals: tuple[float, ...]
    rows: int
    runs: int
    load: Load


def run(directory: Path, sizes: Sizes, parts: Sequence[str], progress: Progress) -> list[Curve]:
    """The parts asked for."""
    found: list[Curve] = []
    if "rate" in parts or "steady" in parts:
        with servers.started(directory, progress) as stack:
            rows.create_tables(servers.client(stack), sizes.load.shape)
            if "rate" in parts:
                found += _rates(stack, directory, sizes, progress)
            if "steady" in parts:
                found += _steady(stack, directory, sizes, progress)
    if "freshness" in parts:
        found += _freshness(directory, sizes, progress)
    return found


def measurable(intervals: Sequence[float], total: int) -> list[float]:
    """Of the intervals, those that a backlog of so many rows outlasts."""
    return [s for s in intervals if s * RATE_INTERVALS * _MOST_ROWS_PER_SECOND <= total]


def _kinds(
    stack: Stack, source: Source, directory: Path, load: Load, interval: float
) -> dict[str, Kind]:
    relay = {"commit_interval_seconds": interval}
    return {
        TWICE: relay_bench.passthrough_kind(source, directory, interval, exactly_once=False),
        ONCE: relay_bench.passthrough_kind(source, directory, interval),
        PRODUCT: relay_bench.relay_kind(
            stack, source, directory, load.processes, load.block, relay
        ),
    }


# ---- a backlog ------------------------------------------------------------------------------


def _rates(stack: Stack, directory: Path, sizes: Sizes, progress: Progress) -> list[Curve]:
    intervals = measurable(sizes.intervals, sizes.rows)
    load = sizes.load
    progress(f"filling: {sizes.rows:,} rows, {load.per_message} per message")
    source = sources.fill(
        *(stack.bootstrap, "backlog", sizes.rows, load.per_message),
        shape=load.shape,
        partitions=load.partitions,
    )
    measured: dict[tuple[str, float], list[float]] = {}
    for turn in range(sizes.runs):
        for at, interval in enumerate(intervals[:: -1 if turn % 2 else 1]):
            kinds = _kinds(stack, source, directory, load, interval)
            for number, (name, kind) in enumerate(kinds.items()):
                app = f"rate-{turn}-{at}-{number}"
                one = relay_bench.one_run(kind, app)
                measured.setdefault((name, interval), []).append(one.rows_per_second)
                progress(
                    f"round {turn + 1} of {sizes.runs}, commits every {interval:g} s, {name}: "
                    f"{one.rows_per_second:,.0f} rows/s ({one.seconds:.1f} s)"
                )
    sources.delete_topics(stack.bootstrap, source.topic)
    return rate_curves(measured, intervals)


def rate_curves(
    measured: dict[tuple[str, float], list[float]], intervals: Sequence[float]
) -> list[Curve]:
    """Medians of the rounds, and what exactly once costs of the rate, round by round.

    Args:
        measured: rows per second in each round, by contender and interval.
        intervals: in seconds.
    """

    def curve(name: str, unit: str, better: str, of: Callable[[float], list[float]]) -> Curve:
        points = tuple((interval, statistics.median(of(interval))) for interval in intervals)
        return Curve(name, unit, points, better)

    def price(interval: float) -> list[float]:
        rounds = zip(measured[TWICE, interval], measured[ONCE, interval], strict=True)
        return [100 * (1 - once / twice) for twice, once in rounds]

    rates = [
        curve(f"{name}, rate", "rows/s", "higher", lambda s, name=name: measured[name, s])  # type: ignore[misc]
        for name in (TWICE, ONCE, PRODUCT)
    ]
    return [*rates, curve("price of exactly once, of the rate", "%", "lower", price)]


# ---- a steady rate --------------------------------------------------------------------------


def _steady(stack: Stack, directory: Path, sizes: Sizes, progress: Progress) -> list[Curve]:
    found: dict[str, Curve] = {}
    for at, interval in enumerate(sizes.intervals):
        for number, name in enumerate((TWICE, ONCE, PRODUCT)):
            topic = f"steady-{at}-{number}"
            sources.create_topics(stack.bootstrap, [topic], sizes.load.partitions)
            figures = _one_steady(stack, directory, sizes.load, topic, (name, interval))
            shown = ", ".join(f"{f.name} {f.value:.3g} {f.unit}" for f in figures)
            progress(f"commits every {interval:g} s, {name}: {shown}")
            for figure in figures:
                label = f"{name}, {figure.name}"
                before = found.get(label, Curve(label, figure.unit, (), "lower"))
                found[label] = replace(before, points=(*before.points, (interval, figure.value)))
            sources.delete_topics(stack.bootstrap, topic)
    return list(found.values())


def _one_steady(
    stack: Stack, directory: Path, load: Load, topic: str, kind: tuple[str, float]
) -> list[Figure]:
    name, interval = kind
    source = Source(
        *(stack.bootstrap, topic, 0, 0, load.per_message, 0, load.shape, load.partitions)
    )
    app = f"{topic}-app"
    contender = _kinds(stack, source, directory, load, interval)[name].make(app)
    if contender.outputs:
        sources.create_topics(stack.bootstrap, contender.outputs, load.partitions)
    written = sources.EndOffsets(stack.bootstrap, [topic])
    committed = sources.CommittedOffsets(stack.bootstrap, contender.group, topic, load.partitions)

    def feed(seconds: float, part: str) -> Process:
        order = Order(
            *(stack.bootstrap, topic, load.shape, load.partitions),
            *(load.rate, load.per_message, seconds),
        )
        file = order.written(directory / f"{app}-{part}.json")
        return Process(contenders.feed(file, directory / f"{app}-{part}.log"))

    try:
        with Process(contender) as process:
            with feed(_WARM_UP_SECONDS, "warm-up") as feeding:
                feeding.wait(_ENDING_SECONDS)
            measure.samples(committed, written(), process.still_runs, _EVERY_SECONDS)
            with feed(max(load.seconds, RATE_INTERVALS * interval), "feed") as feeding:
                meter = Meter({"it": process.pid, "the broker": _broker(stack)})
                began = time.monotonic()
                samples = []
                while not feeding.ended:
                    process.still_runs()
                    done = committed()  # first: what is committed has been written
                    samples.append((time.monotonic(), written(), done))
                    time.sleep(_EVERY_SECONDS)  # the sampling interval itself
                used = meter.figures(time.monotonic() - began)
                feeding.has_not_failed()
    finally:
        committed.close()
        written.close()
        sources.delete_topics(stack.bootstrap, contender.prefix)
    delays = ages(samples)
    assert delays[0][0] >= 0, "nothing is committed before it is written"
    return [
        Figure("age when committed, p50", quantile(delays, 0.5), "s"),
        Figure("age when committed, p99", quantile(delays, 0.99), "s"),
        *(figure for figure in used if figure.unit == "cores"),
    ]


def _broker(stack: Stack) -> int:
    found = stack.broker_pids[0]
    assert found is not None, "servers.started gives a running one"
    return found


def ages(samples: Sequence[tuple[float, int, int]]) -> list[tuple[float, int]]:
    """(seconds from written to committed, messages) of what was committed between two samples.

    Args:
        samples: (time, messages written, messages committed), in order. What was committed at a
            sample was written, in the same order, on the line through all samples.
    """
    times = [at for at, _, _ in samples]
    line = [written for _, written, _ in samples]
    found: list[tuple[float, int]] = []
    for (_, _, before), (at, _, done) in pairwise(samples):
        # What was written before the first sample has no time on this line.
        numbers = np.arange(max(before, line[0]), done)
        found += [(float(at - when), 1) for when in np.interp(numbers, line, times)]
    return found


# ---- into ClickHouse ------------------------------------------------------------------------


def _freshness(directory: Path, sizes: Sizes, progress: Progress) -> list[Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    wanted = {f"produced to queryable, {share}" for share in ("p50", "p99")}
    for interval in sizes.intervals:
        load = replace(sizes.load, relay={"commit_interval_seconds": interval})
        progress(f"into ClickHouse, commits every {interval:g} s")
        place = directory / f"freshness-{interval:g}"
        place.mkdir()
        for figure in freshness.run(place, load, progress):
            if figure.name in wanted:
                points.setdefault(figure.name, []).append((interval, figure.value))
    return [Curve(f"{PRODUCT}, {name}", "s", tuple(of), "lower") for name, of in points.items()]
