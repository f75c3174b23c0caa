"""SHOW TABLES, on ClickHouse's own server with users: what a loader concludes with it.

Each user has what is printed for a loader, one of them without that right. Neither has SHOW ROW
POLICIES, by which a user sees every table, too: where system tables need grants, SELECT on
system.row_policies stands for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks import worker as blocks_worker
from loader.blocks.worker import Worker
from loader.clickhouse import server_records
from loader.core.entries import NewEntry
from loader.core.plan import PREPARED, Entry
from loader.journal.startup import ledger_of
from relay.config.settings import Settings
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from tests.doctor.test_users import ROWS, Fetched, block, of_role, settings
from tests.loader.test_evidence import number, summed
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import STRICT, User

SEES, DOES_NOT = "sees", "does_not"
USERS = (SEES, DOES_NOT)


def table_of(user: str) -> str:
    return f"shop.{user}"


def view_of(user: str) -> str:
    return f"{table_of(user)}_sums_mv"


def user(name: str) -> User:
    printed = of_role("loader", name, [table_of(name)])
    given = [f"GRANT {one.privileges} ON {one.place}" for one in printed]
    given.remove("GRANT SHOW ROW POLICIES ON *.*")
    if name == DOES_NOT:
        given.remove("GRANT SHOW TABLES ON shop.*")
    return User(name, name, tuple(given))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    users = [user(name) for name in USERS]
    with running(NOW, tmp_path_factory.mktemp("views"), users, more=STRICT) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            for name in USERS:
                admin.command(
                    f"CREATE TABLE {table_of(name)} (id Int64, name LowCardinality(String), "
                    "_block String) ENGINE = MergeTree ORDER BY id "
                    "SETTINGS non_replicated_deduplication_window = 100"
                )
                summed(admin, table_of(name))
        yield server


@pytest.fixture
def admin(engine: Engine) -> Iterator[Client]:
    with contextlib.closing(engine.client()) as client:
        yield client


def reaching(engine: Engine, name: str) -> Settings:
    return settings(name).model_copy(update={"clickhouse": engine.reached_as(user(name))})


@pytest.mark.parametrize("name", USERS)
def test_a_table_with_a_view_into_which_nobody_has_inserted_anything(
    engine: Engine, admin: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The loader was killed before its INSERT, and the server's logs lack some since.

    Red before: SHOW TABLES was not printed, the block was parked, and no right was named.
    """
    monkeypatch.setattr(blocks_worker, "Fetcher", Fetched)
    monkeypatch.setattr(server_records, "_COMPLETE", "SELECT 0")  # as after a restart
    given, table = reaching(engine, name), table_of(name)
    ledger, one = ledger_of(given, make=True), block(given.app, table)
    claim = Entry(PREPARED, 1, "old", 0, stamped=True, rows=ROWS, sent="alone")
    ledger.write([NewEntry(one, claim)])
    with contextlib.closing(Worker(given)) as worker:
        (done,) = worker.load([one])
    came = [number(admin, place) for place in (table, f"{table}_sums")]
    if name == SEES:
        assert (done.outcome, came) == ("loaded", [ROWS, ROWS]), done
    else:
        assert (done.outcome, came) == ("parked", [0, 0]), done
        said = f"{view_of(name)}, which is not seen here (the user may need SHOW TABLES on it)"
        assert said in done.reason


@pytest.mark.parametrize("name", USERS)
def test_the_doctor_names_a_view_that_it_does_not_see(engine: Engine, name: str) -> None:
    """With what grants it."""
    with contextlib.closing(ClickHouseQuestions(reaching(engine, name))) as server:
        unasked = server.look([table_of(name)]).unasked
    told = [one.mend for one in unasked if one.what == f"what is behind {table_of(name)}"]
    grant = f"GRANT SHOW TABLES ON {view_of(name)} TO {name}"
    assert told == ([] if name == SEES else [grant])
