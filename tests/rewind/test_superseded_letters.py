"""Which dead letters a rewind has left behind."""

from __future__ import annotations

import pytest

from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.operate.rewind.superseded_letters import SupersededLetters
from relay.records_pb2 import Accept, Commit, Mark, Rewind
from tests.dead.letters import TABLE, letter

REWOUND_AT_MS = 5_000


def superseded(
    *letters: DeadLetter, next_letter: int | None = 8, start: int = 105, partition: int = 1
) -> list[bool]:
    """Of these, by a journal with one rewind under epoch 4."""
    told = SupersededLetters()
    rewind = Rewind(starts=[Mark(table=TABLE, offset=start)], next_letter=next_letter)
    told.add(Commit(partition=partition, epoch=3, written_at_ms=1))
    told.add(Commit(partition=partition, epoch=4, written_at_ms=REWOUND_AT_MS, rewind=rewind))
    return [told.include(one) for one in letters]


def test_letters_before_the_rewind_of_messages_behind_its_start() -> None:
    """Letter N is of source message 100 + N; the next one was number 8."""
    assert superseded(letter(4), letter(5), letter(7), letter(8)) == [False, True, True, False]


def test_times_decide_only_where_the_record_has_no_letter() -> None:
    """Of a rewind by an earlier version; the clocks of relays and people differ otherwise."""
    late, early = letter(5, when_ms=REWOUND_AT_MS + 1), letter(9, when_ms=REWOUND_AT_MS - 1)
    assert superseded(late, early) == [True, False]
    assert superseded(late, early, next_letter=None) == [False, True]


def test_the_first_letter_of_a_topic_may_be_the_next_one() -> None:
    """Zero is an offset, too."""
    assert superseded(letter(9), next_letter=0) == [False]


@pytest.mark.parametrize(
    "other",
    [letter(5, table="shop.others"), letter(5, source=RecordPlace(0, 105)), letter(5, table="")],
)
def test_other_tables_and_partitions_keep_theirs(other: DeadLetter) -> None:
    assert superseded(other) == [False]


@pytest.mark.parametrize(
    ("epoch", "first", "gone"), [(3, 105, True), (3, 100, False), (4, 105, False)]
)
def test_a_loaders_letter_goes_with_its_block(epoch: int, first: int, gone: bool) -> None:
    """However late it was written: the block is of the epoch before, and began behind the start."""
    block = f"app:{TABLE}:1:{epoch}:{first}:left-out"
    late = letter(900, when_ms=REWOUND_AT_MS * 2, block=block, source=RecordPlace(1, 107))
    assert superseded(late) == [gone]


def test_each_of_several_rewinds_counts() -> None:
    """The second one began later in the partition and saw more letters."""
    told = SupersededLetters()
    for epoch, start, following in ((4, 100, 2), (5, 106, 9)):
        rewind = Rewind(starts=[Mark(table=TABLE, offset=start)], next_letter=following)
        told.add(Commit(partition=1, epoch=epoch, rewind=rewind))
    found = [told.include(letter(number)) for number in (1, 3, 5, 6, 8, 9)]
    assert found == [True, False, False, True, True, False]


@pytest.mark.parametrize("kinds", [["topic"], ["truncated", "offsets"]])
def test_letters_of_a_source_log_that_is_gone_are_no_later_rewinds(kinds: list[str]) -> None:
    """After the accept an offset names another message; letters until then are settled."""
    told = SupersededLetters()
    rewind = Rewind(starts=[Mark(table=TABLE, offset=100)], next_letter=9)
    told.add(Commit(partition=1, epoch=4, accept=Accept(kinds=kinds, next_letter=6)))
    told.add(Commit(partition=1, epoch=5, rewind=rewind))
    blocks = [f"app:{TABLE}:1:{epoch}:100:left-out" for epoch in (3, 4)]
    letters = [letter(5), letter(6), *(letter(20, block=block) for block in blocks)]
    assert [told.include(one) for one in letters] == [False, True, False, True]


def test_an_accept_that_renames_nothing_settles_nothing() -> None:
    told = SupersededLetters()
    told.add(Commit(partition=1, epoch=4, accept=Accept(kinds=["retention"], next_letter=6)))
    rewind = Rewind(starts=[Mark(table=TABLE, offset=100)], next_letter=9)
    told.add(Commit(partition=1, epoch=5, rewind=rewind))
    assert told.include(letter(5))
