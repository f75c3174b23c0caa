"""What a rewind does in ClickHouse where the records of some of its blocks are deleted, and where
another run has ended it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from loader.core.entries import NewEntry
from loader.core.plan import PARKED, Entry
from loader.journal.rewind_check import RewindCheck
from loader.operate.supersede import Rewound, Settled, carry_out
from relay import names
from relay.errors import Refused
from relay.records_pb2 import Block, Commit, Mark, Rewind
from tests.loader.blocks import stands

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
        journal.settings(),
        ledger,
        [],
        rewound(app, *marks, kept=(tables[1],), first=first),
        stands,
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


def test_ended_otherwise_it_settles_and_removes_nothing(
    journal: Journal, ledger: Ledger, client: Client, database: str
) -> None:
    """Before that it is carried out: as the journal's last record, and behind one that ends it."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (_block String) ENGINE = MergeTree ORDER BY ()")
    marks = [Mark(table=table, offset=100)]

    def run(n: int, offset: int) -> Settled:
        ids = [f"{journal.app}:{table}:0:{FIRST + n}:{first}" for first in (100, 2000, 3000)]
        some = [Block(id=one, table=table, rows=1) for one in ids]
        client.command(f"INSERT INTO {table} VALUES ('{ids[0]}'), ('{ids[1]}')")
        rewound = Rewound(began(n), offset)
        with contextlib.closing(RewindCheck(journal.settings(), began(n), offset)) as asked:
            return carry_out(journal.settings(), ledger, some, rewound, asked.check)

    def began(n: int) -> Commit:
        rewind = Rewind(starts=marks)
        return Commit(app=journal.app, epoch=FIRST + 99, n=n, floor=100, rewind=rewind)

    written(journal, began(1))  # with its transaction's marker it takes two offsets
    assert run(1, 0) == Settled(3, 2)
    written(journal, Commit(app=journal.app, n=2, floor=100, rewound=True))
    assert run(1, 0) == Settled(3, 2)
    written(journal, began(3))
    written(journal, Commit(app=journal.app, n=4, floor=2000, rewound=True))
    with pytest.raises(Refused, match=f"{table} before source offset 2000 count again"):
        run(3, 4)
    assert client.query(f"SELECT count() FROM {table}").result_rows == [(2,)]
    states = client.query(f"SELECT count() FROM {ledger.name} WHERE block LIKE '%:{FIRST + 3}:%'")
    assert states.result_rows == [(0,)]


def written(journal: Journal, record: Commit) -> None:
    """By a relay, or a person."""
    with journal.transaction():
        value = record.SerializeToString()
        journal.producer.produce(names.journal_topic(journal.app), value, b"0", partition=0)
        journal.producer.flush()
