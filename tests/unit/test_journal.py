from __future__ import annotations

from relay.blocks import journal
from relay.core.offsets import CommittedOffset
from relay.core.records import JournalRecord, TableMark


def test_a_record_reads_back_as_it_was_written() -> None:
    """What take-over needs survives the wire."""
    record = JournalRecord(
        partition=3,
        source_topic_id="id",
        epoch=1,
        n=7,
        previous_floor=10,
        floor=12,
        position=20,
        marks=(TableMark("d.a", 15),),
        results=(),
        reference=8,
        count=4,
        flush_point=False,
        source_partitions=5,
        source_topic="source",
    )

    written = journal.encode(record, journal.Author("app", "source", "m"), 123)

    assert journal.decode(written) == record


def test_metadata_reads_back_and_foreign_metadata_is_told_apart() -> None:
    """A tool that moves offsets writes none, or its own."""
    offset = CommittedOffset(12, 7, 99)

    assert CommittedOffset.parse(12, offset.metadata) == offset
    for foreign in (None, "", "x", "{}", '{"n": 1}', "[]", '{"n": null, "journal": 3}'):
        assert CommittedOffset.parse(12, foreign) is None
