"""Which dead letters a rewind has left behind."""

from __future__ import annotations

import pytest

from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.operate.rewind.superseded_letters import SupersededLetters
from relay.records_pb2 import Accept, Commit, Mark, Rewind
from tests.dead.letters import TABLE, letter

REWOUND_AT_MS = 5_000
TOPIC_ID = "present"
FIRST = 1 << 30


def superseded(
    *letters: DeadLetter,
    next_letter: int | None = 8,
    start: int = 105,
    partition: int = 1,
    topic_id: str = TOPIC_ID,
) -> list[bool]:
    """Of these, by a journal with one rewind under epoch 4."""
    told = SupersededLetters(TOPIC_ID, {0, FIRST})
    rewind = Rewind(
        starts=[Mark(table=TABLE, offset=start)], next_letter=next_letter, dead_topic_id=topic_id
    )
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


@pytest.mark.parametrize(("topic_id", "gone"), [(TOPIC_ID, True), ("", True), ("former", False)])
def test_a_topic_that_was_made_anew_has_later_letters_only(topic_id: str, gone: bool) -> None:
    """Its offsets begin at zero again; a record without an id is of an earlier version."""
    block = f"app:{TABLE}:1:3:105:left-out"
    of_loader = letter(6, block=block, source=RecordPlace(1, 107))
    assert superseded(letter(5), of_loader, topic_id=topic_id) == [gone, True]


@pytest.mark.parametrize(("topic_id", "settled"), [(TOPIC_ID, True), ("", True), ("old", False)])
def test_of_a_topic_made_anew_an_accept_settles_nothing(topic_id: str, settled: bool) -> None:
    told = SupersededLetters(TOPIC_ID, {0, FIRST})
    accept = Accept(kinds=["topic"], next_letter=6, dead_topic_id=topic_id)
    told.add(Commit(partition=1, epoch=4, accept=accept))
    rewind = Rewind(starts=[Mark(table=TABLE, offset=100)], next_letter=9, dead_topic_id=TOPIC_ID)
    told.add(Commit(partition=1, epoch=5, rewind=rewind))
    assert told.include(letter(5)) == (not settled)


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
    told = SupersededLetters(TOPIC_ID, {0, FIRST})
    for epoch, start, following in ((4, 100, 2), (5, 106, 9)):
        rewind = Rewind(starts=[Mark(table=TABLE, offset=start)], next_letter=following)
        told.add(Commit(partition=1, epoch=epoch, rewind=rewind))
    found = [told.include(letter(number)) for number in (1, 3, 5, 6, 8, 9)]
    assert found == [True, False, False, True, True, False]


@pytest.mark.parametrize(
    ("end", "gone"),
    [
        (Commit(floor=100), [True, True]),
        (Commit(floor=106), [False, True]),
        (Commit(floor=90, marks=[Mark(table=TABLE, offset=106)]), [False, True]),
        (Commit(floor=200), [False, False]),
    ],
)
def test_letters_count_of_messages_that_were_not_read_again(end: Commit, gone: list[bool]) -> None:
    """They had gone from the source log: the record that ends the rewind says from where on."""
    rewind = Rewind(starts=[Mark(table=TABLE, offset=100)], next_letter=9)
    end.partition, end.epoch, end.rewound = 1, 4, True
    told = SupersededLetters(TOPIC_ID, {0, FIRST})
    told.add(Commit(partition=1, n=1, epoch=3))
    told.add(Commit(partition=1, n=2, epoch=4, rewind=rewind))
    told.add(end)
    told.add(Commit(partition=1, n=4, epoch=4, floor=500))
    assert [told.include(letter(number)) for number in (3, 7)] == gone


