"""Taking a partition over: what agrees goes on, each disagreement stops with both values."""

from __future__ import annotations

from typing import Any

import pytest

from relay import names
from relay.core.effects import StopError, StopKind
from relay.core.offsets import CommittedOffset
from relay.core.state import Partition
from relay.core.takeover import take_over
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


def test_a_first_start_that_nobody_chose_is_a_question_of_configuration() -> None:
    taken = take_over(found(committed=None, record=None, start_offset=None), 0)

    assert isinstance(taken, StopError)
    assert taken.kind is StopKind.CONFIG
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
}


@pytest.mark.parametrize(("changes", "said"), DISAGREEMENTS.values(), ids=DISAGREEMENTS.keys())
def test_each_disagreement_stops(changes: dict[str, Any], said: tuple[str, ...]) -> None:
    """Where two recorded truths differ, the relay stops and names both."""
    taken = take_over(found(**changes), 0)

    assert isinstance(taken, StopError)
    assert taken.kind is StopKind.CONTRACT_BROKEN
    for part in ("source partition 0", *said):
        assert part in taken.message
    assert taken.next_step


@pytest.mark.parametrize("changes", [{"log_start": 10}, {"log_end": 10}])
def test_the_bounds_themselves_are_fine(changes: dict[str, Any]) -> None:
    assert isinstance(take_over(found(**changes), 0), Partition)


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
