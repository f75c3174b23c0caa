"""Columns of a user's that are named as ClickHouse's virtual ones are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.operate.view.clickhouse_state import LandedBlocks
from tests.loader.blocks import batch
from tests.loader.test_work import copies, killed

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from tests.loader.blocks import Journal

COLUMNS = [
    "_part UInt32 DEFAULT 3",
    "_part String DEFAULT 'one'",
    "_part_offset String DEFAULT 'one'",
    "_partition_id UInt8",
    "_table UInt8",
]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_table_with_such_a_column(
    journal: Journal, worker: Worker, client: Client, database: str, column: str
) -> None:
    """Its blocks are loaded once, also after a kill, and `blocks show` counts their rows."""
    table = f"{database}.t"
    client.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), _block String, {column}) "
        "ENGINE = MergeTree ORDER BY id"
    )
    block, other = journal.seal(table, batch(0, 10), batch(10, 10))
    killed(journal, [block], "after_insert")
    done = worker.load([block, other])
    assert [one.outcome for one in done] == ["loaded", "loaded"]
    assert copies(client, table) == (20, 20)
    landed = LandedBlocks(journal.settings()).landed(block.id, table)
    assert landed.rows == 10
    assert not landed.rows_problem or "_part" in landed.rows_problem
    if landed.parts is not None:
        assert sum(part.rows for part in landed.parts) == 10