@pytest.mark.parametrize("kinds", [["topic"], ["truncated", "offsets"]])
def test_letters_of_a_source_log_that_is_gone_are_no_later_rewinds(kinds: list[str]) -> None:
    """After the accept an offset names another message; letters until then are settled."""
    told = SupersededLetters(TOPIC_ID, {0, FIRST})
    rewind = Rewind(starts=[Mark(table=TABLE, offset=100)], next_letter=9)
    told.add(Commit(partition=1, epoch=4, accept=Accept(kinds=kinds, next_letter=6)))
    told.add(Commit(partition=1, epoch=5, rewind=rewind))
    blocks = [f"app:{TABLE}:1:{epoch}:100:left-out" for epoch in (3, 4)]
    letters = [letter(5), letter(6), *(letter(20, block=block) for block in blocks)]
    assert [told.include(one) for one in letters] == [False, True, False, True]


def test_an_accept_that_renames_nothing_settles_nothing() -> None:
    told = SupersededLetters(TOPIC_ID, {0, FIRST})
    told.add(Commit(partition=1, epoch=4, accept=Accept(kinds=["retention"], next_letter=6)))
    rewind = Rewind(starts=[Mark(table=TABLE, offset=100)], next_letter=9)
    told.add(Commit(partition=1, epoch=5, rewind=rewind))
    assert told.include(letter(5))


def told_by(*commits: Commit) -> SupersededLetters:
    """By a journal of these records of partition 1."""
    told = SupersededLetters(TOPIC_ID, {0, FIRST})
    for commit in commits:
        told.add(commit)
    return told


@pytest.mark.parametrize(
    ("oldest", "known"),
    [
        (Commit(partition=1, n=1, epoch=FIRST + 1, written_at_ms=5_000), True),
        (Commit(partition=1, n=9, epoch=FIRST, written_at_ms=5_000), True),
        (Commit(partition=1, n=9, epoch=0, written_at_ms=5_000), True),
        (Commit(partition=1, n=9, epoch=FIRST + 1, written_at_ms=5_000), False),
        (Commit(partition=1, n=9, epoch=1, written_at_ms=5_000, rewound=True), False),
        (Commit(partition=1, n=9, epoch=FIRST + 1, written_at_ms=5_000, rewind=Rewind()), True),
        (Commit(partition=1, n=9, epoch=1, written_at_ms=5_000, accept=Accept()), True),
        (Commit(partition=1, n=9, epoch=FIRST + 2, written_at_ms=5_000, rewind=Rewind()), False),
        (Commit(partition=0, n=9, epoch=FIRST + 1, written_at_ms=5_000), True),
    ],
)
def test_whether_rewinds_before_the_journals_oldest_record_are_known(
    oldest: Commit, *, known: bool
) -> None:
    """They are where it is the first, or where its epoch says that there was none."""
    later = Commit(partition=oldest.partition, n=10, epoch=oldest.epoch, written_at_ms=9_000)
    told = told_by(oldest, later)
    assert told.may_include(letter(when_ms=5_000)) == (not known)
    assert not told.may_include(letter(when_ms=5_001)), "written since"
    assert not told.include(letter(when_ms=5_000))


@pytest.mark.parametrize(("epoch", "known"), [(FIRST + 1, False), (FIRST + 2, True)])
def test_a_loaders_letter_is_known_by_its_blocks_epoch(epoch: int, *, known: bool) -> None:
    """However late it was written."""
    told = told_by(Commit(partition=1, n=9, epoch=FIRST + 2, written_at_ms=5_000))
    for when_ms in (1, 9_000):
        one = letter(when_ms=when_ms, block=f"app:{TABLE}:1:{epoch}:105:left-out")
        assert told.may_include(one) == (not known)


def test_where_no_record_is_left_nothing_is_known_until_one_comes() -> None:
    """A stopped app's journal is emptied by retention."""
    told = told_by()
    assert not told.may_include(letter()), "there never was a record"
    told.emptied(1)
    assert told.may_include(letter())
    assert told.may_include(letter(block=f"app:{TABLE}:1:{FIRST}:105:left-out"))
    told.add(Commit(partition=1, n=9, epoch=FIRST + 1, written_at_ms=500))
    told.emptied(1)
    assert not told.may_include(letter(when_ms=1_000))
