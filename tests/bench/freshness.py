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
        inserted = _inserted(running, made)
        stages = _stages(running, made, loaded)
    sent = sum(fed.ends) - sum(first)
    return [
        *_delays("produced to queryable", _ages(made, inserted), limits=True),
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


def _inserted(running: Live, made: Mapping[str, Weighted]) -> dict[str, float]:
    """When the INSERT of each block had ended, in Unix time; all of `made`.

    Raises:
        KeyError: ClickHouse has no record of a block's INSERT.
    """
    running.client.command("SYSTEM FLUSH LOGS")
    rows = running.client.query(
        "SELECT arrayJoin(splitByChar(',', log_comment)) AS block, "
        "min(toUnixTimestamp64Milli(event_time_microseconds::DateTime64(3))) "
        "FROM system.query_log WHERE type = 'QueryFinish' AND query_kind = 'Insert' "
        "AND written_rows > 0 AND log_comment != '' GROUP BY block"
    ).result_rows
    found = {block: at / 1000 for block, at in rows}
    return {block: found[block] for block in made}


def _said(running: Live, state: str) -> dict[str, float]:
    """Unix time by block, when the ledger first said so."""
    rows = running.client.query(
        f"SELECT block, toUnixTimestamp64Milli(min(at)) FROM {_LEDGER} "
        f"WHERE state = '{state}' GROUP BY block"
    ).result_rows
    return {block: at / 1000 for block, at in rows}


def _stages(
    running: Live, made: dict[str, Weighted], loaded: dict[str, float]
) -> dict[str, Weighted]:
    """Where the time goes: (seconds, rows) of each part of the way, by what it is."""
    load = running.load
    records = journal.commits(running.stack.bootstrap, live.APP, load.partitions)
    sealed = {b.id: b.sealed_at_ms / 1000 for record in records for b in record.blocks}
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
