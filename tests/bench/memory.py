"""`python -m tests.bench memory`: what a relay holds resident under a backlog, the broker stalled.

Receives a directory and sizes, gives figures. The relay works off a backlog at full speed; when a
fifth is done the broker's process is stopped (SIGSTOP) for some seconds, then goes on. All rows
must come through all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.config.settings_file import load
from relay.dev.stack import Stack
from tests.bench import config, contenders, journal, measure, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Process
from tests.bench.figures import Figure
from tests.bench.paused import paused
from tests.bench.rows import Shape
from tests.bench.source import Source
from tests.bench.usage import Meter

ALLOWED = 1.2
"""So much of the stated bound may be resident, by issue 8."""
_PROGRAM_BYTES = 400_000_000
"""Stated: interpreter, libraries, compiled code, and what forming one block takes."""
_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is tried.

    Attributes:
        tables: numbers of tables, one run each.
        stall_seconds: that the broker is stopped; 0: never.
        buffer_bytes: relay.max_buffer_bytes; None: as shipped.
    """

    tables: tuple[int, ...]
    rows: int
    per_message: int
    stall_seconds: float
    buffer_bytes: int | None


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
            app = f"m{tables}"
            changed = {} if sizes.buffer_bytes is None else {"max_buffer_bytes": sizes.buffer_bytes}
            file = config.write(directory, app, stack, topic, relay=changed)
            stated = bound(load(file)) / 1e6
            before, most = _one(file, stack, source, sizes, app)
            progress(f"{tables} tables: {most / 1e6:,.0f} MB of {stated:,.0f}")
            name = f"most memory, {tables} tables"
            found += [
                Figure(f"most memory before the stall, {tables} tables", before / 1e6, "MB"),
                Figure(name, most / 1e6, "MB", "lower", ALLOWED * stated),
            ]
            sources.delete_topics(stack.bootstrap, topic)
    return [*found, Figure("stated bound", stated, "MB")]


def bound(settings: Settings) -> int:
    """Bytes that a relay of these settings is said to hold resident (the document `sizing`)."""
    prefetch = int(kafka_clients.consumer(settings)["queued.max.messages.kbytes"])
    queue = int(kafka_clients.producer(settings)["queue.buffering.max.kbytes"])
    # Twice: not every piece of a buffer is full, a block is formed beside what it is formed of, and
    # freed memory is kept for the next.
    return _PROGRAM_BYTES + 2 * settings.relay.max_buffer_bytes + 1024 * (prefetch + queue)


def _patient(place: Path, stall_seconds: float) -> None:
    """Its own controller, stopped with it, must not fence the broker for that: a stall, no loss."""
    place.mkdir()
    session = 10_000 + round(3000 * stall_seconds)
    (place / "extra.properties").write_text(f"broker.session.timeout.ms={session}\n")


def _one(file: Path, stack: Stack, source: Source, sizes: Sizes, app: str) -> tuple[int, int]:
    """Bytes resident at most until the stall, and at all."""
    contender = contenders.relay(file, app, file.with_suffix(".log"))
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
            with paused([_broker(stack)]):
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


def _broker(stack: Stack) -> psutil.Process:
    pid = stack.broker_pids[0]
    assert pid is not None, "servers.started gives a running broker"
    return psutil.Process(pid)
