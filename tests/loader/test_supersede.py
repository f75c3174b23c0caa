"""What a rewind does in ClickHouse where the records of some of its blocks are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loader.core.entries import NewEntry
from loader.core.plan import PARKED, Entry
from loader.operate.supersede import Rewound, carry_out
from relay import names
from relay.records_pb2 import Block, Commit, Mark, Rewind

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.clickhouse.ledger import Ledger
    from tests.loader.blocks import Journal

FIRST = names.FIRST_EPOCHS + 7


def rewound(
    app: str, *starts: Mark, kept: tuple[str, ...] = (), first: int | None = FIRST
) -> Rewound:
    rewind = Rewind(starts=starts, kept=kept, why="wrong")
    record = Commit(app=app, partition=1, epoch=FIRST + 2, n=9, rewind=rewind)
    return Rewound(record, 40, {} if first is None else {one.table: first for one in starts})


IDS = {
    "1:{first}:100": True,
    "1:{second}:100": True,
    "1:{first}:2000": True,
    "1:{first}:100:left-out": True,
    "1:{first}:99": False,
    "1:{before}:100": False,
    "1:{after}:100": False,
    "0:{first}:100": False,
    "11:{first}:100": False,
}
"""Of blocks that a rewind from offset 100 on of partition 1 replaces, and of others."""


def ids(app: str, table: str) -> dict[str, bool]:
    epochs = {"first": FIRST, "second": FIRST + 1, "before": FIRST - 1, "after": FIRST + 2}
    return {f"{app}:{table}:{one.format(**epochs)}": gone for one, gone in IDS.items()}


def test_blocks_that_it_replaced_are_told_by_their_ids() -> None:
    one = rewound("a", Mark(table="d.t", offset=100), Mark(offset=5))
    assert {block: one.replaces(block) for block in ids("a", "d.t")} == ids("a", "d.t")
    assert not any(one.replaces(block) for block in ids("a", "d.other"))
    whole = rewound("a", Mark(table="d.t", offset=100), first=None)
    assert not any(whole.replaces(block) for block in ids("a", "d.t"))
    others = Rewound(one.record, 40, {"d.u": FIRST})
    assert not any(others.replaces(block) for block in ids("a", "d.t")), "of each table its own"
    assert others.rows("d.t", "_block") == ""
    assert (whole.rows("d.t", "_block"), one.rows("d.u", "_block"), one.rows("", "_block")) == (
        "",
        "",
        "",
    )


@pytest.mark.parametrize("first", [FIRST, None])
def test_their_rows_go_and_no_others(
    journal: Journal, ledger: Ledger, client: Client, database: str, first: int | None
) -> None:
    """A block that waits for a person is given up; of a table whose rows are kept all stay."""
    app, tables = journal.app, [f"{database}.t", f"{database}.kept"]
    for table in tables:
        client.command(
            f"CREATE TABLE {table} (id UInt64, _block LowCardinality(String)) ENGINE = MergeTree "
            "ORDER BY id"
        )
        rows = [*ids(app, table), *ids("other", table), ""]
        values = ", ".join(f"({n}, '{block}')" for n, block in enumerate(rows))
        client.command(f"INSERT INTO {table} VALUES {values}")
    marks = [Mark(table=table, offset=100) for table in tables]
    waits = Block(id=f"{app}:{tables[0]}:1:{FIRST}:500", table=tables[0], partition=1, rows=1)
    ledger.write([NewEntry(waits, Entry(PARKED, 1, "c", reason="why"))])
    done = carry_out(
        journal.settings(), ledger, [], rewound(app, *marks, kept=(tables[1],), first=first)
    )
    gone = [block for block, gone in ids(app, tables[0]).items() if gone and first is not None]
    assert (done.blocks, done.rows) == ((1, len(gone)) if first is not None else (0, 0))
    left = [
        {str(row[0]) for row in client.query(f"SELECT _block FROM {table}").result_rows}
        for table in tables
    ]
    expected = [{*ids(app, table), *ids("other", table), ""} for table in tables]
    assert left == [expected[0] - set(gone), expected[1]]
    assert [one.block.id for one in ledger.waiting()] == ([] if first is not None else [waits.id])
    assert len(ledger.noted().superseded) == 1
