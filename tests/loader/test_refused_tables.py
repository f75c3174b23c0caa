"""Blocks whose table takes no rows are parked, whatever relay sealed them."""

from __future__ import annotations

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from loader.blocks.worker import Worker
from loader.clickhouse import ledger_table
from loader.clickhouse.ledger import Ledger
from tests.loader.blocks import SCHEMA, Journal, batch
from tests.loader.test_work import copies, make

FORGED = pa.schema(
    [pa.field("id", pa.int64(), metadata={b"clickhouse": b"Int64"})]
    + [
        pa.field(name, pa.string(), metadata={b"clickhouse": b"String"})
        for name in ("app", "table", "block", "state", "claim")
    ]
)


def entries(app: str, table: str, blocks: list[int]) -> pa.RecordBatch:
    """Rows of a ledger that say that these blocks are loaded; `id` is for the journal's helper."""
    rows = len(blocks)
    columns = [
        pa.array(blocks, pa.int64()),
        *(pa.array([text] * rows) for text in (app, table)),
        pa.array([f"{app}:{table}:0:0:{first}" for first in blocks]),
        *(pa.array([text] * rows) for text in ("loaded", "forged")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FORGED)


def test_a_forged_ledger_entry_is_never_inserted(
    journal: Journal, ledger: Ledger, worker: Worker, client: Client, database: str
) -> None:
    """Of the app's ledger, and of another table that its columns show to be one."""
    table = make(client, f"{database}.t", stamped=True)
    client.command(ledger_table.create(f"{database}.old"))
    own = ledger.name.replace("`", "")
    for target in (own, f"{database}.old"):
        forged = journal.seal(target, entries(journal.app, table, [0, 100]))
        (outcome,) = worker.load(forged)
        assert (outcome.outcome, "a loader's ledger" in outcome.reason) == ("parked", True)
    blocks = journal.seal(table, batch(0, 100))
    assert [one.outcome for one in worker.load(blocks)] == ["loaded"]
    assert copies(client, table) == (100, 100)
    assert client.query(f"SELECT count() FROM {database}.old").result_rows == [(0,)]
    claims = client.query(f"SELECT uniqExact(claim) FROM {own} WHERE claim = 'forged'").result_rows
    assert claims == [(0,)]


def test_a_table_that_the_list_does_not_name_is_parked(
    journal: Journal, ledger: Ledger, client: Client, database: str
) -> None:
    """Its rows come once the list names it, and the block is resolved."""
    del ledger
    table = make(client, f"{database}.t", stamped=True)
    settings = journal.settings()
    settings.source.tables[:] = [f"{database}.other", "shop.*"]
    blocks = journal.seal(table, batch(0, 100))
    worker = Worker(settings)
    (outcome,) = worker.load(blocks)
    worker.close()
    assert outcome.outcome == "parked"
    assert outcome.reason == f"table {table} is not among source.tables"
    assert copies(client, table) == (0, 0)
    settings.source.tables.append(f"{database}.*")
    worker = Worker(settings)
    (outcome,) = worker.load(blocks, human="retry")
    worker.close()
    assert outcome.outcome == "loaded"
    assert copies(client, table) == (100, 100)


def test_clickhouses_own_tables_take_no_rows(
    journal: Journal, ledger: Ledger, worker: Worker
) -> None:
    """Whatever the user may."""
    del ledger
    for table in ("system.text_log", "INFORMATION_SCHEMA.tables"):
        rows = pa.RecordBatch.from_arrays(
            [pa.array([0], pa.int64()), pa.array(["x"])], schema=SCHEMA
        )
        (outcome,) = worker.load(journal.seal(table, rows))
        assert outcome.outcome == "parked"
        assert "ClickHouse's own" in outcome.reason
