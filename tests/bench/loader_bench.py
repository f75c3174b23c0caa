"""`python -m tests.bench loader`: the loader beside typed rows in Spark, and its ceiling.

Receives a directory and sizes, starts a broker and a ClickHouse endpoint of its own,
gives results. Blocks are made once, by `relay run` itself; each round empties the tables and the
ledger and loads all blocks again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from relay import names
from relay.dev.stack import Stack
from relay.errors import NotExactlyOnce
from tests.bench import config, contenders, journal, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Contender, Process
from tests.bench.measure import Result, Run, watch
from tests.bench.relay_bench import Progress
from tests.bench.source import Source

TYPED = {
    "Spark, typed rows through the JVM": ("rows", "other"),
    "Spark, typed rows as Arrow": ("columns", "peer"),
}
"""tests.bench.typed's name of each, and its role: of two ways to the same end the faster is the
peer."""
_PER_MESSAGE = 100
ROWS_FACTOR = 1
"""So many times `--rows`: about 50 full blocks by default."""
_AGE_SECONDS = 20.0
"""Blocks of full size, as under load; else a table's last would be tiny."""
BLOCK_BYTES = 10_000_000
"""Row bytes of a block by default."""
_ROWS_PER_BLOCK = 120_000
"""What 10 MB of these rows are."""
_EVERY_SECONDS = 0.1  # a question costs the engine, which is what is measured
_ENDING_SECONDS = 120.0


def run(
    directory: Path,
    total: int,
    runs: int,
    progress: Progress,
    block_bytes: int = BLOCK_BYTES,
    beside: Path | None = None,
) -> list[Result]:
    """All contenders, `runs` rounds; `beside`: the checkout of another version, for the peers."""
    wanted = total * ROWS_FACTOR
    with servers.started(directory, progress) as stack:
        rows.create_tables(servers.client(stack))
        progress(f"filling: {wanted:,} rows, {_PER_MESSAGE} per message")
        source = sources.fill(stack.bootstrap, "source", wanted, _PER_MESSAGE)
        app = "blocks"
        sums = make_blocks(stack, source, app, directory, block_bytes)
        progress(f"{sums.blocks} blocks of {sums.rows / sums.blocks:,.0f} rows on average")
        ways = _ways(stack, source, app, directory, beside)
        measured: list[list[Run]] = [[] for _ in ways]
        for turn in range(runs):
            for way, done in zip(ways, measured, strict=True):
                done.append(way.load(turn))
                progress(_line(turn, runs, way.name, done))
    return [
        Result(way.name, _PER_MESSAGE, tuple(done), way.role)
        for way, done in zip(ways, measured, strict=True)
    ]


class _Way(NamedTuple):
    """One of those that take turns."""

    name: str
    role: str
    load: Callable[[int], Run]
    """From the number of the turn."""


def _ways(
    stack: Stack, source: Source, app: str, directory: Path, beside: Path | None
) -> list[_Way]:
    def typed(name: str) -> Callable[[int], Run]:
        place = directory / TYPED[name][0]
        return lambda turn: load_typed(stack, source, app, Path(f"{place}-{turn}"), name)

    def other(checkout: Path) -> Callable[[int], Run]:
        return lambda turn: load_once(
            stack, source, app, directory, f"{turn}_beside", checkout=checkout
        )

    if beside:
        peers = [_Way(f"loader of {beside.name}", "peer", other(beside))]
    else:
        peers = [_Way(name, role, typed(name)) for name, (_, role) in TYPED.items()]
    ceiling = f"insert_arrow, {os.cpu_count() or 1} threads"
    return [
        _Way("loader", "product", lambda turn: load_once(stack, source, app, directory, str(turn))),
        *peers,
        _Way(ceiling, "ceiling", lambda _: insert_ready(stack, source)),
    ]


def make_blocks(
    stack: Stack, source: Source, app: str, directory: Path, block_bytes: int = BLOCK_BYTES
) -> journal.Sums:
    """All rows of the source in block topics and the journal, by the relay."""
    block = {"max_age_seconds": _AGE_SECONDS, "max_bytes": block_bytes}
    file = config.write(directory, app, stack, source.topic, block)
    contender = contenders.relay(file, app, directory / f"{app}-relay.log")
    committed = sources.CommittedOffsets(stack.bootstrap, contender.group, source.topic)
    try:
        with Process(contender) as process:
            while committed() < source.messages:
                process.still_runs()
                time.sleep(_EVERY_SECONDS)
    finally:
        committed.close()
    return journal.check(stack.bootstrap, app, source)


