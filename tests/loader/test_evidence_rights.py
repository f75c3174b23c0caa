"""What this user may not ask about hidden rows is said with the right; on a server with users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.clickhouse import client as clickhouse_client
from loader.clickhouse.server_records import _STATEMENTS, ServerRecords, why_fewer
from relay.config.server_settings import ClickHouse
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import STRICT, User

TABLE = "shop.orders"
MASKED = {
    "shop.masked": ("", ""),
    "shop.patched": (
        "SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1",
        "SETTINGS lightweight_delete_mode = 'lightweight_update_force'",
    ),
}
"""Tables of which a DELETE has masked a row: their settings, and those of the DELETE."""
ROWS, PARTS = f"GRANT SELECT ON {TABLE}", "GRANT SELECT ON system.parts"
SETTINGS = ("settings", "functions", "build_options", "one")
ASKS = tuple(f"GRANT SELECT ON system.{name}" for name in SETTINGS)
OF_MASKED = tuple(f"GRANT SELECT ON {table}" for table in MASKED)
USERS = (
    User("admin", "admin"),
    User("whole", "whole", (ROWS, PARTS, *ASKS)),
    User("narrow", "narrow", (ROWS, PARTS, *ASKS), policies={TABLE: "id > 1"}),
    User("no_parts", "no_parts", (ROWS, *ASKS)),
    User("masked", "masked", (*OF_MASKED, PARTS, *ASKS)),
    User("fixed", "fixed", (*OF_MASKED, PARTS, *ASKS), constant=("apply_deleted_mask",)),
    User("no_rows", "no_rows", (f"GRANT SHOW TABLES ON {TABLE}", PARTS, *ASKS)),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(NOW, tmp_path_factory.mktemp("users"), USERS, more=STRICT) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            admin.command(f"CREATE TABLE {TABLE} (id Int64) ENGINE = MergeTree ORDER BY id")
            admin.command(f"INSERT INTO {TABLE} VALUES (1), (2)")
            for table, (of_table, of_delete) in MASKED.items():
                admin.command(
                    f"CREATE TABLE {table} (id Int64) ENGINE = MergeTree ORDER BY id {of_table}"
                )
                admin.command(f"INSERT INTO {table} VALUES (1), (2)")
                admin.command(f"DELETE FROM {table} WHERE id = 1 {of_delete}")
        yield server


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ("whole", ""),
        ("narrow", "this user does not see all rows of the table (a row policy, DELETEs)"),
        (
            "no_parts",
            "whether this user sees all rows is not known (the user needs SELECT on system.parts)",
        ),
        ("no_rows", f"its rows cannot be counted (the user needs SELECT on {TABLE})"),
    ],
)
def test_why_rows_may_be_hidden(engine: Engine, user: str, says: str) -> None:
    """A right that is missing was called a row policy."""
    with as_user(engine, user) as records:
        assert records.hidden(TABLE) == says


@contextlib.contextmanager
def as_user(engine: Engine, user: str) -> Iterator[ServerRecords]:
    settings = ClickHouse.model_validate({"url": engine.url, "user": user, "password": user})
    with contextlib.closing(clickhouse_client.connect(settings, 30)) as client:
        yield ServerRecords(client, several=False)


@pytest.mark.parametrize("table", MASKED)
@pytest.mark.parametrize(("user", "hides"), [("masked", False), ("fixed", True)])
def test_masked_rows_are_counted_where_the_user_may_ask(
    engine: Engine, table: str, user: str, *, hides: bool
) -> None:
    """What an old DELETE masked was taken for hidden rows, until a merge took it away."""
    with as_user(engine, user) as records:
        assert ("does not see all rows" in records.hidden(table)) is hides


class Unflushed:
    """Stands for a client whose user may read the logs, and not have them flushed."""

    def __init__(self, error: str, *statements: tuple[object, ...]) -> None:
        self._error, self._statements = error, statements

    def command(self, _: str) -> None:
        raise DatabaseError(self._error)

    def query(self, sql: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(result_rows=self._statements if sql == _STATEMENTS else [(0, 0)])


BEGUN = ("QueryStart", 0, "b,claim=c", "q", 1, 0)
"""Of an INSERT whose end is not in the log yet."""
DENIED = "Code: 497. DB::Exception: u: Not enough privileges. (ACCESS_DENIED)"
RIGHT = "the log may lack some (the user needs GRANT SYSTEM FLUSH LOGS ON *.*)"


@pytest.mark.parametrize("statements", [(), (BEGUN,)], ids=["none", "one that has begun"])
def test_a_log_that_may_not_be_flushed_names_the_right(statements: tuple[Any, ...]) -> None:
    """Red before: "the log may lack some", or the end of one, whatever the cause."""
    records = ServerRecords(cast("Any", Unflushed(DENIED, *statements)), several=False)
    found = records.record("b", {}, 0, TABLE, "relay.ledger")
    assert (found.state, found.said.endswith(RIGHT)) == ("unclear", True), found


def test_what_else_keeps_a_server_from_flushing_is_no_missing_right() -> None:
    """Negative control."""
    records = ServerRecords(cast("Any", Unflushed("Code: 48. No such thing")), several=False)
    said = records.record("b", {}, 0, TABLE, "relay.ledger").said
    assert said.endswith("the log may lack some (Code: 48. No such thing)"), said


class Filtered:
    """Stands for ServerRecords: of a user from whom a row policy hides rows."""

    def filtered(self, _: str) -> str:
        return "a row policy"

    def hidden(self, _: str) -> str:
        return "not all rows"


def test_what_is_known_of_removed_rows_leaves_no_policy_unasked() -> None:
    """Red before: rows that were hidden from the user were taken for rows that somebody removed."""
    evidence = cast("ServerRecords", Filtered())
    assert why_fewer(TABLE, ["", "deleted", ""], evidence) == "deleted, a row policy"
    assert why_fewer(TABLE, ["", ""], evidence) == "not all rows"
