"""Rows that carry the id of a block which is not in the journal as it was read; pure."""

from __future__ import annotations

import pytest

from relay.names import FIRST_EPOCHS
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.ledger_history import History
from relay.operate.verify.judge.tally import UnjudgedTally
from relay.operate.verify.judge.unlisted_blocks import known, unlisted
from relay.records_pb2 import Block, Commit, Mark

BEGAN = 1_000_000


@pytest.mark.parametrize(
    ("name", "history", "kinds", "said"),
    [
        ("a:d.t:0:0:700", History("loaded", BEGAN + 1), [], ""),
        ("a:d.t:0:0:700", History("loaded", BEGAN - 5_001), [AnomalyKind.FOREIGN], ""),
        ("a:d.t:0:0:700", History(""), [AnomalyKind.FOREIGN], ""),
        ("a:d.t:1:3:99", History("loaded", 1), [], "records were deleted"),
        ("a:d.t:1:2:700", History("loaded", 1), [], "records were deleted"),
        ("a:d.t:1:5:99", History(""), [], "another journal"),
        ("a:d.t:0:1073741825:0", History(""), [], "another journal"),
        ("a:d.t:1:4:99", History(""), [AnomalyKind.FOREIGN], ""),
        ("a:d.t:5:1:99", History(""), [AnomalyKind.FOREIGN], ""),
        ("a:d.t:1:3:100", History("loaded", 1), [AnomalyKind.FOREIGN], ""),
        ("a:d.u:1:3:79", History("loaded", 1), [], "records were deleted"),
        ("a:d.u:1:3:95", History("loaded", 1), [AnomalyKind.FOREIGN], ""),
        ("a:d.v:1:3:59", History("loaded", 1), [], "records were deleted"),
        ("a:d.v:1:3:60", History("loaded", 1), [AnomalyKind.FOREIGN], ""),
        ("a:d.t:1:3", History("loaded", 1), [AnomalyKind.FOREIGN], ""),
    ],
)
def test_rows_of_no_block(name: str, history: History, kinds: list[AnomalyKind], said: str) -> None:
    """Sealed since the journal was read, before what is retained of it, or of nowhere."""
    seal = Block(table="d.u", first_source_offset=80, next_source_offset=90)
    marks = [Mark(table="d.t", offset=100), Mark(table="d.u", offset=90)]
    first = Commit(n=5, epoch=3, previous_floor=50, floor=60, marks=marks, blocks=[seal])
    journal = known(BEGAN, {0: [Commit(n=1)], 1: [first, Commit(n=6, epoch=4)], 2: []})
    tally = UnjudgedTally("d.t")
    found = list(unlisted({name: 7}, {name: history}, journal, tally))
    assert [one.kind for one in found] == kinds
    assert said in "".join(tally.lines())
    assert bool(list(tally.lines())) == bool(said)


def test_an_older_block_of_a_table_whose_mark_has_gone() -> None:
    """The floor passed the mark with the oldest record that is left; it was called `foreign`."""
    seal = Block(table="d.quiet", first_source_offset=100, next_source_offset=101)
    oldest = Commit(n=50, epoch=3, previous_floor=100, floor=300, blocks=[seal])
    tally = UnjudgedTally("d.t")
    rows = {"a:d.t:1:3:101": 7, "a:d.t:1:3:300": 7}
    (found,) = unlisted(rows, {}, known(BEGAN, {1: [oldest]}), tally)
    assert found.kind is AnomalyKind.FOREIGN
    assert "a:d.t:1:3:300" in found.text
    assert "a:d.t:1:3:101" in "".join(tally.lines())


@pytest.mark.parametrize(
    ("epoch", "foreign"), [(1_900_000_000, False), (0, False), (FIRST_EPOCHS, True)]
)
def test_rows_of_an_app_that_was_removed_in_a_partition_that_is_there_no_more(
    epoch: int, *, foreign: bool
) -> None:
    """Its tables stay. All partitions of a journal begin with one epoch, which no other has."""
    journal = known(BEGAN, {0: [Commit(n=1, epoch=FIRST_EPOCHS)], 1: []})
    tally = UnjudgedTally("d.t")
    found = list(unlisted({f"a:d.t:3:{epoch}:0": 7}, {}, journal, tally))
    assert [one.kind for one in found] == ([AnomalyKind.FOREIGN] if foreign else [])
    assert ("belongs to another journal" in "".join(tally.lines())) is not foreign


def test_rows_of_a_journal_that_says_nothing_yet_are_foreign() -> None:
    tally = UnjudgedTally("d.t")
    (found,) = unlisted({"a:d.t:3:1900000000:0": 7}, {}, known(BEGAN, {0: []}), tally)
    assert found.kind is AnomalyKind.FOREIGN
