"""What a restored ledger is told of dead letters: each rule."""

from __future__ import annotations

import dataclasses

import pytest

from loader.core import left_out, plan
from loader.core.past_letters import PastLetter, by_block, find_lacking
from relay.names import LEFT_OUT
from relay.records_pb2 import Block, LeftOut

BLOCK = Block(id="shop:shop.orders:0:5:0", table="shop.orders", rows=100, messages=100)
REST = f"{BLOCK.id}{LEFT_OUT}"
LETTERS = by_block([PastLetter(REST, 8, 42, "b"), PastLetter(REST, 7, 17, "a")])
PREPARED = plan.Entry(plan.PREPARED, 3, "x")


def told(
    entries: dict[str, tuple[plan.Entry, ...]], block: Block = BLOCK, *, lost: bool = False
) -> dict[str, plan.Entry]:
    found = find_lacking([block], LETTERS, entries, "shop.dead", lost=lost)
    assert {one.block.table for one in found} <= {"shop.orders"}
    return {one.block.id: one.entry for one in found}


@pytest.mark.parametrize("lost", [False, True])
def test_a_block_that_the_ledger_does_not_know(*, lost: bool) -> None:
    """It leaves out the same messages again, and these are dead letters."""
    found = told({}, lost=lost)
    assert found.keys() == {BLOCK.id, REST}
    doubt, dead = found[BLOCK.id], found[REST]
    assert doubt == dataclasses.replace(plan.doubt(100, lost=lost), record=doubt.record)
    assert [one.offset for one in left_out.known([doubt])] == [17, 42]
    assert left_out.are_letters([doubt])
    assert (dead.state, dead.attempt, dead.rows) == (plan.DEAD, 1, 2)
    assert dead.reason.startswith("dead letters of shop.dead, 0:7 to 0:8: 2 messages")
    assert left_out.read(dead.record).to_dead_letters
    assert told({BLOCK.id: (doubt,), REST: (dead,)}) == {}, "once"


def test_a_block_of_several_rows_a_message_is_read_for_how_many() -> None:
    several = Block(id=BLOCK.id, table=BLOCK.table, rows=200, messages=100)
    assert told({}, several)[REST].rows == 0


def test_earlier_claims_leave_out_what_the_letters_are() -> None:
    other = left_out.record(left_out.made_of(left_out.without(BLOCK, [LeftOut(offset=17)])))
    claim = dataclasses.replace(PREPARED, record=other)
    entries = (claim, told({BLOCK.id: (claim,)})[BLOCK.id])
    assert [one.offset for one in left_out.known(entries)] == [17, 42]


def test_a_block_that_waits_is_told_the_same() -> None:
    aside = plan.Entry(plan.ASIDE, 4, "x")
    assert told({BLOCK.id: (PREPARED, aside)}).keys() == {BLOCK.id, REST}


def test_left_out_messages_that_wait() -> None:
    rest = left_out.made_of(left_out.without(BLOCK, [LeftOut(offset=17), LeftOut(offset=42)]))
    found = told({REST: (plan.Entry(plan.PARKED, 4, "x"),)}, rest)
    assert [(name, one.state, one.attempt) for name, one in found.items()] == [(REST, plan.DEAD, 5)]


@pytest.mark.parametrize("state", plan.FINAL)
def test_what_is_settled_for_good_stays(state: str) -> None:
    final = (plan.Entry(state, 1, "x"),)
    assert told({BLOCK.id: final}) == {}
    assert told({REST: final}).keys() == {BLOCK.id}, "its block leaves them out all the same"


def test_letters_of_others_say_nothing() -> None:
    other = Block(id="shop:shop.orders:0:5:100", table="shop.orders", rows=1, messages=1)
    assert told({}, other) == {}
