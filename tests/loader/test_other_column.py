"""`loader.block_column` is another than before: no block would be found by its id any more."""

from __future__ import annotations

import pytest
from clickhouse_connect.driver.client import Client

from relay.errors import ContractBroken
from tests.loader.blocks import Journal, batch
from tests.loader.test_work import copies, make
from tests.loader.unsparked import Unsparked


def test_a_start_under_another_column_is_refused(
    journal: Journal, client: Client, database: str
) -> None:
    """Also by a table that has both; and what the error says lets a renamed column go on."""
    table = make(client, f"{database}.stamped", stamped=True)
    loader = Unsparked(journal)
    journal.seal(table, batch(0, 100))
    loader.run()
    client.command(f"ALTER TABLE {table} ADD COLUMN renamed String")
    journal.seal(table, batch(100, 100))
    other = journal.settings(block_column="renamed")
    for _ in range(2):
        with pytest.raises(ContractBroken, match="filled _block until now") as refused:
            loader.run(settings=other)
    assert copies(client, table) == (100, 100)
    loader.run()
    assert copies(client, table) == (200, 200)

    client.command(f"ALTER TABLE {table} DROP COLUMN renamed")
    client.command(f"ALTER TABLE {table} RENAME COLUMN _block TO renamed")
    client.command(refused.value.next_step.rpartition(": ")[2])
    journal.seal(table, batch(200, 100))
    loader.run(settings=other)
    with pytest.raises(ContractBroken, match="filled renamed until now"):
        loader.run()
    assert copies(client, table) == (300, 300)
    filled = client.query(f"SELECT uniqExact(renamed) FROM {table}").result_rows
    assert filled == [(3,)]
