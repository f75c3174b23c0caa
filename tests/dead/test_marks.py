"""Which replays the topic of marks tells of: to a replay, and to a rewind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from relay import names
from relay.blocks.dead_letter import RecordPlace
from relay.errors import ContractBroken
from relay.operate.dead import reader
from relay.operate.dead.reader import DeadReader
from relay.operate.dead.replay_plan import ReplayMark, mark_key
from tests.dead.letters import TABLE
from tests.doctor.healthy import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import TopicPartition

FORMER, PRESENT = "id1", "id2"


def mark(source: int) -> ReplayMark:
    """Of the first letter of a dead letter topic."""
    return ReplayMark(RecordPlace(0, 0), RecordPlace(0, source), RecordPlace(0, 900), TABLE, 1)


class Marks:
    """The topic of marks, with those of these dead letter topics; `begin` is its first offset."""

    def __init__(self, *letters: tuple[str, ReplayMark], begin: int = 0) -> None:
        self.records = [(mark_key(topic, one.dead), one.encode()) for topic, one in letters]
        self.begin = begin

    def describe(self, topic: str, _: Any = ()) -> Any:
        """As of Topics; the dead letter topic is there as well."""
        assert topic in {names.dead_topic("app"), names.replayed_topic("app")}
        return SimpleNamespace(topic_id=PRESENT, partitions=1)

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        """As of PartitionReader."""
        return self.begin, len(self.records)

    def read(self, _: Any, place: TopicPartition, end: int, __: float) -> Iterator[Any]:
        """As relay.kafka.partition_reader.records."""
        for key, value in self.records[place.offset : end]:
            yield SimpleNamespace(key=lambda k=key: k, value=lambda v=value: v)

    def close(self) -> None:
        """As of PartitionReader."""


def dead_reader(monkeypatch: pytest.MonkeyPatch, marks: Marks, **told: bool) -> DeadReader:
    monkeypatch.setattr(reader, "Topics", lambda _: marks)
    monkeypatch.setattr(reader, "PartitionReader", lambda _: marks)
    monkeypatch.setattr(reader, "records", marks.read)
    return DeadReader(settings(), **told)


def test_replays_count_whatever_became_of_their_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red before: a rewind heard only of letters in the present topic, and doubled the others."""
    marks = Marks((FORMER, mark(100)), (PRESENT, mark(300)))
    found = dead_reader(monkeypatch, marks)
    assert [one.source.offset for one in found.replays()] == [100, 300]
    assert found.marks() == {RecordPlace(0, 0): mark(300)}, "a replay names letters of the present"


def test_marks_that_were_deleted_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red before: what had no mark any more counted as not replayed, and came twice."""
    marks = Marks((PRESENT, mark(100)), (PRESENT, mark(300)), begin=1)
    found = dead_reader(monkeypatch, marks)
    for read in (found.marks, found.replays):
        with pytest.raises(ContractBroken, match=r"app\.replayed begins at offset 1") as stopped:
            read()
        assert "--despite-replays" in stopped.value.next_step

    found = dead_reader(monkeypatch, marks, incomplete=True)
    assert found.marks() == {RecordPlace(0, 0): mark(300)}
    assert "marks of replays were deleted" in found.deleted_marks


def test_whole_marks_leave_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are none yet."""
    for marks in (Marks(), Marks((PRESENT, mark(100)))):
        found = dead_reader(monkeypatch, marks, incomplete=True)
        assert len(found.marks()) == len(marks.records)
        assert not found.deleted_marks
