"""`python -m tests.bench freshness`: produced -> queryable at a steady rate, row by row.

Receives a directory and a Load, gives figures. Each row carries in `at` when its producer made
it. It was queryable, at the latest, when the INSERT of its block had ended, as ClickHouse says in
system.query_log with its own clock. The ledger calls a block loaded a moment later, when the others
of its micro-batch are, too: that is told besides. Asking for new blocks all the time instead kept
the engine busy that was to be measured (0.7 of a core, 0.6 without). What counts are the rows, not
the blocks.

With bad messages in one table, the figures are those of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from relay.records_pb2 import Block
from tests.bench import journal, live, measure
from tests.bench.figures import Figure, quantile
from tests.bench.live import Live, Load

P50_LIMIT, P99_LIMIT = 1.0, 2.0  # seconds, by issue 8
EVERY_SECONDS = 0.1
_LEDGER = "ledger.ledger"  # the database is that of tests.bench.config

Weighted = list[tuple[float, int]]


def run(directory: Path, load: Load, progress: Callable[[str], None]) -> list[Figure]:
    """One run.

    Raises:
        NotExactlyOnce: ClickHouse holds more rows than were sent.
    """
    with live.running(directory, load, progress, block_column=True) as running:
        shape = load.shape
        first = running.ends
        progress(f"{load.rate:,.0f} rows/s in {shape.tables} tables for {load.seconds:g} s")
        began = time.monotonic()
        with running.feeding(load.seconds, "feed") as feed:
            meter = running.meter()
            while not feed.process.ended:
                running.still_run()
                time.sleep(EVERY_SECONDS)  # the interval of looks
                meter.look()
            used = meter.figures(time.monotonic() - began)
            fed = feed.fed()
            left = load.taken(fed.ends) - running.visible()
            running.arrived(fed)
        made = _made(running, first)
        loaded = _loaded(running, made)
        inserted = _inserted(running)
        sealed = _sealed(running)
        stages = _stages(running, made, loaded, sealed)
    sent = sum(fed.ends) - sum(first)
    return [
        *_delays("produced to queryable", _ages(made, inserted), limits=True),
        *_first_start(inserted, sealed, running.started),
        *_delays("produced to loaded, by the ledger", _ages(made, loaded)),
        *(figure for name, of in stages.items() for figure in _delays(name, of)),
        Figure("blocks", len(made), "blocks"),
        Figure("rate of the feed", sent / fed.seconds, "rows/s", "higher"),
        *fed.figures(),
        Figure("not yet queryable at the end", left / load.rate, "s of rows", "lower"),
        *used,
    ]


def _made(running: Live, first: list[int]) -> dict[str, Weighted]:
    """When each measured row was made: (Unix time, rows) by block."""
    found: dict[str, Weighted] = {}
    for table, begin in zip(running.load.good, first, strict=False):
        rows = running.client.query(
            f"SELECT _block, toUnixTimestamp64Milli(at) AS made, count() FROM {table} "
            f"WHERE event >= {begin} GROUP BY _block, made"
        ).result_rows
        for block, made, count in rows:
            found.setdefault(block, []).append((made / 1000, count))
    return found


def _ages(made: dict[str, Weighted], until: dict[str, float]) -> Weighted:
    """(seconds from each row's making to its block's time, rows)."""
    return [
        (until[block] - at, count) for block, rows in made.items() for at, count in rows
    ]  # fmt: skip


def _loaded(running: Live, made: Mapping[str, Weighted]) -> dict[str, float]:
    """When the ledger called each block loaded, in Unix time; all of `made`."""
    found: dict[str, float] = {}

    def known() -> int:
        found.update(_said(running, "loaded"))
        return len(made.keys() & found.keys())

    measure.samples(known, len(made), running.still_run, EVERY_SECONDS)
    return found


def _inserted(running: Live) -> dict[str, float]:
    """When the INSERT of each block had ended, in Unix time, as ClickHouse recorded it."""
    running.client.command("SYSTEM FLUSH LOGS")
    rows = running.client.query(
        "SELECT arrayJoin(splitByChar(',', log_comment)) AS block, "
        "min(toUnixTimestamp64Milli(event_time_microseconds::DateTime64(3))) "
        "FROM system.query_log WHERE type = 'QueryFinish' AND query_kind = 'Insert' "
        "AND written_rows > 0 AND log_comment != '' GROUP BY block"
    ).result_rows
    return {block: at / 1000 for block, at in rows}


def _first_start(
    inserted: Mapping[str, float], sealed: Iterable[Block], started: float
) -> list[Figure]:
    """How long after the relay's first start the first row of each table was queryable.

    Feed and loader start with it; the app has no topics yet.
    """
    first: dict[str, float] = {}
    for block in sealed:
        if (at := inserted.get(block.id)) is not None:  # bad messages may be all that it had
            first[block.table] = min(at, first.get(block.table, at))
    seconds = [(at - started, 1) for at in first.values()]
    return [
        Figure("first row of half of the tables, after a first start", quantile(seconds, 0.5), "s"),
        Figure("first row of the last table, after a first start", quantile(seconds, 1.0), "s"),
    ]


def _said(running: Live, state: str) -> dict[str, float]:
    """Unix time by block, when the ledger first said so."""
    rows = running.client.query(
        f"SELECT block, toUnixTimestamp64Milli(min(at)) FROM {_LEDGER} "
        f"WHERE state = '{state}' GROUP BY block"
    ).result_rows
    return {block: at / 1000 for block, at in rows}


def _sealed(running: Live) -> list[Block]:
    """All blocks, since the relay's start."""
    records = journal.commits(running.stack.bootstrap, live.APP, running.load.partitions)
    return [block for record in records for block in record.blocks]


def _stages(
    running: Live, made: dict[str, Weighted], loaded: dict[str, float], blocks: Iterable[Block]
) -> dict[str, Weighted]:
    """Where the time goes: (seconds, rows) of each part of the way, by what it is."""
    sealed = {block.id: block.sealed_at_ms / 1000 for block in blocks}
    prepared = _said(running, "prepared")
    weights = {block: sum(count for _, count in rows) for block, rows in made.items()}
    return {
        "of that, produced to sealed": _ages(made, sealed),
        "sealed to prepared": _between(sealed, prepared, weights),
        "prepared to loaded": _between(prepared, loaded, weights),
    }


def _between(begin: dict[str, float], end: dict[str, float], weights: dict[str, int]) -> Weighted:
    return [(end[block] - begin[block], rows) for block, rows in weights.items()]


def _delays(name: str, of: Iterable[tuple[float, int]], *, limits: bool = False) -> list[Figure]:
    """p50, p99 and the most, over rows."""
    rows = list(of)
    better = "lower" if limits else "neither"
    return [
        Figure(f"{name}, p50", quantile(rows, 0.5), "s", better, P50_LIMIT if limits else None),
        Figure(f"{name}, p99", quantile(rows, 0.99), "s", better, P99_LIMIT if limits else None),
        Figure(f"{name}, most", quantile(rows, 1.0), "s"),
    ]
