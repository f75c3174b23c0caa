"""A person's word about a block, where the table says otherwise: the count has the last word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from loader.clickhouse.ledger import NewEntry
from loader.core import plan
from loader.operate.resolve import resolve
from relay.names import LEFT_OUT
from relay.operate.view import clickhouse_state
from relay.operate.view.clickhouse_state import LandedBlocks
from relay.operate.view.ledger_looks import LedgerLooks
from tests.loader import test_left_out
from tests.loader.blocks import batch
from tests.loader.test_work import copies, make

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from loader.clickhouse.ledger import Ledger
    from loader.core.plan import Human
    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal


def parked(journal: Journal, ledger: Ledger, table: str) -> Block:
    """A block of ten rows that waits for a person, and that nobody has claimed."""
    (block,) = journal.seal(table, batch(0, 10))
    ledger.write([NewEntry(block, plan.Entry(plan.PARKED, 1, "x", reason="no table"))])
    return block


def by_hand(client: Client, block: Block, rows: int) -> None:
    """So many of its rows are inserted by a person."""
    client.command(
        f"INSERT INTO {block.table} SELECT number, 'x', '{block.id}' FROM numbers({rows})"
    )


@pytest.mark.parametrize("human", ["absent", "retry"])
def test_rows_are_there_and_the_ledger_is_not(
    journal: Journal, worker: Worker, ledger: Ledger, client: Client, database: str, human: Human
) -> None:
    """The ledger was emptied: the block is counted, and marked as loaded."""
    (block,) = journal.seal(make(client, f"{database}.t", stamped=True), batch(0, 10))
    worker.load([block])
    client.command(f"TRUNCATE TABLE {ledger.name}")
    ((_, state, _),) = resolve(journal.settings(), ledger, [block.id], human)
    assert state == "loaded"
    assert copies(client, block.table) == (10, 10)


def test_rows_are_there_and_nobody_claimed_the_block(
    journal: Journal, ledger: Ledger, client: Client, database: str
) -> None:
    """A person inserted a parked block by hand, and then says that it is to be inserted."""
    block = parked(journal, ledger, make(client, f"{database}.t", stamped=True))
    by_hand(client, block, 10)
    ((_, state, _),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert state == "loaded"
    assert copies(client, block.table) == (10, 10)


def test_some_rows_are_there(
    journal: Journal, ledger: Ledger, client: Client, database: str
) -> None:
    """Neither inserted nor given up: a person is told how many there are."""
    block = parked(journal, ledger, make(client, f"{database}.t", stamped=True))
    by_hand(client, block, 4)
    ((_, state, reason),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert (state, "4 of its 10 rows are in the table" in reason) == ("parked", True)
    assert copies(client, block.table) == (4, 4)


@pytest.mark.parametrize("stamped", [True, False])
def test_no_rows_are_there(
    journal: Journal, ledger: Ledger, client: Client, database: str, *, stamped: bool
) -> None:
    """Then, or where nothing can be counted, the person's word is taken."""
    block = parked(journal, ledger, make(client, f"{database}.t", stamped=stamped))
    ((_, state, _),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert state == "loaded"
    assert copies(client, block.table) == (10, 10)


@pytest.mark.parametrize("word", ["--retry", "--insert"])
def test_messages_that_the_table_refuses_are_named(
    journal: Journal, ledger: Ledger, client: Client, database: str, word: str
) -> None:
    """The block was parked as a whole, as no scratch table could be made; now one can."""
    table = test_left_out.make(client, f"{database}.t", test_left_out.CHECK)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    ledger.write([NewEntry(block, plan.Entry(plan.PARKED, 1, "x", reason="no right"))])
    status, said = journal.run("parked resolve", block.id, word, "--json")
    told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    whole, rest = told
    assert (whole["block"], whole["outcome"], whole["done"]) == (block.id, plan.LOADED, True)
    without = f"without 2 messages that the table refuses ({block.id}{LEFT_OUT})"
    assert whole["reason"].endswith(without)
    assert rest["block"] == f"{block.id}{LEFT_OUT}"
    assert (rest["outcome"], rest["done"]) == (plan.PARKED, False)
    assert rest["reason"].startswith("2 messages that the table refuses: offset 17: Code: 469")
    assert (status, "1 block is not loaded" in said) == (5, True)
    assert copies(client, table) == (98, 98)


def test_messages_that_become_dead_letters_need_no_person(
    journal: Journal, ledger: Ledger, client: Client, database: str
) -> None:
    """A loader does what is left: the command says so, and has done what it was asked for."""
    table = test_left_out.make(client, f"{database}.t", test_left_out.CHECK)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    ledger.write([NewEntry(block, plan.Entry(plan.PARKED, 1, "x", reason="no right"))])
    journal.rejected = "dead"
    status, said = journal.run("parked resolve", block.id, "--retry")
    assert status == 0, said
    assert f"without 2 messages that the table refuses ({block.id}{LEFT_OUT})" in said
    assert [one.aside for one in ledger.waiting()] == [True]


@pytest.mark.parametrize("state", [plan.PARKED, plan.ASIDE])
def test_a_block_that_is_tried_again_is_what_it_was(
    journal: Journal, ledger: Ledger, client: Client, database: str, state: str
) -> None:
    """A resolve that was killed leaves its claim: the block waits for a person all the same."""
    (block,) = journal.seal(make(client, f"{database}.t", stamped=True), batch(0, 10))
    ledger.write([NewEntry(block, plan.Entry(state, 1, "x", reason="why"))])
    ledger.write([NewEntry(block, plan.Entry(plan.PREPARED, 2, "y", rows=10))])
    assert ledger.counts() == [(block.table, state, 1, 10)]
    facts = LedgerLooks(lambda: LandedBlocks(journal.settings())).facts({block.id: block.table})
    assert facts.states == {block.id: state}
    assert facts.counts == ((block.table, state, 1, 10),)
    assert [one.id for one in facts.parked] == [block.id]


def test_of_many_parked_blocks_some_are_shown_and_all_are_counted(
    journal: Journal,
    ledger: Ledger,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand of them came over the wire for each screen."""
    monkeypatch.setattr(clickhouse_state, "PARKED_SHOWN", 2)
    tables = [make(client, f"{database}.{name}", stamped=True) for name in ("t", "u")]
    blocks = [
        block
        for table, number in ((tables[0], 4), (tables[1], 1))
        for start in range(0, 10 * number, 10)
        for block in journal.seal(table, batch(start, start + 10))
    ]
    for block in blocks:
        ledger.write([NewEntry(block, plan.Entry(plan.PARKED, 1, "x", reason="why", rows=10))])
    (loaded,) = journal.seal(tables[1], batch(50, 60))
    ledger.write([NewEntry(loaded, plan.Entry(plan.LOADED, 1, "x", rows=10))])
    every = {block.id: block.table for block in [*blocks, loaded]}
    facts = LedgerLooks(lambda: LandedBlocks(journal.settings())).facts(every)
    assert [one.id for one in facts.parked] == [blocks[0].id, blocks[1].id, blocks[4].id]
    assert facts.counts == (
        (tables[0], "parked", 4, 40),
        (tables[1], "loaded", 1, 10),
        (tables[1], "parked", 1, 10),
    )
    assert facts.states == {**{block.id: "parked" for block in blocks}, loaded.id: "loaded"}
    assert facts.settled_ms > 0