def load_once(
    stack: Stack,
    source: Source,
    app: str,
    directory: Path,
    turn: str,
    *,
    block_column: bool = False,
    checkout: Path = contenders.ROOT,
) -> Run:
    """`loader run --once` into empty tables with an empty ledger."""
    client = servers.client(stack)
    rows.create_tables(client, block_column=block_column)
    # A database and a checkpoint of its own: nothing is known to be loaded.
    place = directory / f"load-{turn}"
    place.mkdir()
    file = config.write(place, app, stack, source.topic, ledger=f"ledger_{turn}")
    program = contenders.loader(file, app, place / "loader.log", checkout=checkout)
    return _moved(client, source, program)


def load_typed(stack: Stack, source: Source, app: str, place: Path, name: str) -> Run:
    """A peer: the same blocks, with types that Spark has, into empty tables."""
    client = servers.client(stack)
    rows.create_tables(client)
    place.mkdir()
    file = config.write(place, app, stack, source.topic)
    return _moved(client, source, contenders.typed(file, TYPED[name][0], place / "typed.log"))


def _moved(client: Client, source: Source, contender: Contender) -> Run:
    """All rows into ClickHouse by one program, and its end; checked."""
    with Process(contender) as process:
        measured = watch(
            visible_rows(client),
            source.rows,
            source.rows,
            process.has_not_failed,
            process.started,
            _EVERY_SECONDS,
        )
        process.wait(_ENDING_SECONDS)
    _check(client, source)
    return measured


def insert_ready(stack: Stack, source: Source) -> Run:
    """The ceiling: the same rows as ready Arrow, by clickhouse-connect, no guarantee at all."""
    rows.create_tables(servers.client(stack))
    batches = list(_ready(source.rows // len(rows.TABLES)))
    workers = os.cpu_count() or 1
    client = servers.client(stack)
    with ThreadPoolExecutor(workers) as pool:
        started = time.monotonic()
        # A client of its own for each thread: a session takes one statement at a time.
        shares = [
            pool.submit(_insert, servers.client(stack), batches[worker::workers])
            for worker in range(workers)
        ]

        def have_not_failed() -> None:
            for share in shares:
                if share.done():
                    share.result()

        measured = watch(
            visible_rows(client),
            source.rows,
            source.rows,
            have_not_failed,
            started,
            _EVERY_SECONDS,
        )
    _check(client, source)
    return measured


def _ready(each: int) -> Iterator[tuple[str, pa.Table]]:
    """Blocks of all tables in turn, `each` rows per table, in the types of blocks."""
    for first in range(0, each, _ROWS_PER_BLOCK):
        count = min(_ROWS_PER_BLOCK, each - first)
        batch = rows.columns(first, count)
        day = batch.schema.get_field_index("day")
        at = batch.schema.get_field_index("at")
        batch = batch.set_column(day, "day", batch.column(day).cast(pa.uint16()))
        batch = batch.set_column(at, "at", batch.column(at).cast(pa.timestamp("ms")))
        for table in rows.TABLES:
            yield table, pa.Table.from_batches([batch])


def _insert(client: Client, batches: list[tuple[str, pa.Table]]) -> None:
    for table, batch in batches:
        database, name = names.split_table(table)
        client.insert_arrow(name, batch, database=database, settings={"async_insert": 0})


def visible_rows(client: Client) -> Callable[[], int]:
    """Rows in all tables; the engine knows the number without reading them."""

    def visible() -> int:
        found = client.query(
            "SELECT sum(total_rows) FROM system.tables WHERE database = {database:String}",
            parameters={"database": rows.DATABASE},
        ).result_rows
        return int(found[0][0] or 0)

    return visible


def _check(client: Client, source: Source) -> None:
    """Each table has each row once; `event` numbers them."""
    each = source.rows // len(rows.TABLES)
    for table in rows.TABLES:
        count, distinct = client.query(
            f"SELECT count(), uniqExact(event) FROM {table}"
        ).result_rows[0]
        if (count, distinct) != (each, each):
            raise NotExactlyOnce(f"{table}: {count} rows, {distinct} distinct, of {each}")


def _line(turn: int, runs: int, name: str, done: list[Run]) -> str:
    return (
        f"round {turn + 1} of {runs}, {name}: {done[-1].rows_per_second:,.0f} rows/s "
        f"({done[-1].seconds:.1f} s)"
    )
