"""Tokens that a table forgets without a trace in the part log: what the server recorded decides.

tests/replicas/test_dropped_partitions.py has those that replicas forget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.pipeline import wait_until
from tests.loader.blocks import batch
from tests.loader.test_evidence import CLEANS_SOON, create, number, until_settled, window
from tests.loader.test_work import killed

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from tests.loader.blocks import Journal

AT_ONCE = (
    f", old_parts_lifetime = 0, {CLEANS_SOON}, merge_tree_clear_old_parts_interval_seconds = 1"
)
"""What takes some 30 s by default: an emptied part goes, and its token with it."""


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
    client.command(f"DETACH TABLE {table}")
    client.command(f"ATTACH TABLE {table}")  # at once, too: a table that is idle cleans up late
    database, _, name = table.partition(".")
    parts = f"system.parts WHERE active AND database = '{database}' AND table = '{name}'"
    wait_until(lambda: number(client, parts) == 0, "that the emptied part goes")
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, table) == 0
