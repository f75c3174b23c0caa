"""Claims of an earlier version of the loader on replicated tables, which it counted otherwise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from loader.blocks.worker import Worker
from loader.core.entries import NewEntry
from loader.core.plan import PREPARED, Entry
from loader.journal.startup import ledger_of
from tests.loader.blocks import batch
from tests.loader.test_evidence import until_settled
from tests.replicas.journal import COLUMNS

if TYPE_CHECKING:
    from tests.replicas.journal import Replicated
    from tests.replicas.rig import Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, a minute or more

ROWS = 100


@pytest.mark.parametrize("ended", ["loaded", "parked"], ids=["recorded", "not recorded"])
def test_a_sum_of_block_numbers_is_no_number_of_the_log(
    rig: Rig, journal: Replicated, app: str, ended: str
) -> None:
    """Killed behind its INSERT into a table of one part: the sum of before, 1, is the log's newest
    entry of after. The table seemed untouched, and a view behind it, whose table remembers no
    token, took the rows a second time."""
    table, sums = f"d{app}.t", f"d{app}.sums"
    rig.make(table, COLUMNS, "ORDER BY id")
    first = rig.replicas[0]
    journal.quorum, journal.url = None, first.url
    rig.everywhere(f"SYSTEM STOP MERGES {table}")
    first.command(f"INSERT INTO {table} VALUES (-1, 'other')")
    first.command(f"CREATE TABLE {sums} (id Int64) ENGINE = MergeTree ORDER BY id")
    first.command(f"CREATE MATERIALIZED VIEW {sums}_mv TO {sums} AS SELECT id FROM {table}")
    (block,) = journal.seal(table, batch(0, ROWS))
    ledger = ledger_of(journal.settings())
    ledger.write([NewEntry(block, Entry(PREPARED, 1, "earlier", seen=1, rows=ROWS))])
    first.command(
        f"INSERT INTO {table} SELECT number, 'x' FROM numbers({ROWS})",
        insert_deduplication_token=block.id,
        log_comment=block.id if ended == "loaded" else "",
    )
    log = f"SELECT log_max_index FROM system.replicas WHERE zookeeper_path = '/{table}'"
    assert first.rows(log) == [(1,)]
    with contextlib.closing(Worker(journal.settings())) as worker:
        assert until_settled(worker, [block]) == [ended]
    assert first.rows(f"SELECT count() FROM {table} WHERE id >= 0") == [(ROWS,)]
    assert first.rows(f"SELECT count() FROM {sums}") == [(ROWS,)]
