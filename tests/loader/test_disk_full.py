"""ClickHouse without room on its disk: nothing half done, and each row once when there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.loader.blocks import batch, parked_blocks
from tests.loader.test_work import copies, make, outcomes

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from loader.clickhouse.ledger import Ledger
    from tests.loader.blocks import Journal

SETTING = "min_free_disk_bytes_to_perform_insert"
"""Of a table: with less room than this on the disk, the server refuses INSERTs (code 243)."""
MORE_THAN_ANY_DISK = 1 << 62


@pytest.mark.parametrize("full", ["the table's disk", "the ledger's disk"])
def test_a_full_disk_is_waited_out(
    journal: Journal, worker: Worker, ledger: Ledger, client: Client, database: str, full: str
) -> None:
    """No block is parked or called loaded; once there is room, each row is there once."""
    table = make(client, f"{database}.t", stamped=True)
    blocks = journal.seal(table, *(batch(i * 1000, 1000) for i in range(3)))
    lacking = table if full == "the table's disk" else ledger.name
    client.command(f"ALTER TABLE {lacking} MODIFY SETTING {SETTING} = {MORE_THAN_ANY_DISK}")

    done = worker.load(blocks)
    assert outcomes(done) == ["retry"] * 3
    assert lacking == ledger.name or all("243" in one.reason for one in done), done
    assert copies(client, table) == (0, 0)
    assert list(parked_blocks(ledger)) == []
    states = {entry.state for of_one in ledger.entries(blocks).values() for entry in of_one}
    assert states == ({"prepared"} if lacking == table else set())

    client.command(f"ALTER TABLE {lacking} RESET SETTING {SETTING}")
    assert outcomes(worker.load(blocks)) == ["loaded"] * 3
    assert copies(client, table) == (3000, 3000)
