"""Dead letters that relays wrote against the journal; each rule with what it must not find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from relay.operate.verify.relay_letters import RelayLetterJudge
from relay.records_pb2 import Accept, Commit, DeadLetters, Mark, Rewind

Letters = Iterable[tuple[str, int]]


def listed(n: int, table: str, first: int, following: int, letters: int) -> Commit:
    """A record that lists dead letters of one buffer."""
    dead = DeadLetters(
        table=table, messages=letters, first_source_offset=first, next_source_offset=following
    )
    return Commit(n=n, partition=3, previous_floor=first, floor=following, dead=[dead])


def judged(
    commits: Sequence[Commit], letters: Letters, begin: int = 0, hidden_from: int | None = None
) -> tuple[list[str], list[str]]:
    """What is wrong, each with its kind, and what is not judged."""
    judge = RelayLetterJudge(commits, begin)
    for table, message in letters:
        judge.letter(table, message)
    found = [f"{one.kind.value}: {one.text}" for one in judge.judge(hidden_from)]
    return found, judge.not_judged


JOURNAL = [
    listed(1, "", 0, 10, 1),
    Commit(n=2, partition=3, previous_floor=10, floor=20),
    listed(3, "d.a", 20, 30, 2),
    listed(4, "d.a", 30, 40, 1),
]
LETTERS = [("", 4), ("d.a", 20), ("d.a", 29), ("d.a", 30)]
REWIND = Commit(n=5, partition=3, rewind=Rewind(starts=[Mark(table="d.a", offset=20)]), floor=20)
REWOUND = Commit(n=6, partition=3, previous_floor=20, floor=20, rewound=True)
RENAMED = Commit(n=5, partition=3, accept=Accept(kinds=["topic"]))


@pytest.mark.parametrize(
    ("commits", "letters"),
    [
        (JOURNAL, LETTERS),
        (JOURNAL, [*LETTERS, ("d.a", 41)]),  # sealed after the journal was read
        (JOURNAL[2:], LETTERS),  # retention took the record of the first
        ([*JOURNAL, REWIND, REWOUND], LETTERS),
        ([*JOURNAL, REWIND, REWOUND], LETTERS[:1]),  # a compacted topic, or they expired
        ([*JOURNAL, REWIND, REWOUND, listed(7, "d.a", 20, 40, 1)], [*LETTERS, ("d.a", 29)]),
        ([*JOURNAL, RENAMED, listed(6, "d.b", 0, 5, 1)], [*LETTERS, ("d.b", 0)]),
        ([*JOURNAL, RENAMED], []),
        ([Commit(n=1)], []),
        ([], [("d.a", 1)]),
    ],
)
def test_ordinary_histories_raise_nothing(commits: list[Commit], letters: Letters) -> None:
    assert judged(commits, letters) == ([], [])


@pytest.mark.parametrize(("lost", "n"), [(0, 1), (1, 3), (2, 3), (3, 4)])
def test_a_letter_that_is_not_there_is_a_gap(lost: int, n: int) -> None:
    (found,), not_judged = judged(JOURNAL, LETTERS[:lost] + LETTERS[lost + 1 :])
    assert found.startswith("gap: ")
    assert f"record n={n} lists" in found
    assert not_judged == []


def test_a_topic_that_was_emptied_has_none() -> None:
    found, _ = judged(JOURNAL, [])
    assert found == [
        "gap: '' from offset 0 to 10: record n=1 lists 1 dead letter, but the topic has 0",
        "gap: 'd.a' from offset 20 to 30: record n=3 lists 2 dead letters, but the topic has 0",
        "gap: 'd.a' from offset 30 to 40: record n=4 lists 1 dead letter, but the topic has 0",
    ]


def test_letters_of_another_table_do_not_count() -> None:
    (found,), _ = judged(JOURNAL, [*LETTERS[:3], ("d.b", 30)])
    assert "record n=4" in found


def test_after_a_rewind_its_own_letters_have_to_be_there() -> None:
    again = [*JOURNAL, REWIND, REWOUND, listed(7, "d.a", 40, 50, 1)]
    (found,), _ = judged(again, LETTERS)
    assert "record n=7" in found


@pytest.mark.parametrize(
    ("letters", "gone", "gaps"),
    [
        ([], 4, 0),
        (LETTERS[1:], 1, 0),
        (LETTERS[2:], 2, 0),  # of the record n=3 retention took the first
        (LETTERS[3:], 3, 0),
        (LETTERS[2:3], 2, 1),  # behind one that is there it took nothing
        (LETTERS[:3], 0, 1),
    ],
)
def test_retention_takes_the_first_letters_and_no_others(
    letters: Letters, gone: int, gaps: int
) -> None:
    found, not_judged = judged(JOURNAL, letters, begin=7)
    assert len(found) == gaps
    said = "may have gone by retention: the topic begins at 7"
    assert [line.startswith(f"partition 3: {gone} dead letter") for line in not_judged] == [
        True
    ] * bool(gone)
    assert all(line.endswith(said) for line in not_judged)


def test_what_an_open_transaction_hides_is_not_judged() -> None:
    hidden = "may be hidden by an open transaction at offset 3 of the topic"
    assert judged(JOURNAL, LETTERS[:3], hidden_from=3) == (
        [],
        [f"partition 3: 1 dead letter {hidden}"],
    )
    assert judged(JOURNAL, LETTERS, hidden_from=4) == ([], []), "it is of others, or later"


@pytest.mark.parametrize(
    ("letters", "hidden", "gaps"),
    [
        ([], 4, []),
        (LETTERS[:1], 3, []),
        (LETTERS[:2], 2, []),  # of the record n=3 the second may lie behind it
        (LETTERS[1:2], 2, ["n=1"]),
        (LETTERS[1:3], 1, ["n=1"]),
        (LETTERS[3:], 0, ["n=1", "n=3"]),
        (LETTERS[2:], 0, ["n=1", "n=3"]),
    ],
)
def test_an_open_transaction_hides_only_what_lies_behind_the_last_letter(
    letters: Letters, hidden: int, gaps: list[str]
) -> None:
    found, not_judged = judged(JOURNAL, letters, hidden_from=3)
    assert [line.split("record ")[1].split()[0] for line in found] == gaps
    said = "may be hidden by an open transaction at offset 3 of the topic"
    assert [line.startswith(f"partition 3: {hidden} dead letter") for line in not_judged] == [
        True
    ] * bool(hidden)
    assert all(line.endswith(said) for line in not_judged)


def test_retention_and_an_open_transaction_are_told_apart() -> None:
    found, (gone, hidden) = judged(JOURNAL, LETTERS[1:3], begin=7, hidden_from=9)
    assert found == []
    one = "partition 3: 1 dead letter may"
    assert gone == f"{one} have gone by retention: the topic begins at 7"
    assert hidden == f"{one} be hidden by an open transaction at offset 9 of the topic"


def test_a_letter_of_before_a_rewind_shows_nothing_of_what_came_after_it() -> None:
    other, own = listed(7, "d.b", 20, 25, 1), listed(8, "d.a", 20, 40, 1)
    again = [*JOURNAL, REWIND, REWOUND, other, own]
    found, not_judged = judged(again, LETTERS, hidden_from=4)
    assert found == []
    hidden = "may be hidden by an open transaction at offset 4 of the topic"
    assert not_judged == [f"partition 3: 1 dead letter {hidden}"]
    later = listed(9, "d.a", 40, 50, 1)
    (found,), _ = judged([*again, later], [*LETTERS, ("d.a", 45)], hidden_from=9)
    assert "record n=7" in found
