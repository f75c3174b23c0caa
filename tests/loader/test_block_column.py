"""A block-id column that cannot hold block ids is the fault of its table, and of no message."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from loader.blocks.worker import Worker
from loader.core.plan import LOADED
from relay.clickhouse.errors import About
from relay.schema.block_column import misfit
from tests.loader.blocks import batch
from tests.loader.test_work import copies
from tests.loader.unsparked import Unsparked

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.clickhouse.ledger import Ledger
    from tests.loader.blocks import Journal

BLOCK = "app:shop.orders:0:1073741824:100"
WRONG = ("UInt64", "UUID", "FixedString(5)")
"""Types of a column that somebody had before the loader, or that ids have outgrown."""


def make(client: Client, table: str, column: str) -> str:
    client.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), _block {column}) "
        "ENGINE = MergeTree ORDER BY id"
    )
    return table


def mend(table: str) -> str:
    return f"ALTER TABLE {table} MODIFY COLUMN _block String"


@pytest.mark.parametrize("type_", [*WRONG, "FixedString(31)", "Array(String)", "Enum8('a' = 1)"])
def test_the_reason_names_the_column_and_what_mends_it(type_: str) -> None:
    said = misfit("shop.orders", "_block", type_, BLOCK)
    assert said.startswith(f"shop.orders: column _block is {type_}, ")
    assert mend("shop.orders") in said
    assert "loader.block_column" in said


@pytest.mark.parametrize(
    "type_", ["String", "LowCardinality(Nullable(String))", "FixedString(32)", None]
)
def test_what_holds_the_id_is_none(type_: str | None) -> None:
    """A FixedString too, as long as it does; None: the table has no such column."""
    assert len(BLOCK) == 32
    assert misfit("shop.orders", "_block", type_, BLOCK) == ""


@pytest.mark.parametrize("type_", WRONG)
def test_a_wrong_column_makes_no_dead_letter(
    journal: Journal, ledger: Ledger, client: Client, database: str, type_: str
) -> None:
    """Red before: a table like it refused each message, too, and all became dead letters."""
    journal.rejected = "dead"
    table = make(client, f"{database}.t", type_)
    journal.sources(table, 100)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    with contextlib.closing(Worker(journal.settings(), isolates=True)) as worker:
        (one,) = worker.load([block])
        assert (one.outcome, one.about) == ("retry", About.TABLE), one.reason
        assert f"column _block is {type_}, " in one.reason
        assert mend(table) in one.reason
        assert ledger.counts() == [], "not even claimed"
        client.command(mend(table))
        (one,) = worker.load([block])
    assert (one.outcome, one.rows, one.left_out) == (LOADED, 100, 0), one.reason
    assert copies(client, table) == (100, 100)
    assert journal.letters() == []


@pytest.mark.parametrize(
    "column",
    [
        "LowCardinality(String)",
        "Nullable(String)",
        "FixedString(200)",
        "UInt64 MATERIALIZED 7",
        "UInt64 ALIAS 7",
        "UInt64 EPHEMERAL 7",
    ],
)
def test_others_are_loaded_as_before(
    journal: Journal, ledger: Ledger, client: Client, database: str, column: str
) -> None:
    """What holds ids; and a computed column, into which nobody writes any."""
    table = make(client, f"{database}.t", column)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    with contextlib.closing(Worker(journal.settings(), isolates=True)) as worker:
        (one,) = worker.load([block])
    assert (one.outcome, one.rows) == (LOADED, 100), one.reason
    assert ledger.counts() == [(table, LOADED, 1, 100)]
    assert copies(client, table) == (100, 100)


def test_a_loader_takes_the_blocks_up_once_the_column_is_mended(
    journal: Journal, client: Client, database: str
) -> None:
    """Rows that were there before the loader hold nothing up."""
    journal.rejected = "dead"
    table = make(client, f"{database}.chain", "UInt64")
    client.command(f"INSERT INTO {table} VALUES (-1, 'of its owner', 7)")
    journal.sources(table, 200)
    for first in (0, 100):
        journal.seal(table, batch(first, 100), each=1)
    loader = Unsparked(journal)
    assert mend(table) in "\n".join(loader.run())
    assert copies(client, table) == (0, 0)
    client.command(mend(table))
    loader.run()
    assert copies(client, table) == (200, 200)
    assert journal.letters() == []
