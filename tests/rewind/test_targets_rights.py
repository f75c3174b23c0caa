"""What a rewind asks of the tables, on ClickHouse's own server with users.

A ledger that it may not read is no missing one; whether it may delete rows is known beforehand;
rows that lost their block id are counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from loader.clickhouse import client as loader_client
from loader.clickhouse.ledger import Ledger
from loader.operate import supersede
from relay.config.settings import Settings
from relay.errors import Refused
from relay.operate.rewind import tables
from tests.loader.blocks import stands
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import User

TABLE, GONE = "shop.orders", "shop.gone"
ROWS = f"GRANT SELECT ON {TABLE}"
LOOKS = (
    ROWS,
    "GRANT SELECT ON shop.brief",
    f"GRANT SELECT ON {GONE}",
    "GRANT SELECT ON books.ledger",
    "GRANT SELECT ON system.parts",
)
POLICED = "shop.policed"
FILTERED = {"additional_table_filters": f"{{'{POLICED}': 'id > 5'}}"}


def on_both(condition: str) -> dict[str, str]:
    """Of the table with rows, and of the one that is empty, of which the server has no plan."""
    return {POLICED: condition, "shop.void": condition}


USERS = (
    User("admin", "admin"),
    User("owner", "owner"),
    User("blind", "blind", (ROWS,)),
    User("shown", "shown", (ROWS, "GRANT SHOW TABLES ON books.ledger")),
    User("reader", "reader", (*LOOKS, "GRANT SELECT ON none.ledger")),
    User("sees", "sees", policies=on_both("1")),
    User("narrow", "narrow", policies=on_both("id > 5")),
    User("filtered", "filtered", settings=FILTERED),
    User("fixed", "fixed", settings=FILTERED, constant=("additional_table_filters",)),
    User("remover", "remover", (*LOOKS, f"GRANT ALTER DELETE ON {TABLE}")),
)
FIRST, SECOND = f"shop:{TABLE}:0:0:1", f"shop:{TABLE}:0:0:9"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(NOW, tmp_path_factory.mktemp("users"), USERS) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            admin.command("CREATE DATABASE books")
            for name in (POLICED, "shop.void"):
                admin.command(f"CREATE TABLE {name} (id Int64, _block String) ORDER BY id")
            admin.command(f"INSERT INTO {POLICED} SELECT number, '' FROM numbers(10)")
            admin.command(f"CREATE TABLE {TABLE} (id Int64, _block String) ORDER BY id")
            admin.command(
                "CREATE TABLE books.ledger (app String, table String, block String, state String, "
                "stamped Bool, rows UInt64) ORDER BY block"
            )
            admin.command(
                "INSERT INTO books.ledger VALUES "
                f"('shop', '{TABLE}', 'old', 'prepared', false, 3), "
                f"('shop', '{TABLE}', '{FIRST}', 'loaded', true, 3), "
                f"('shop', '{TABLE}', '{FIRST}:left-out', 'loaded', true, 1), "
                f"('shop', '{TABLE}', '{SECOND}', 'discarded', true, 2), "
                f"('other', '{TABLE}', '{SECOND}', 'loaded', true, 9)"
            )
        yield server


def settings_of(engine: Engine, user: str, database: str = "books") -> Settings:
    return Settings.model_validate(
        {
            "app": "shop",
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "source": {"topic": "rows"},
            "clickhouse": {"url": engine.url, "user": user, "password": user},
            "loader": {"checkpoint": "c", "database": database},
        }
    )


def unstamped(
    engine: Engine, user: str, database: str = "books", others: Sequence[str] = ()
) -> frozenset[str]:
    settings = settings_of(engine, user, database)
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


def test_a_table_that_this_user_does_not_see_is_not_gone(engine: Engine) -> None:
    """Taken for gone, its old rows stayed beside the new ones, and the rewind was noted."""
    hidden = pytest.raises(Refused, match=r"grant SHOW TABLES ON shop\.void")
    settings = settings_of(engine, "reader")
    assert not tables.look(settings, [GONE])[GONE].there
    with hidden:
        tables.look(settings, [TABLE, "shop.void"])
    with contextlib.closing(loader_client.connect(settings.clickhouse, 60)) as asking:
        ledger = Ledger(asking, "books", "shop")
        assert supersede._remove(settings, ledger, GONE, ["1"], stands) == 0
        with hidden:
            supersede._remove(settings, ledger, "shop.void", ["1"], stands)


@pytest.mark.parametrize(
    ("user", "lacks"),
    [("reader", f"GRANT ALTER DELETE ON {TABLE} TO reader"), ("remover", "")],
)
def test_whether_rows_may_be_deleted_is_known_before_a_rewind(
    engine: Engine, user: str, lacks: str
) -> None:
    assert tables.look(settings_of(engine, user), [TABLE])[TABLE].grant == lacks


def test_rows_that_lost_their_block_id_are_counted(engine: Engine) -> None:
    """As a TTL of the column leaves them, CLEAR COLUMN, or a copy of the table."""
    blocks = {TABLE: [FIRST, SECOND], "shop.none": ["a"]}
    settings = settings_of(engine, "reader")
    with contextlib.closing(engine.client()) as admin:
        carry = f"INSERT INTO {TABLE} SELECT number, '{{}}' FROM numbers({{}})"
        for block, rows in ((FIRST, 3), (f"{FIRST}:left-out", 1), (f"other:{TABLE}:0:0:1", 4)):
            admin.command(carry.format(block, rows))
        counted = tables.counted(settings, blocks)
        assert list(counted) == [TABLE], "no block of the other is loaded"
        assert counted[TABLE].loaded == {FIRST: 3, f"{FIRST}:left-out": 1}
        assert (counted[TABLE].missing, counted[TABLE].without) == (0, 0)

        admin.command(f"ALTER TABLE {TABLE} DROP COLUMN _block SETTINGS mutations_sync = 2")
        admin.command(f"ALTER TABLE {TABLE} ADD COLUMN _block LowCardinality(Nullable(String))")
        counted = tables.counted(settings, blocks)
        assert (counted[TABLE].missing, counted[TABLE].without) == (4, 8)

        admin.command(f"TRUNCATE TABLE {TABLE}")
        counted = tables.counted(settings, blocks)
        assert (counted[TABLE].missing, counted[TABLE].without) == (4, 0), (
            "deleted, and not doubled"
        )


def test_a_column_that_expires_is_seen(engine: Engine) -> None:
    settings = settings_of(engine, "reader")
    with contextlib.closing(engine.client()) as admin:
        admin.command(
            "CREATE TABLE shop.brief (id Int64, ts DateTime, "
            "_block String TTL ts + INTERVAL 7 DAY) ORDER BY id"
        )
    found = tables.look(settings, [TABLE, "shop.brief"])
    assert (found[TABLE].expires, found["shop.brief"].expires) == (False, True)


def test_without_a_ledger_nothing_is_loaded(engine: Engine) -> None:
    assert tables.counted(settings_of(engine, "reader", "none"), {TABLE: [FIRST]}) == {}


def test_blocks_whose_rows_are_gone_or_never_come(engine: Engine) -> None:
    """Deletions under way are waited for; of a table that is gone all rows are."""
    there, gone, given_up, begun, empty, unknown = (f"shop:shop.again:0:0:{n}" for n in range(6))
    dropped = "shop:shop.dropped:0:0:1"
    with contextlib.closing(engine.client()) as admin:
        admin.command("CREATE TABLE shop.again (id Int64, _block String) ORDER BY id")
        admin.command(
            "INSERT INTO shop.again "
            f"SELECT number, if(number > 0, '{there}', '{gone}') FROM numbers(3)"
        )
        admin.command(f"ALTER TABLE shop.again DELETE WHERE _block = '{gone}' AND sleep(1) = 0")
        admin.command(
            "INSERT INTO books.ledger VALUES "
            f"('shop', 'shop.again', '{there}', 'loaded', true, 3), "
            f"('shop', 'shop.again', '{gone}', 'loaded', true, 1), "
            f"('shop', 'shop.again', '{given_up}', 'discarded', true, 2), "
            f"('shop', 'shop.again', '{begun}', 'prepared', true, 2), "
            f"('shop', 'shop.again', '{empty}', 'loaded', true, 0), "
            f"('shop', 'shop.dropped', '{dropped}', 'loaded', true, 2)"
        )
    blocks = {
        "shop.again": [there, gone, given_up, begun, empty, unknown],
        "shop.dropped": [dropped],
    }
    assert tables.removed(settings_of(engine, "owner"), blocks) == {gone, given_up, dropped}


@pytest.mark.parametrize(
    ("user", "table"), [("sees", POLICED), ("sees", "shop.void"), ("filtered", POLICED)]
)
def test_what_shows_all_rows_hides_none(engine: Engine, user: str, table: str) -> None:
    """As `USING 1`, a usual way to let a service see a table that has policies for others; or a
    filter of the profile, which each statement sets otherwise where it may."""
    assert tables.look(settings_of(engine, user), [table])[table].policies == ()


@pytest.mark.parametrize(
    ("user", "table", "what"),
    [
        ("narrow", POLICED, f"narrow ON {POLICED}"),
        ("narrow", "shop.void", "narrow ON shop.void"),
        ("fixed", POLICED, "a row policy or additional_table_filters (id > 5)"),
    ],
)
def test_what_hides_rows_is_named(engine: Engine, user: str, table: str, what: str) -> None:
    assert tables.look(settings_of(engine, user), [table])[table].policies == (what,)
