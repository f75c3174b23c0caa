"""A ledger that a rewind may not read is no missing one; on ClickHouse's own server with users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from relay.config.settings import Settings
from relay.errors import Refused
from relay.operate.rewind import tables
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import User

TABLE = "shop.orders"
ROWS = f"GRANT SELECT ON {TABLE}"
USERS = (
    User("admin", "admin"),
    User("blind", "blind", (ROWS,)),
    User("shown", "shown", (ROWS, "GRANT SHOW TABLES ON books.ledger")),
    User("reader", "reader", (ROWS, "GRANT SELECT ON books.ledger", "GRANT SELECT ON none.ledger")),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(NOW, tmp_path_factory.mktemp("users"), USERS) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            admin.command("CREATE DATABASE books")
            admin.command(f"CREATE TABLE {TABLE} (id Int64, _block String) ORDER BY id")
            admin.command(
                "CREATE TABLE books.ledger (app String, table String, block String, state String, "
                "stamped Bool) ORDER BY block"
            )
            admin.command(
                f"INSERT INTO books.ledger VALUES ('shop', '{TABLE}', 'old', 'prepared', false)"
            )
        yield server


def unstamped(
    engine: Engine, user: str, database: str = "books", others: Sequence[str] = ()
) -> frozenset[str]:
    settings = Settings.model_validate(
        {
            "app": "shop",
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "source": {"topic": "rows"},
            "clickhouse": {"url": engine.url, "user": user, "password": user},
            "loader": {"checkpoint": "c", "database": database},
        }
    )
    return tables._unstamped(settings, [TABLE, *others])


@pytest.mark.parametrize(("user", "right"), [("blind", "SHOW TABLES"), ("shown", "SELECT")])
def test_a_ledger_that_may_not_be_read_stops_a_rewind(
    engine: Engine, user: str, right: str
) -> None:
    """Taken for none, blocks whose rows have no id would be taken for such with one."""
    with pytest.raises(Refused, match=rf"grant {right}.* ON books.ledger"):
        unstamped(engine, user)


def test_a_ledger_that_is_there_is_read_and_one_that_is_not_is_none(engine: Engine) -> None:
    assert unstamped(engine, "reader") == {"old"}
    assert unstamped(engine, "reader", "none") == frozenset()


def test_more_tables_than_one_question_takes(engine: Engine) -> None:
    others = [f"shop.{'x' * 24}{number:06}" for number in range(6000)]
    assert unstamped(engine, "reader", others=others) == {"old"}
