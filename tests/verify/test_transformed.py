"""Blocks whose rows went through a transform are judged by the ledger's number; pure."""

from __future__ import annotations

import pytest

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.contents import landed
from relay.operate.verify.judge.ledger_history import History
from relay.operate.verify.judge.operator_records import Superseded, replaced
from relay.records_pb2 import Block, Commit, Mark, Rewind

BLOCK = Block(id="a:d.t:0:0:0", table="d.t", rows=10)


@pytest.mark.parametrize(
    ("rows", "made", "kinds"),
    [
        (4, {BLOCK.id: 4}, []),
        (25, {BLOCK.id: 25}, []),
        (0, {BLOCK.id: 0}, []),
        (10, {}, []),
        (10, None, []),
        (10, {BLOCK.id: 4}, [AnomalyKind.OVERLAP]),
        (3, {BLOCK.id: 4}, [AnomalyKind.GAP]),
        (4, {}, [AnomalyKind.GAP]),
        (4, {"another": 4}, [AnomalyKind.GAP]),
    ],
)
def test_the_ledgers_number_counts(
    rows: int, made: dict[str, int] | None, kinds: list[AnomalyKind]
) -> None:
    """More or fewer rows than the block has are right where the transform made as many."""
    found = landed([BLOCK], {BLOCK.id: rows}, {BLOCK.id: History("loaded")}, 0, 60.0, made)
    assert [finding.kind for finding in found] == kinds


def test_kept_rows_of_a_rewind_too() -> None:
    """As many as the transform had made may stay, and none more."""
    rewind = Rewind(starts=[Mark(table="d.t", offset=0)], kept=["d.t"])
    commits = [Commit(blocks=[BLOCK]), Commit(rewind=rewind), Commit(rewound=True)]
    of = {BLOCK.id: BLOCK}, Superseded(commits)

    def judged(rows: int) -> list[AnomalyKind]:
        made = {BLOCK.id: 25}
        found = replaced(*of, {BLOCK.id: rows}, {BLOCK.id: History("discarded")}, made)
        return [finding.kind for finding in found]

    assert judged(25) == []
    assert judged(26) == [AnomalyKind.OVERLAP]
