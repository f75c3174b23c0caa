"""Taking a partition over: what agrees goes on, each disagreement stops with both values."""

from __future__ import annotations

from typing import Any

import pytest

from relay import names
from relay.core.offsets import CommittedOffset
from relay.core.records import TableMark
from relay.core.state import Partition
from relay.core.takeover import mark_to_prove, take_over
from relay.errors import ConfigError, ContractBroken, RelayError
from relay.program.supervision import Past, after
from tests.core.build import found, record


def test_the_partition_is_as_its_last_transaction_left_it() -> None:
    taken = take_over(found(), 99)

    assert isinstance(taken, Partition)
    assert (taken.floor, taken.position, taken.n, taken.epoch) == (10, 10, 3, 0)
    assert (taken.marks, taken.reference, taken.count) == ({"d.x": 12}, 5, 4)
    assert (taken.buffers, taken.fresh, taken.flushed_at_ms) == ({}, False, 99)


def test_counting_starts_anew_at_a_flush_point() -> None:
    taken = take_over(found(record=record(flush_point=True)), 0)

    assert isinstance(taken, Partition)
    assert (taken.reference, taken.count) == (10, 0)


def test_a_first_start_begins_where_somebody_chose() -> None:
    taken = take_over(found(committed=None, record=None, start_offset=8), 0)

    assert isinstance(taken, Partition)
    assert (taken.floor, taken.position, taken.n, taken.fresh) == (8, 8, 0, True)


def test_an_unfinished_rewind_is_tried_again_until_it_is_done() -> None:
    """Nothing is read meanwhile, and no relay stays down, however long it takes."""
    stopped = take_over(found(record=record(rewinding=True)), 0)

    assert isinstance(stopped, RelayError)
    assert "was begun and is not finished" in stopped.message
    past = Past()
    for _ in range(100):
        pause, past = after(stopped.exit_code, 1.0, past)
        assert pause is not None


RENAMED = {"source_topic": "rows2", "source_topic_id": "other"}


@pytest.mark.parametrize(
    "changes",
    [
        {"record": record(source_topic="rows")},
        {
            "committed": None,
            "record": None,
            "later_records": 1,
            "last_record": record(source_topic="rows"),
            "start_offset": 0,
        },
        {"record": record(source_topic="rows"), "shown": CommittedOffset(50, 9, 9)},
    ],
    ids=["the group knows it", "the group does not", "the group in its cluster leads"],
)
def test_another_name_is_a_question_of_configuration(changes: dict[str, Any]) -> None:
    """Sent to `relay accept` as if the topic had been deleted, a mistyped name doubled all rows."""
    taken = take_over(found(**changes, **RENAMED), 0)

    assert isinstance(taken, ConfigError)
    assert "the journal is of topic 'rows', and source.topic is 'rows2'" in taken.message
    assert "source.topic" in taken.next_step
    assert "accept" not in taken.next_step


@pytest.mark.parametrize("name", ["", "rows2"])
def test_a_topic_of_the_same_name_or_of_no_recorded_one_was_made_anew(name: str) -> None:
    taken = take_over(found(record=record(source_topic=name), **RENAMED), 0)

    assert isinstance(taken, RelayError)
    assert "deleted and created again" in taken.message


def test_a_topic_of_the_same_id_is_the_same() -> None:
    """An accept of an earlier version wrote the old name beside the new topic's id."""
    taken = take_over(found(record=record(source_topic="rows"), source_topic="rows2"), 0)

    assert isinstance(taken, Partition)


def test_a_first_start_that_nobody_chose_is_a_question_of_configuration() -> None:
    taken = take_over(found(committed=None, record=None, start_offset=None), 0)

    assert isinstance(taken, ConfigError)
    assert "source.start" in taken.next_step


DISAGREEMENTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "offset expired": (
        {"committed": None, "later_records": 2, "start_offset": 0},
        ("records (2)",),
    ),
    "no record there": ({"record": None}, ("offset 7", "floor 10")),
    "floor differs": ({"record": record(floor=11)}, ("floor 10", "floor 11")),
    "n differs": ({"record": record(n=4)}, ("n=3", "n=4")),
    "offset moved": ({"committed": CommittedOffset(6, 3, 7)}, ("floor 6", "floor 10")),
    "offset set back": ({"later_records": 1}, ("records after it (1)", "n=3", "set back")),
    "topic made anew": ({"source_topic_id": "other"}, ("from id", "to other")),
    "topic made anew, its offsets gone with it": (
        {
            "committed": None,
            "later_records": 1,
            "last_record": record(source_topic_id="other"),
            "start_offset": 0,
        },
        ("from other", "to id"),
    ),
    "retention passed": ({"log_start": 15}, ("10 to 14", "to 15", "perhaps only their markers")),
    "log cut off": ({"log_end": 9}, ("floor 10", "end 9")),
    # New messages of d.x before 12 would be passed over as if they were in blocks.
    "log cut off behind the floor": ({"log_end": 11}, ("'d.x'", "offset 12", "ends at 11")),
    "log cut off behind the floor, and grown again": (
        {"lost_end": 11, "log_end": 30},
        ("'d.x'", "offset 12", "from offset 11 on", "grown again to 30"),
    ),
    "log cut off, and retention passed": (
        {"log_end": 11, "log_start": 11},
        ("offset 12", "ends at 11"),
    ),
}


@pytest.mark.parametrize(("changes", "said"), DISAGREEMENTS.values(), ids=DISAGREEMENTS.keys())
def test_each_disagreement_stops(changes: dict[str, Any], said: tuple[str, ...]) -> None:
    """Where two recorded truths differ, the relay stops and names both."""
    taken = take_over(found(**changes), 0)

    assert isinstance(taken, ContractBroken)
    for part in ("source partition 0", *said):
        assert part in taken.message
    assert taken.next_step


@pytest.mark.parametrize("changes", [{"log_start": 10}, {"log_end": 12}])
def test_the_bounds_themselves_are_fine(changes: dict[str, Any]) -> None:
    assert isinstance(take_over(found(**changes), 0), Partition)


def test_a_log_that_ends_at_the_floor_is_fine() -> None:
    assert isinstance(take_over(found(record=record(marks=()), log_end=10), 0), Partition)


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({}, 12),
        ({"leader_epoch": -1}, None),  # nobody knows it
        ({"log_end": 11}, None),  # stops anyway
        ({"record": record(marks=())}, None),  # the consumer proves the floor
        # Read again from the floor, and not yet to the mark: the epoch may be an older leader's.
        ({"record": record(position=11)}, None),
        ({"record": record(marks=(TableMark("d.x", 11), TableMark("d.y", 13)))}, 11),
    ],
)
def test_which_mark_the_committed_epoch_has_to_reach(
    changes: dict[str, Any], mark: int | None
) -> None:
    assert mark_to_prove(found(**{"leader_epoch": 2, **changes})) == mark


def test_a_journal_made_anew_begins_with_an_epoch_of_its_own() -> None:
    """Else its first blocks have the ids of the deleted journal's, which the ledger knows."""
    fresh = {"committed": None, "record": None, "start_offset": 0}
    epochs = []
    for journal in ("g5rGJb0qQIiaE-2SmnnlFQ", "Pl7jYbkzRkCxHymqM5wM9Q"):
        taken = take_over(found(**fresh, journal_topic_id=journal), 0)
        assert isinstance(taken, Partition)
        epochs.append(taken.epoch)
    assert len({*epochs}) == 2
    assert all(1 << 30 <= epoch < 1 << 31 for epoch in epochs)
    assert names.first_epoch("g5rGJb0qQIiaE-2SmnnlFQ") == epochs[0], "the same after a crash"


def test_a_known_partition_keeps_the_epoch_of_its_record() -> None:
    """Journals that earlier versions began go on with 0, 1, 2."""
    taken = take_over(found(journal_topic_id="g5rGJb0qQIiaE-2SmnnlFQ"), 0)
    assert isinstance(taken, Partition)
    assert taken.epoch == 0
