"""Rows that carry the id of a block which is not in the journal as it was read; pure."""

from __future__ import annotations

import pytest

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.ledger_history import History
from relay.operate.verify.judge.tally import UnjudgedTally
from relay.operate.verify.judge.unlisted_blocks import known, unlisted
from relay.records_pb2 import Commit, Mark

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
        ("a:d.t:1:3", History("loaded", 1), [AnomalyKind.FOREIGN], ""),
    ],
)
def test_rows_of_no_block(name: str, history: History, kinds: list[AnomalyKind], said: str) -> None:
    """Sealed since the journal was read, before what is retained of it, or of nowhere."""
    first = Commit(n=5, epoch=3, previous_floor=50, floor=60, marks=[Mark(table="d", offset=100)])
    journal = known(BEGAN, {0: [Commit(n=1)], 1: [first, Commit(n=6, epoch=4)], 2: []})
    tally = UnjudgedTally("d.t")
    found = list(unlisted({name: 7}, {name: history}, journal, tally))
    assert [one.kind for one in found] == kinds
    assert said in "".join(tally.lines())
    assert bool(list(tally.lines())) == bool(said)
