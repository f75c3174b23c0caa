"""What the journal said, without a broker."""

from __future__ import annotations

import pytest

from relay.operate.view.journal_state import JournalState, PartitionState
from relay.schema.dead_reason import DeadKind
from tests.view.records import block, commit, dead


def test_heads_tell_how_long_the_floor_stands() -> None:
    """The first record with the last floor, of those read."""
    seen = JournalState()
    seen.add(0, 10, commit(1, floor=0, position=5, at_ms=1_000))
    seen.add(0, 12, commit(2, floor=5, position=9, at_ms=2_000))
    seen.add(0, 14, commit(3, floor=5, position=20, at_ms=4_000, epoch=1, member="b"))
    assert seen.heads == {0: PartitionState(3, 1, 5, 20, "b", 14, 4_000, 2_000)}
    assert seen.first_ms == 1_000


def test_nothing_is_held_since_a_record_that_held_nothing() -> None:
    """A quiet partition's floor stands where it was for hours; what is held came later."""
    seen = JournalState()
    for n in (1, 2):
        seen.add(0, n, commit(n, floor=5, position=5, at_ms=n * 1_000))
    seen.add(0, 3, commit(3, floor=5, position=9, at_ms=600_000))
    assert seen.heads[0].held_since_ms == 600_000
    seen.add(0, 4, commit(4, floor=5, position=12, at_ms=601_000))
    assert seen.heads[0].held_since_ms == 600_000


def test_blocks_stay_open_until_somebody_says_they_are_settled() -> None:
    """By the ledger's position in their partition, or one by one."""
    seen = JournalState()
    blocks = [block(0), block(10), block(20), block(30, partition=1)]
    seen.add(0, 5, commit(1, blocks[0]))
    seen.add(0, 7, commit(2, blocks[1], blocks[2]))
    seen.add(1, 2, commit(1, blocks[3]))
    seen.settle({0: 6}, ())
    assert set(seen.open) == {one.id for one in blocks[1:]}
    seen.settle({0: 6}, [blocks[2].id])
    assert set(seen.open) == {blocks[1].id, blocks[3].id}
    seen.settle({0: 8, 1: 3}, ())
    assert seen.open == {}


def test_lately_is_the_last_minute() -> None:
    """Sums by second; what is older is forgotten, in whatever order partitions are read."""
    seen = JournalState()
    seen.add(0, 0, commit(1, block(0), at_ms=100_000))
    seen.add(0, 1, commit(2, block(10, "d.u"), at_ms=150_000, dead=[dead("d.t", 3, "bad")]))
    seen.add(1, 0, commit(1, block(20, "d.u"), at_ms=120_000))
    lately = seen.lately(161_000)
    assert (lately.messages, lately.rows, lately.blocks, lately.dead_letters) == (13, 20, 2, 3)
    assert lately.rows_by_table == {"d.u": 20}
    nothing = seen.lately(1_000_000)
    assert (nothing.messages, nothing.rows, nothing.rows_by_table) == (0, 0, {})


def test_dead_letters_are_counted_by_kind_of_reason() -> None:
    seen = JournalState()
    for n, day in enumerate((70_000, 80_000)):
        letters = [dead("d.t", 2, f"row 1, column day: {day} does not fit Date", "does-not-fit")]
        seen.add(0, n, commit(n + 1, dead=letters))
    ((group, messages),) = seen.dead.items()
    assert group == ("d.t", DeadKind.DOES_NOT_FIT)
    assert messages == 4
    assert seen.reasons[group].startswith("row 1, column day: 80000")
    assert not seen.exact[group], "the second of each seal may have another reason"


@pytest.mark.parametrize("kind", ["", "of-a-later-version"])
def test_letters_of_another_version_are_of_no_known_kind(kind: str) -> None:
    """Whatever their words: they are counted together, by table."""
    seen = JournalState()
    for n, reason in enumerate(("null value", "unknown table d.t")):
        seen.add(0, n, commit(n + 1, dead=[dead("d.t", 1, reason, kind)]))
    assert seen.dead == {("d.t", DeadKind.UNKNOWN): 2}
    assert seen.reasons["d.t", DeadKind.UNKNOWN] == "unknown table d.t", "of the last seal"


def test_a_reason_is_exact_where_no_seal_had_a_second_dead_letter() -> None:
    """One seal with more makes it the first reason for good; another table's is its own."""
    seen = JournalState()
    one, more, other = dead("d.t", 1, "bad"), dead("d.t", 3, "bad"), dead("d.u", 1, "bad")
    seen.add(0, 0, commit(1, dead=[one, other]))
    assert seen.exact == {("d.t", DeadKind.UNKNOWN): True, ("d.u", DeadKind.UNKNOWN): True}
    seen.add(0, 1, commit(2, dead=[more]))
    seen.add(0, 2, commit(3, dead=[one]))
    assert seen.dead == {("d.t", DeadKind.UNKNOWN): 5, ("d.u", DeadKind.UNKNOWN): 1}
    assert seen.exact == {("d.t", DeadKind.UNKNOWN): False, ("d.u", DeadKind.UNKNOWN): True}
