"""Columns as ClickHouse has them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from loader.clickhouse.tables import Tables as Looked
from relay.clickhouse.errors import About, about
from relay.clickhouse.replica_log import MAY_HAVE_READ_LOG, READ_WHOLE_LOG
from relay.config.settings import ClickHouse
from relay.errors import ClickHouseAway, Refused, Unavailable
from relay.schema.catalogue import Catalogue, TableColumns, translated
from relay.schema.evolution import ColumnDef

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def catalogue(clickhouse: ClickHouse) -> Iterator[Catalogue]:
    catalogue = Catalogue(clickhouse)
    yield catalogue
    catalogue.close()


def test_columns_in_order_with_kinds(catalogue: Catalogue, client: Any, database: str) -> None:
    """Columns come in the table's order with type and kind, and the table with its uuid."""
    client.command(
        f"CREATE TABLE {database}.t (z Int64, a LowCardinality(Nullable(String)), "
        "d Date DEFAULT today(), m String MATERIALIZED toString(z), l String ALIAS toString(z)) "
        "ENGINE = MergeTree ORDER BY z"
    )
    found = catalogue.read({f"{database}.t"})[f"{database}.t"]
    assert found.columns == (
        ColumnDef("z", "Int64", ""),
        ColumnDef("a", "LowCardinality(Nullable(String))", ""),
        ColumnDef("d", "Date", "DEFAULT"),
        ColumnDef("m", "String", "MATERIALIZED"),
        ColumnDef("l", "String", "ALIAS"),
    )
    assert len(found.uuid) == 36
    client.command(f"DROP TABLE {database}.t SYNC")
    client.command(f"CREATE TABLE {database}.t (z Int64) ENGINE = MergeTree ORDER BY z")
    assert catalogue.read({f"{database}.t"})[f"{database}.t"].uuid != found.uuid


def test_tables_whose_rows_stay_as_one_insert_left_them(
    catalogue: Catalogue, client: Any, database: str
) -> None:
    """As loader.core.table_rules says of them: elsewhere the loader inserts block by block."""
    tables = {
        "plain": "MergeTree ORDER BY a",
        "parts": "MergeTree PARTITION BY a ORDER BY a",
        "expires": "MergeTree ORDER BY a TTL d + INTERVAL 1 DAY",
        "merges": "ReplacingMergeTree ORDER BY a",
        "viewed": "MergeTree ORDER BY a",
        "viewing": "MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 10",
        "keeps": "Memory",
    }
    for name, engine in tables.items():
        client.command(f"CREATE TABLE {database}.{name} (a Int8, d Date) ENGINE = {engine}")
    client.command(
        f"CREATE MATERIALIZED VIEW {database}.v TO {database}.viewing AS "
        f"SELECT a, d FROM {database}.viewed"
    )
    asked = {f"{database}.{name}" for name in tables}
    plain = {table for table, found in catalogue.read(asked).items() if found.plain}
    looked = Looked(client, "_block").look(asked)

    assert plain == {f"{database}.plain", f"{database}.viewing"}
    assert plain == {table for table, target in looked.items() if target.nature.is_countable}


def test_only_what_was_asked(catalogue: Catalogue, client: Any, database: str) -> None:
    """Tables asked for that exist are there, others and views are not; without names, all are."""
    for name in ("t", "u"):
        client.command(f"CREATE TABLE {database}.{name} (a Int8) ENGINE = Memory")
    client.command(f"CREATE VIEW {database}.v AS SELECT a FROM {database}.t")
    asked = {f"{database}.t", f"{database}.v", f"{database}.none", "none.t", "system.tables"}
    assert set(catalogue.read(asked)) == {f"{database}.t"}
    every = catalogue.read()
    assert {f"{database}.t", f"{database}.u"} <= set(every)
    assert not [name for name in every if name.startswith(("system.", "INFORMATION_SCHEMA."))]


def test_sql_in_a_name_is_never_executed(catalogue: Catalogue, client: Any, database: str) -> None:
    """A name with SQL in it finds nothing and does nothing."""
    client.command(f"CREATE TABLE {database}.t (a Int8) ENGINE = Memory")
    nasty = [f"{database}.t'; DROP TABLE {database}.t; --", f"{database}.t') OR 1 = 1 --", "'.'"]
    assert catalogue.read(nasty) == {}
    assert set(catalogue.read([f"{database}.t", *nasty])) == {f"{database}.t"}


def test_nobody_there_is_unavailable() -> None:
    """With no server at the address the error names it, and a later read tries again."""
    catalogue = Catalogue(ClickHouse(url="http://127.0.0.1:1"))
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1"):
            catalogue.read()


def test_no_names_ask_nobody() -> None:
    """Asked for no table, the answer is none, without a server."""
    assert Catalogue(ClickHouse(url="http://127.0.0.1:1")).read([]) == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OperationalError("connection refused"), ClickHouseAway),
        (DatabaseError("too many", code=202, name="TOO_MANY_SIMULTANEOUS_QUERIES"), ClickHouseAway),
        (DatabaseError("keeper", code=999, name="KEEPER_EXCEPTION"), ClickHouseAway),
        (DatabaseError("password", code=516, name="AUTHENTICATION_FAILED"), Refused),
        (DatabaseError("rights", code=497, name="ACCESS_DENIED"), Refused),
    ],
)
def test_errors_say_whether_waiting_helps(error: Any, kind: type[Exception]) -> None:
    """What passes by itself is Unavailable, a no is Refused; both name server and user."""
    found = translated(error, ClickHouse(url="http://ch:8123", user="eve"), "read")
    assert type(found) is kind
    assert "http://ch:8123 (user eve)" in found.message
    assert found.next_step


