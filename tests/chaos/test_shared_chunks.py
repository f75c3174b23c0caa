"""The judges and small blocks that share a chunk: the rows of a source partition lie in several
partitions of a block topic, each once and where the journal says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.chaos import judges, rows
from tests.chaos.facts import Facts, Seen
from tests.chaos.promised import block, held, lying, told_one_by_one
from tests.chaos.rows import ABORT, COMMIT, Range
from tests.chaos.truth import ABORTED, COMMITTED, Truth

if TYPE_CHECKING:
    from collections.abc import Callable


def shared() -> Facts:
    """Rows of three source partitions, whose blocks share chunks of the partitions 0 and 1.

    Those of partition 1 lie in both, and one block of it has a chunk of its own. Two are aborted.
    """
    sent = [Range(0, 0, 0, 2), Range(0, 1, 0, 3), Range(0, 1, 5, 2), Range(0, 2, 0, 1),
            Range(0, 0, 2, 2), Range(0, 1, 7, 1), Range(0, 1, 8, 1)]  # fmt: skip
    told = [(one, COMMIT, COMMITTED) for one in sent]
    lies = {
        (0, 0): lying(
            (0, [held(0, 0, [0, 1]), held(0, 1, [0, 1, 2])]),
            (7, [held(0, 0, [2, 3]), held(0, 1, [7])]),
        ),
        (0, 1): lying((4, [held(0, 1, [5, 6]), held(0, 2, [0])]), (6, held(0, 1, [8]))),
    }
    first, second, third = (
        {"partition": p, "first": name} for p, name in ((0, "a"), (1, "b"), (0, "c"))
    )
    blocks = {
        0: [block(0, 0, 0, 2, share=first), block(0, 0, 7, 2, share=third)],
        1: [
            block(0, 1, 0, 3, share={**first, "first_row": 2}),
            block(0, 1, 4, 2, share=second),
            block(0, 1, 7, 1, share={**third, "first_row": 2}),
            block(0, 1, 6, 1),
        ],
        2: [block(0, 2, 4, 1, share={**second, "first_row": 2})],
    }
    return Facts(
        truth=Truth(told=[*told, (Range(0, 1, 3, 2), ABORT, ABORTED)]),
        source=[Seen(one.partition, at, one, COMMIT) for at, one in enumerate(sent)],
        blocks=lies,
        tables={0: rows.joined([chunks.rows for chunks in lies.values()])},
        journal={partition: told_one_by_one(some) for partition, some in blocks.items()},
    )


def test_shared_chunks_as_promised_are_clean() -> None:
    """Whatever partition of the block topic the rows are in."""
    verdict = judges.whole(shared())

    assert verdict.clean, verdict.anomalies
    assert verdict.figures["blocks"] == 7
    assert verdict.figures["blocks_in_shared_chunks"] == 6


def lose_a_row_of_a_shared_chunk(facts: Facts) -> None:
    facts.blocks[0, 0] = lying(
        (0, [held(0, 0, [0, 1]), held(0, 1, [0, 1])]),
        (7, [held(0, 0, [2, 3]), held(0, 1, [7])]),
    )


def double_a_row_in_another_partition(facts: Facts) -> None:
    facts.blocks[0, 2] = lying((0, held(0, 1, [8])))


def swap_chunks_of_a_partition(facts: Facts) -> None:
    facts.blocks[0, 0] = lying(
        (0, [held(0, 0, [0, 1]), held(0, 1, [7])]),
        (7, [held(0, 0, [2, 3]), held(0, 1, [0, 1, 2])]),
    )


def swap_rows_between_partitions(facts: Facts) -> None:
    facts.blocks[0, 0] = lying(
        (0, [held(0, 0, [0, 1]), held(0, 1, [0, 1, 2])]),
        (7, [held(0, 0, [2, 3]), held(0, 1, [8])]),
    )
    facts.blocks[0, 1] = lying((4, [held(0, 1, [5, 6]), held(0, 2, [0])]), (6, held(0, 1, [7])))


def show_an_aborted_row_in_another_partition(facts: Facts) -> None:
    facts.blocks[0, 2] = lying((0, held(0, 1, [3])))


def change_a_value_in_a_shared_chunk(facts: Facts) -> None:
    facts.blocks[0, 0].rows.values[3] ^= np.uint64(1)


def call_a_row_another_partitions(facts: Facts) -> None:
    facts.blocks[0, 0].rows.partitions[3] = 0


def begin_a_block_too_early(facts: Facts) -> None:
    facts.journal[1][0].blocks[0].share.first_row = 1


def begin_a_block_too_late(facts: Facts) -> None:
    facts.journal[1][0].blocks[0].share.first_row = 3


def forget_that_a_chunk_is_shared(facts: Facts) -> None:
    facts.journal[0][0].blocks[0].ClearField("share")


def name_another_partition(facts: Facts) -> None:
    facts.journal[1][0].blocks[0].share.partition = 2


def leave_out_a_block(facts: Facts) -> None:
    del facts.journal[2][0].blocks[0]


FALSIFIED: list[tuple[Callable[[Facts], None], str, str]] = [
    (lose_a_row_of_a_shared_chunk, "order", "from partition 1: 1 rows lost, the first: 2"),
    (lose_a_row_of_a_shared_chunk, "places", "3 rows are not where the journal says"),
    (double_a_row_in_another_partition, "order", "from partition 1: 1 rows doubled, the first: 8"),
    (swap_chunks_of_a_partition, "order", "1: not in the source's order in partition 0"),
    (swap_rows_between_partitions, "places", "not in the source's order"),
    (show_an_aborted_row_in_another_partition, "aborted", "1 aborted rows"),
    (show_an_aborted_row_in_another_partition, "order", "1 rows never committed, the first: 3"),
    (change_a_value_in_a_shared_chunk, "order", "1 rows do not hold what was sent"),
    (call_a_row_another_partitions, "order", "from partition 1: 1 rows lost, the first: 1"),
    (call_a_row_another_partitions, "places", "rows of another partition"),
    (begin_a_block_too_early, "places", "rows of another partition"),
    (begin_a_block_too_late, "places", "3 rows are not where the journal says"),
    (forget_that_a_chunk_is_shared, "places", "2 rows are not where the journal says"),
    (name_another_partition, "places", "3 rows are not where the journal says"),
    (leave_out_a_block, "places", "clicks from partition 2 as the journal says: 1 rows lost"),
]


@pytest.mark.parametrize(("falsify", "judge", "says"), FALSIFIED)
def test_each_falsified_fact_of_shared_chunks_is_named(
    falsify: Callable[[Facts], None], judge: str, says: str
) -> None:
    """Rows lost, doubled, aborted or moved in a chunk of another partition."""
    facts = shared()
    falsify(facts)

    verdict = judges.whole(facts)

    assert any(says in anomaly for anomaly in verdict.anomalies[judge]), verdict.anomalies
