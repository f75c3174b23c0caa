"""Very many blocks stand aside: what a start asks, what a loader keeps, and who is next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse.ledger import Ledger
from loader.clickhouse.tables import Tables
from loader.core.entries import NewEntry
from loader.core.plan import ASIDE, LOADED, Entry
from loader.core.set_aside_plan import KEPT
from loader.core.waiting import Place, turn
from loader.spark.set_aside import SetAside
from relay.errors import Unavailable
from relay.names import LEFT_OUT
from relay.records_pb2 import Block
from tests.loader.blocks import Journal, batch
from tests.loader.test_work import copies, make
from tests.loader.unsparked import Run, Unsparked


def put_aside(ledger: Ledger, table: str, count: int, mark: str = "") -> list[Block]:
    """Blocks that were never tried, as those of a table that took nothing."""
    blocks = [
        Block(id=f"{ledger.app}:{table}:0:0:{n}{mark}", table=table, rows=1, sealed_at_ms=n + 1)
        for n in range(count)
    ]
    rows = [NewEntry(one, Entry(ASIDE, 1, "c", reason="no", rows=1)) for one in blocks]
    ledger.write(rows)
    return blocks


def test_a_start_asks_no_more_where_many_stand_aside(
    journal: Journal,
    ledger: Ledger,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all tables no block is loaded before; of the table that takes nothing it asks nothing."""
    table, shut = (make(client, f"{database}.{name}", stamped=True) for name in ("well", "shut"))
    client.command(f"INSERT INTO {shut} (id) VALUES (1)")
    journal.seal(table, batch(0, 10))
    Unsparked(journal).run()
    asked: list[str] = []
    query = type(ledger.client).query

    def counted(self: Any, sql: str, *arguments: Any, **named: Any) -> Any:
        asked.append(sql)
        return query(self, sql, *arguments, **named)

    monkeypatch.setattr(type(ledger.client), "query", counted)
    numbers = []
    for count in (3, 3_000):
        put_aside(ledger, shut, count)
        asked.clear()
        Run(journal.settings()).close()
        numbers.append(len(asked))
        assert not [sql for sql in asked if "shut" in sql]
    assert numbers[0] == numbers[1]


def test_the_ledger_gives_a_few_at_a_time_and_all_in_turn(ledger: Ledger, database: str) -> None:
    """In the order in which they were set aside; letters by themselves; counted as a whole."""
    table = f"{database}.shut"
    blocks, letters = put_aside(ledger, table, 20), put_aside(ledger, table, 5, LEFT_OUT)
    ledger.write([NewEntry(blocks[7], Entry(LOADED, 2, "c", rows=1))])
    ids = {one.id for one in blocks if one != blocks[7]}
    of, of_letters = turn(blocks[0]), turn(letters[0])
    seen: list[str] = []
    after: dict[str, Place] = {}
    while len(seen) < 24:
        found = ledger.next_aside(after, 6)
        assert found.counts == {of: 19, of_letters: 5}
        some = [one for one in found.next if turn(one.block) == of]
        assert len(found.next) == 5 + len(some) == 11
        assert all(one.aside and not one.claims for one in found.next)
        seen += [one.block.id for one in some]
        after = {of: (some[-1].since_ms, some[-1].block.id)}
    assert set(seen[:19]) == ids
    assert seen[19:] == seen[:5], "and round again"


def test_a_loader_keeps_a_few_in_memory(journal: Journal, ledger: Ledger, database: str) -> None:
    """And counts all of them."""
    said: list[str] = []
    put_aside(ledger, f"{database}.missing", 3 * KEPT)
    asides = SetAside(journal.settings(), ledger, lambda text, **_: said.append(text))
    asides._list(1.0)
    (of,) = asides._asides._tables.values()
    assert (len(of.waiting), len(asides._asides)) == (KEPT, 3 * KEPT)


@pytest.mark.parametrize("bad", ["a", "b"])
def test_a_table_that_cannot_be_asked_keeps_no_other_from_its_turn(
    journal: Journal,
    ledger: Ledger,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    bad: str,
) -> None:
    """Whichever is first, after a restart. Red before: that one was chosen for ever."""
    tables = {name: make(client, f"{database}.{name}", stamped=True) for name in "ab"}
    sealed = {name: journal.seal(table, batch(0, 10)) for name, table in tables.items()}
    for name, table in tables.items():
        client.command(f"INSERT INTO {table} (id) VALUES (-1)")
        aside = Entry(ASIDE, 1, "c", reason="not tried", rows=10)
        ledger.write([NewEntry(block, aside) for block in sealed[name]])
    counted = Tables.counted

    def fails(of: Tables, table: str, blocks: Collection[str], *more: str) -> dict[str, int]:
        if table == tables[bad]:
            raise Unavailable("asking about the tables: Code: 158. Limit for rows exceeded")
        return counted(of, table, blocks, *more)

    monkeypatch.setattr(Tables, "counted", fails)
    said: list[str] = []

    def say(text: str, **_: Any) -> None:
        said.append(text)

    SetAside(journal.settings(), ledger, say).finish()
    there = {name: copies(client, table)[0] for name, table in tables.items()}
    assert there == {name: 0 if name == bad else 10 for name in tables}
    assert said[-1] == "1 block stands aside; `loader parked ls` says why"
    (waits,) = ledger.waiting()
    assert "Code: 158" in waits.reason
    monkeypatch.undo()
    SetAside(journal.settings(), ledger, say).finish()
    assert copies(client, tables[bad]) == (10, 10)
