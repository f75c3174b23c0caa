"""A server that is rolled back to an older version while the loader's connections live.

What the newer one knows is not what the older one knows: a setting that it does not is an error of
every statement. The loader asks again, and parks nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from loader.clickhouse.ledger import Ledger
from loader.spark import workers
from relay.errors import Refused, Unavailable
from relay.records_pb2 import Block
from tests.versions.engines import Engine
from tests.versions.guards import Bench, Red
from tests.versions.releases import Release


def rolled_back(newer: Release, older: Release, bootstrap: str, directory: Path) -> None:
    """Load a block on each, through one worker.

    Raises:
        Red: the second one is not loaded once.
    """
    # Both behind the front or neither: it does not speak all of a server's Native format.
    newer = newer if older.listens else replace(newer, listens=False)
    first = Engine(newer, directory / "newer")
    first.start()
    second = Engine(older, directory / "older", port=first.port)
    with contextlib.ExitStack() as open_:
        open_.callback(first.kill)
        open_.callback(second.kill)
        bench = Bench(first, bootstrap, directory / "app")
        open_.callback(bench.close)
        table = bench.table()
        _load(bench, bench.block(table))
        bench.holds(table)
        driver = bench.ledger_of()
        driver.noted()
        first.kill()
        second.start()
        with contextlib.closing(second.client()) as client:  # its data is its own
            database, _, name = table.partition(".")
            client.command(f"CREATE DATABASE {database}")
            client.command(
                f"CREATE TABLE {table} (id Int64, name LowCardinality(String)) ENGINE = MergeTree "
                "ORDER BY id SETTINGS non_replicated_deduplication_window = 100"
            )
        # The ledger is made as a start of the loader makes it; the worker is the old one's.
        ledger = Bench.ledger_of(bench)
        if not ledger.exists():
            raise Red("no ledger")
        _goes_on(driver)
        _load(bench, bench.block(f"{database}.{name}"))
        with contextlib.closing(second.client()) as client:
            found = client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows[0]
        if tuple(found) != (1000, 1000):
            raise Red(f"(rows, different rows): {found}, not (1000, 1000)")


def _goes_on(driver: Ledger) -> None:
    """Writes a position and reads it, over the connection to the server that was before."""
    for again in (True, False):
        try:
            driver.save_positions("of-before", {0: 7})
            break
        except Unavailable as error:  # as loader.spark.micro_batch does, which waits and asks again
            if not again:
                raise Red(f"the driver's ledger: {error.message}") from error
        except Refused as error:
            raise Red(f"the driver's ledger: {error.message}") from error
    if driver.noted().of("of-before") != {0: 7}:
        raise Red("the driver's ledger did not take the position")


def _load(bench: Bench, block: Block) -> None:
    """As Spark's worker process does, which keeps its worker from task to task."""
    why = ""
    for _ in range(10):
        value = block.SerializeToString()
        (one,) = workers.load(bench.settings, [value], (frozenset(), 0), iter([range(1)]))
        if one.outcome == "loaded":
            return
        why = f"{one.outcome}: {one.reason}"
        if one.outcome != "retry":
            break
    raise Red(why)
