"""Tokens that a table forgets without a trace in the part log: what the server recorded decides.

tests/replicas/test_dropped_partitions.py has those that replicas forget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.pipeline import wait_until
from tests.loader.blocks import batch
from tests.loader.test_evidence import CLEANS_SOON, create, number, until_settled, window
from tests.loader.test_work import killed, outcomes

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from tests.loader.blocks import Journal

AT_ONCE = (
    f", old_parts_lifetime = 0, {CLEANS_SOON}, merge_tree_clear_old_parts_interval_seconds = 1"
)
"""What takes some 30 s by default: an emptied part goes, and its token with it."""


def await_cleaned(client: Client, table: str) -> None:
    """Until its emptied parts are gone, and their tokens."""
    client.command(f"DETACH TABLE {table}")
    client.command(f"ATTACH TABLE {table}")  # at once, too: a table that is idle cleans up late
    database, _, name = table.partition(".")
    parts = f"system.parts WHERE database = '{database}' AND table = '{name}'"
    wait_until(lambda: number(client, parts) == 0, "that the emptied part goes")


@pytest.mark.parametrize("stamped", [True, False])
def test_deleted_rows_whose_token_is_cleaned_stay_deleted(
    journal: Journal, worker: Worker, client: Client, database: str, *, stamped: bool
) -> None:
    """The INSERT was carried out; who deleted its rows before the loader came back meant it."""
    stamp = ", _block String" * stamped
    table = create(client, f"{database}.cleaned", stamp, more=window(100) + AT_ONCE)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    assert number(client, table) == 100
    client.command(f"ALTER TABLE {table} DELETE WHERE id >= 0 SETTINGS mutations_sync = 2")
    await_cleaned(client, table)
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, table) == 0


@pytest.fixture(params=["logs", "part log", "no logs"])
def decided(request: pytest.FixtureRequest) -> str:
    """How a block ends that only a query log can decide, with what logs the loader may read."""
    if request.param == "no logs":
        request.getfixturevalue("without_logs")
    if request.param == "part log":
        request.getfixturevalue("without_statements")
    return "loaded" if request.param == "logs" else "parked"


SECOND = "id >= 1000"
"""Rows that take those away whose id is 1000 less."""
CANCELLING = {
    "collapsing": (f"sign Int8 DEFAULT if({SECOND}, -1, 1)", "CollapsingMergeTree(sign)"),
    "summing": (f"n Int64 DEFAULT if({SECOND}, -1, 1)", "SummingMergeTree(n)"),
    "replacing": (
        f"n UInt8 DEFAULT {SECOND}, gone UInt8 DEFAULT {SECOND}",
        "ReplacingMergeTree(n, gone)",
    ),
}


def cancelling(client: Client, table: str, kind: str, size: int) -> None:
    column, engine = CANCELLING[kind]
    cleans = ", allow_experimental_replacing_merge_with_cleanup = 1" * (kind == "replacing")
    client.command(
        f"CREATE TABLE {table} (id Int64, name String, {column}) ENGINE = {engine} "
        f"ORDER BY id % 1000 {window(size)}{AT_ONCE}{cleans}"
    )


def merge_away(client: Client, table: str, kind: str) -> None:
    client.command(f"OPTIMIZE TABLE {table} FINAL{' CLEANUP' * (kind == 'replacing')}")
    await_cleaned(client, table)
    assert number(client, table) == 0


@pytest.mark.parametrize(
    ("kind", "size"), [*((kind, 100) for kind in CANCELLING), ("collapsing", 0)]
)
def test_rows_that_others_took_away_do_not_come_back(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    kind: str,
    size: int,
    decided: str,
) -> None:
    """A part of which nothing is left goes: the counter is as before, and the token is gone."""
    table = f"{database}.{kind}"
    cancelling(client, table, kind, size)
    first, second = journal.seal(table, batch(0, 100), batch(1000, 100))
    killed(journal, [first], "after_insert")
    assert outcomes(worker.load([second])) == ["loaded"]
    merge_away(client, table, kind)
    (outcome,) = until_settled(worker, [first])
    assert (outcome, number(client, table)) == (decided, 0)


def test_rows_that_others_took_away_behind_a_view_do_not_come_back(
    journal: Journal, worker: Worker, client: Client, database: str, decided: str
) -> None:
    """The table has the token, and the one that its view fills has lost it."""
    table, behind = create(client, f"{database}.t", more=window(100)), f"{database}.behind"
    cancelling(client, behind, "collapsing", 100)
    select = f"SELECT id, name FROM {table}"
    client.command(f"CREATE MATERIALIZED VIEW {behind}_mv TO {behind} AS {select}")
    first, second = journal.seal(table, batch(0, 100), batch(1000, 100))
    killed(journal, [first], "after_insert")
    assert outcomes(worker.load([second])) == ["loaded"]
    merge_away(client, behind, "collapsing")
    (outcome,) = until_settled(worker, [first])
    assert (number(client, table), number(client, behind)) == (200, 0)
    assert outcome == decided


@pytest.mark.parametrize("point", ["after_prepare", "after_insert"])
@pytest.mark.parametrize("kind", list(CANCELLING))
@pytest.mark.usefixtures("without_statements")
def test_what_no_merge_took_away_is_repeated(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    kind: str,
    point: str,
) -> None:
    """Negative control: a part log that shows no emptied part is enough for the token."""
    table = f"{database}.{kind}"
    cancelling(client, table, kind, 100)
    client.command(f"SYSTEM STOP MERGES {table}")
    first, second = journal.seal(table, batch(0, 100), batch(1000, 100))
    killed(journal, [first], point)
    assert outcomes(worker.load([second])) == ["loaded"]
    assert until_settled(worker, [first]) == ["loaded"]
    assert number(client, table) == 200


@pytest.mark.usefixtures("without_logs")
def test_a_sum_behind_a_view_is_repeated(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """Negative control: what a view's table sums is seldom zero in all of a part."""
    table, behind = create(client, f"{database}.t", more=window(100)), f"{database}.behind"
    cancelling(client, behind, "summing", 100)
    select = f"SELECT id, name FROM {table}"
    client.command(f"CREATE MATERIALIZED VIEW {behind}_mv TO {behind} AS {select}")
    (block,) = journal.seal(table, batch(0, 100))
    killed(journal, [block], "after_insert")
    assert until_settled(worker, [block]) == ["loaded"]
    assert (number(client, table), number(client, behind)) == (100, 100)


def test_deleted_rows_behind_a_view_stay_deleted(
    journal: Journal, worker: Worker, client: Client, database: str, decided: str
) -> None:
    """The table still has the block's token, and the one that its view fills has not."""
    table, behind = create(client, f"{database}.t", more=window(100)), f"{database}.behind"
    create(client, behind, more=window(100) + AT_ONCE)
    select = f"SELECT id, name FROM {table}"
    client.command(f"CREATE MATERIALIZED VIEW {behind}_mv TO {behind} AS {select}")
    (block,) = journal.seal(table, batch(0, 100))
    killed(journal, [block], "after_insert")
    client.command(f"ALTER TABLE {behind} DELETE WHERE id >= 0 SETTINGS mutations_sync = 2")
    await_cleaned(client, behind)
    (outcome,) = until_settled(worker, [block])
    assert (number(client, table), number(client, behind)) == (100, 0)
    assert outcome == decided
