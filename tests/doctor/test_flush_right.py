"""SYSTEM FLUSH LOGS, on ClickHouse's own server with users: what a loader concludes with it.

Each user has exactly what is printed for a loader, one of them without that right.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.blocks import worker as blocks_worker
from loader.blocks.worker import Worker
from loader.core.entries import NewEntry
from loader.core.plan import PREPARED, Entry
from loader.journal.startup import ledger_of
from tests.broker.pipeline import wait_until
from tests.doctor.test_users import ROWS, Fetched, block, of_role, settings
from tests.loader.blocks import clock_passes
from tests.loader.test_evidence import number, summed
from tests.loader.test_insert_groups import running_now
from tests.loader.test_work import others_insert
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import STRICT, User

FLUSHES, DOES_NOT = "flushes", "does_not"


def table_of(user: str) -> str:
    return f"shop.{user}"


def user(name: str) -> User:
    printed = of_role("loader", name, [table_of(name)])
    given = [f"GRANT {one.privileges} ON {one.place}" for one in printed]
    if name == DOES_NOT:
        given.remove("GRANT SYSTEM FLUSH LOGS ON *.*")
    return User(name, name, tuple(given))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    users = [user(FLUSHES), user(DOES_NOT)]
    with running(NOW, tmp_path_factory.mktemp("flushes"), users, more=STRICT) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            clock_passes(admin, 2)  # of a claim of the second of its start its logs may lack some
        yield server


@pytest.fixture
def admin(engine: Engine) -> Iterator[Client]:
    with contextlib.closing(engine.client()) as client:
        yield client


def kill_insert(engine: Engine, admin: Client, table: str, comment: str) -> None:
    """An INSERT that is killed before it has a row."""
    running_insert = engine.client()

    def insert() -> None:
        with contextlib.suppress(ClickHouseError):
            running_insert.command(
                f"INSERT INTO {table} SELECT number, 'x', '' FROM numbers(600) "
                "WHERE sleepEachRow(0.1)",
                settings={"log_comment": comment, "max_block_size": 1, "async_insert": 0},
            )

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        wait_until(lambda: any(running_now(admin, comment)), "the INSERT runs")
    finally:
        admin.command(f"KILL QUERY WHERE Settings['log_comment'] = '{comment}' SYNC")
        thread.join()
        running_insert.close()


@pytest.mark.parametrize("name", [FLUSHES, DOES_NOT])
def test_an_insert_that_was_killed_without_a_row(
    engine: Engine, admin: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The token is forgotten and a view is behind the table: only the server's logs can tell.

    Red before: the right was not printed, and the block was parked for a log that may lack some.
    """
    monkeypatch.setattr(blocks_worker, "Fetcher", Fetched)
    table, given = table_of(name), settings(name)
    given = given.model_copy(update={"clickhouse": engine.reached_as(user(name))})
    admin.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), _block String) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 1"
    )
    view = summed(admin, table)
    others_insert(admin, table, 1)
    ledger, one = ledger_of(given, make=True), block(given.app, table)
    claim = Entry(PREPARED, 1, "old", 1, stamped=True, rows=ROWS, sent="alone")
    ledger.write([NewEntry(one, claim)])
    kill_insert(engine, admin, table, f"{one.id},claim=old")
    others_insert(admin, table)
    with contextlib.closing(Worker(given)) as worker:
        (done,) = worker.load([one])
    came = [number(admin, f"{place} WHERE id >= 0") for place in (table, view)]
    if name == FLUSHES:
        assert (done.outcome, came) == ("loaded", [ROWS, ROWS]), done
    else:
        assert (done.outcome, came) == ("parked", [0, 0]), done
        assert "the user needs GRANT SYSTEM FLUSH LOGS ON *.*" in done.reason
