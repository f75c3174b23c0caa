"""`python -m tests.bench memory`: what a relay holds resident under a backlog, the broker stalled.

Receives a directory and sizes, gives figures. The relay works off a backlog at full speed; when a
fifth is done the broker's process is stopped (SIGSTOP) for some seconds, then goes on. All rows
must come through all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from relay.dev.stack import Stack
from tests.bench import config, contenders, journal, measure, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Process
from tests.bench.figures import Figure
from tests.bench.rows import Shape
from tests.bench.source import Source
from tests.bench.usage import Meter

ALLOWED = 1.2
"""So much of the stated bound may be resident, by issue 8."""
_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is tried.

    Attributes:
        tables: numbers of tables, one run each.
        stall_seconds: that the broker is stopped; 0: never.
        bound_mb: stated for one relay; None: none.
    """

    tables: tuple[int, ...]
    rows: int
    per_message: int
    stall_seconds: float
    bound_mb: float | None


def run(directory: Path, sizes: Sizes, progress: Callable[[str], None]) -> list[Figure]:
    """One run for each number of tables."""
    found: list[Figure] = []
    _patient(directory / "servers", sizes.stall_seconds)
    with servers.started(directory, progress) as stack:
        rows.create_tables(servers.client(stack), Shape(tables=max(sizes.tables)))
        for tables in sizes.tables:
            topic = f"source.{tables}"
            progress(f"filling {topic}: {sizes.rows:,} rows, {sizes.per_message} per message")
            shape = Shape(tables=tables)
            source = sources.fill(
                stack.bootstrap, topic, sizes.rows, sizes.per_message, shape=shape
            )
            before, most = _one(directory, stack, source, sizes, f"m{tables}")
            progress(f"{tables} tables: {most / 1e6:,.0f} MB")
            limit = None if sizes.bound_mb is None else ALLOWED * sizes.bound_mb
            found += [
                Figure(f"most memory before the stall, {tables} tables", before / 1e6, "MB"),
                Figure(f"most memory, {tables} tables", most / 1e6, "MB", "lower", limit),
            ]
            sources.delete_topics(stack.bootstrap, topic)
    return found


def _patient(place: Path, stall_seconds: float) -> None:
    """Its own controller, stopped with it, must not fence the broker for that: a stall, no loss."""
    place.mkdir()
    session = 10_000 + round(3000 * stall_seconds)
    (place / "extra.properties").write_text(f"broker.session.timeout.ms={session}\n")


def _one(directory: Path, stack: Stack, source: Source, sizes: Sizes, app: str) -> tuple[int, int]:
    """Bytes resident at most until the stall, and at all."""
    file = config.write(directory, app, stack, source.topic)
    contender = contenders.relay(file, app, directory / f"{app}.log")
    committed = sources.CommittedOffsets(stack.bootstrap, contender.group, source.topic)
    try:
        with Process(contender) as process:
            meter = Meter({"relay": process.pid})

            def still_runs() -> None:
                process.still_runs()
                meter.look()

            begun = int(measure.WARM_UP * source.messages)
            measure.samples(committed, begun, still_runs, _EVERY_SECONDS)
            before = meter.most("relay")
            with _stopped(stack):
                end = time.monotonic() + sizes.stall_seconds
                while time.monotonic() < end:
                    still_runs()
                    time.sleep(_EVERY_SECONDS)  # the interval of looks
            measure.samples(committed, source.messages, still_runs, _EVERY_SECONDS)
        journal.check(stack.bootstrap, app, source)
    finally:
        committed.close()
        sources.delete_topics(stack.bootstrap, contender.prefix)
    return before, meter.most("relay")


@contextmanager
def _stopped(stack: Stack) -> Iterator[None]:
    """The broker answers nothing meanwhile, and keeps its connections."""
    pid = stack.broker_pids[0]
    assert pid is not None, "servers.started gives a running broker"
    broker = psutil.Process(pid)
    broker.suspend()
    try:
        yield
    finally:
        broker.resume()
