"""Journal records as lines, and where in the journal to begin, without a broker."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition

from relay.operate.view import journal_lines, start
from relay.operate.view.journal_lines import JournalLine
from relay.records_pb2 import Accept, Mark, Rewind
from tests.view.records import block, commit, dead

ENTRIES = [JournalLine(p, at, commit(at)) for p, at in ((0, 1), (1, 1), (0, 2), (0, 3))]


def test_the_last_of_each_partition() -> None:
    found = journal_lines.last(ENTRIES, 2)
    assert {p: [entry.offset for entry in of_one] for p, of_one in found.items()} == {
        0: [2, 3],
        1: [1],
    }
    assert journal_lines.last([], 2) == {}


def test_more_is_read_only_where_more_may_be() -> None:
    found = journal_lines.last(ENTRIES, 2)
    assert journal_lines.enough(found, [], 2), "nothing is unread"
    assert journal_lines.enough(found, [0], 2)
    assert not journal_lines.enough(found, [0, 1], 2)
    assert not journal_lines.enough(found, [7], 1)


def test_a_record_as_lines_and_as_json() -> None:
    one = commit(
        7,
        block(3),
        floor=5,
        position=9,
        previous_floor=2,
        marks=[Mark(table="d.u", offset=8)],
        dead=[dead("", 2, "no header")],
    )
    text = "\n".join(journal_lines.lines(JournalLine(0, 14, one)))
    for part in (
        "offset 14  n 7  epoch 0  floor 2 → 5  position 9  by a",
        "mark d.u 8",
        "block shop:d.t:0:0:3  10 rows",
        "dead 2 of (no table) from 0 to 1: first reason: no header",
    ):
        assert part in text
    still = next(
        journal_lines.lines(
            JournalLine(0, 1, commit(1, floor=4, previous_floor=4, flush_point=True))
        )
    )
    assert "floor 4  position 4  flush point" in still
    found = json.loads(json.dumps(journal_lines.as_json(JournalLine(0, 14, one))))
    assert found["record"]["blocks"][0]["id"] == "shop:d.t:0:0:3"
    assert found["record"]["epoch"] == "0"


def told(**fields: Any) -> list[str]:
    return list(
        journal_lines.lines(JournalLine(0, 14, commit(7, floor=5, previous_floor=9, **fields)))
    )


def test_a_rewind_and_its_end_are_told_to_people() -> None:
    starts = [Mark(table="d.t", offset=5), Mark(table="", offset=8)]
    assert told(rewind=Rewind(starts=starts, kept=["d.t"], why="wrong rates"))[1:] == [
        "    rewound from 9: d.t from 5, (no table) from 8",
        "    old rows kept in d.t",
        "    why: wrong rates",
    ]
    assert told(rewind=Rewind(starts=starts[:1]))[1:] == [
        "    rewound from 9: d.t from 5",
        "    why: not said",
    ]
    assert told(rewound=True)[1:] == ["    the rewind has ended: relays continue"]
    assert told()[1:] == []


def test_what_was_accepted_is_told_to_people() -> None:
    found = Accept(kinds=["retention"], found="the log begins at 9, the floor is 5", why="outage")
    assert told(accept=found)[1:] == [
        "    accepted retention: the log begins at 9, the floor is 5",
        "    floor 9 became 5",
        "    why: outage",
    ]


NOBODY = cast("Any", None)


@pytest.mark.parametrize(
    ("offsets", "needed", "first"),
    [
        (10, None, 90),
        (0, None, 20),
        (500, None, 20),
        (10, {}, 20),  # the loader never settled anything: all of it
        (10, {0: 95}, 90),
        (10, {0: 50}, 50),
        (10, {0: 5}, 20),
        (10, {1: 50}, 20),
    ],
)
def test_where_a_screen_begins(offsets: int, needed: dict[int, int] | None, first: int) -> None:
    """So far back, and to where the loader stands."""
    assert start.last(offsets, needed)(NOBODY, TopicPartition("j", 0), 20, 100) == first


def test_one_partition_alone() -> None:
    where = start.only(1)
    ends = [where(NOBODY, TopicPartition("j", p), 20, 100) for p in range(3)]
    assert ends == [100, 20, 100]


@pytest.mark.parametrize(("found", "first"), [(50, 50), (10, 20), (-1, 100), (100, 100)])
def test_since_a_time(found: int, first: int) -> None:
    """The broker's answer; none later means nothing to read."""

    class Answers:
        def offsets_for_times(
            self, asked: list[TopicPartition], _timeout: float
        ) -> list[TopicPartition]:
            assert asked[0].offset == 1_234
            return [TopicPartition("j", 0, found)]

    where = start.since(1_234)
    assert where(cast("Any", Answers()), TopicPartition("j", 0), 20, 100) == first