def test_only_a_changed_table_is_read_again(
    catalogue: Catalogue, client: Any, database: str
) -> None:
    """A table that stays as it was has the same object; each kind of change gives a new one."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (a Int8, d Date) ENGINE = MergeTree ORDER BY a")
    client.command(f"CREATE TABLE {database}.u (a Int8) ENGINE = MergeTree ORDER BY a")
    found = _settled(catalogue, table)
    for change in (
        f"ALTER TABLE {table} ADD COLUMN b String",
        f"ALTER TABLE {table} MODIFY COLUMN b Nullable(String)",
        f"ALTER TABLE {table} MODIFY COLUMN b String DEFAULT 'x'",
        f"ALTER TABLE {table} MODIFY COLUMN b String AFTER a",
        f"ALTER TABLE {table} RENAME COLUMN b TO c",
        f"ALTER TABLE {table} MODIFY TTL d + INTERVAL 1 DAY",
        f"EXCHANGE TABLES {table} AND {database}.u",
        f"CREATE MATERIALIZED VIEW {database}.v ENGINE = Null AS SELECT a FROM {table}",
    ):
        client.command(change)
        changed = catalogue.read({table})[table]
        assert changed != found, change
        found = _settled(catalogue, table)
        assert found == changed
    client.command(f"DROP TABLE {database}.v SYNC")
    client.command(f"DROP TABLE {table} SYNC")
    assert catalogue.read({table}) == {}


def test_two_changes_within_a_second_are_both_seen(
    catalogue: Catalogue, client: Any, database: str
) -> None:
    """ClickHouse notes the second of a change; two in one second differ in nothing else."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (a Int8, d Date) ENGINE = MergeTree ORDER BY a")
    for _ in range(10):
        client.command(f"ALTER TABLE {table} MODIFY TTL d + INTERVAL 1 DAY")
        assert not catalogue.read({table})[table].plain
        client.command(f"ALTER TABLE {table} REMOVE TTL")
        assert catalogue.read({table})[table].plain


def _settled(catalogue: Catalogue, table: str) -> TableColumns:
    """The table's columns, once it gives the same object twice."""
    deadline = time.monotonic() + 30
    before = catalogue.read({table})[table]
    while (now := catalogue.read({table})[table]) is not before:
        assert time.monotonic() < deadline
        before = now
    return now


INVENTED = [f"shop.{'x' * 24}{number:06}" for number in range(6000)]


def test_however_many_tables_are_asked_about(
    catalogue: Catalogue, client: Any, database: str
) -> None:
    """Messages may name anything, and what a server takes of one value is bounded."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (z Int64) ENGINE = MergeTree ORDER BY z")
    assert catalogue.read([*INVENTED, table]).keys() == {table}


def test_the_loader_asks_about_as_many(client: Any, database: str) -> None:
    """Tables and ids of the blocks of a micro-batch, after an outage or a restored ledger."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (_block String) ENGINE = MergeTree ORDER BY _block")
    client.command(f"INSERT INTO {table} VALUES ('{INVENTED[-1]}')")
    looked = Looked(client, "_block")
    assert looked.look([*INVENTED, table]).keys() == {table}
    assert looked.counted(table, INVENTED) == {INVENTED[-1]: 1}
    comment = {"log_comment": f"{INVENTED[0]},{INVENTED[-1]}"}
    client.command(f"INSERT INTO {table} VALUES ('')", settings=comment)
    asked = looked.evidence.recorded(INVENTED, since_ms=int(time.time() * 1000))
    assert asked == {INVENTED[0], INVENTED[-1]}


def test_more_in_one_value_than_the_server_takes_is_no_absent_server(client: Any) -> None:
    """The server is there: to wait for it would stop every other table."""
    with pytest.raises(DatabaseError) as refused:
        client.query("SELECT length({x:Array(String)})", parameters={"x": INVENTED})
    assert about(str(refused.value), refused.value.code) is About.SIZE


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        ("7 AS log_pointer", (1, 0)),
        ("6 AS log_pointer", (0, 0)),
        ("1 AS log_pointer, 0 AS log_max_index", (1, 0)),
        ("0 AS log_pointer, 0 AS log_max_index", (0, 1)),
        ("0 AS log_pointer, 0 AS log_max_index, 1 AS total_replicas", (1, 0)),
        ("0 AS log_pointer", (0, 0)),
        ("7 AS log_pointer, 1 AS is_readonly", (0, 0)),
        ("7 AS log_pointer, 1 AS is_session_expired", (0, 0)),
        ("0 AS log_pointer, 0 AS log_max_index, 'lost' AS zookeeper_exception", (0, 0)),
    ],
)
def test_what_a_replica_says_of_its_log(
    client: Any, replica: str, expected: tuple[int, int]
) -> None:
    """Whether it has read all, and whether it may have: of the numbers of an empty log, where
    others could have made an entry."""
    usual = {
        "is_readonly": "0",
        "is_session_expired": "0",
        "zookeeper_exception": "''",
        "log_max_index": "6",
        "total_replicas": "3",
    }
    more = [f"{value} AS {name}" for name, value in usual.items() if name not in replica]
    row = f"SELECT {', '.join([replica, *more])}"
    asked = f"SELECT {READ_WHOLE_LOG}, {MAY_HAVE_READ_LOG} FROM ({row})"
    assert client.query(asked).result_rows == [expected]
