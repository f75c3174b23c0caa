"""Take over a source partition: do the committed floor, the journal and the topic agree?

Receives what the brokers said (PartitionTruth), gives the partition's state or the reason
to stop. Where two recorded truths differ, going on would lose or double rows, so
it never chooses one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay import names
from relay.core.effects import StopError, StopKind
from relay.core.offsets import CommittedOffset
from relay.core.records import JournalRecord, PartitionTruth
from relay.core.state import Partition
from relay.errors import PERHAPS_NO_MESSAGE, ErrorPage


def take_over(found: PartitionTruth, now_ms: int) -> Partition | StopError:
    """Return the partition as its last committed transaction left it, with empty buffers."""
    if ahead := _ahead(found):
        return ahead
    if found.committed is None:
        return _first_start(found, now_ms)
    problem = (
        _disagreement(found, found.committed, found.record)
        or _rewinding(found, found.record)
        or _out_of_bounds(found, found.committed)
    )
    if problem is not None or found.record is None:
        return problem or _stop(found, "the journal has no record for the committed offset")
    record = found.record
    return Partition(
        epoch=record.epoch,
        n=record.n,
        floor=record.floor,
        position=record.floor,
        source_topic_id=found.source_topic_id,
        reference=record.floor if record.flush_point else record.reference,
        count=0 if record.flush_point else record.count,
        flushed_at_ms=now_ms,
        recorded_at_ms=record.appended_at_ms,
        marks={mark.table: mark.offset for mark in record.marks},
        source_partitions=found.source_partitions,
    )


def came_later(partition: int, widths: Iterable[int]) -> bool:
    """Return whether a source partition that nobody has read is newer than its app.

    Args:
        partition: of the source, without a committed floor.
        widths: how many partitions the source had, by the oldest record of each journal partition.
            All that were there at the app's first start are below each of them.
    """
    return any(width <= partition for width in widths)


def _ahead(found: PartitionTruth) -> StopError | None:
    """A group in another cluster gets its offset after each commit: it may lag, but never lead."""
    head = found.committed
    if found.shown is None or (head is not None and found.shown.n <= head.n):
        return None
    ends = "is empty" if head is None else f"ends with n={head.n}"
    return _stop(
        found,
        f"the group in the source's cluster has floor {found.shown.floor} (n={found.shown.n}), "
        f"but the journal {ends}: the journal lost records, or [kafka] names another cluster than "
        "before",
    )


def _first_start(found: PartitionTruth, now_ms: int) -> Partition | StopError:
    if found.later_records:
        if found.last_record is not None and (anew := _made_anew(found, found.last_record)):
            return anew  # the broker deletes a group's offsets with the topic
        return _stop(
            found,
            "the consumer group has no committed offset, but the journal holds records "
            f"({found.later_records}): the offset expired or was deleted",
        )
    if found.start_offset is None:
        return StopError(
            StopKind.CONFIG,
            f"source partition {found.partition} was never read, and source.start does not say "
            "where to begin",
            'set source.start = "earliest" (everything that the topic still holds) or "latest" '
            "(only new messages)",
        )
    return Partition(
        epoch=names.first_epoch(found.journal_topic_id),
        n=0,
        floor=found.start_offset,
        position=found.start_offset,
        source_topic_id=found.source_topic_id,
        reference=found.start_offset,
        count=0,
        flushed_at_ms=now_ms,
        recorded_at_ms=now_ms,
        fresh=True,
        source_partitions=found.source_partitions,
    )


def _disagreement(
    found: PartitionTruth, committed: CommittedOffset, record: JournalRecord | None
) -> StopError | None:
    if record is None:
        return _stop(
            found,
            f"committed floor {committed.floor} names journal offset {committed.journal_offset}, "
            "but the journal has no record of this partition there",
        )
    if (record.n, record.floor) != (committed.n, committed.floor):
        return _stop(
            found,
            f"committed floor {committed.floor} (n={committed.n}) and the journal record's floor "
            f"{record.floor} (n={record.n}) differ: somebody moved the group's offsets",
        )
    if found.later_records:
        return _stop(
            found,
            f"the group's offset names n={committed.n}, but the journal holds records after it "
            f"({found.later_records}): somebody set the offset back",
        )
    return _made_anew(found, record)


def _rewinding(found: PartitionTruth, record: JournalRecord | None) -> StopError | None:
    """Blocks formed now could be loaded beside the rows that they replace."""
    if record is None or not record.rewinding:
        return None
    return StopError(
        StopKind.CONTRACT_BROKEN,
        f"source partition {found.partition}: a rewind to offset {record.floor} was begun and is "
        "not finished: rows that it replaces may still be in ClickHouse",
        "finish it with `relay rewind CONFIG --run`, then start again",
        ErrorPage.REWIND,
    )


def _made_anew(found: PartitionTruth, record: JournalRecord) -> StopError | None:
    if record.source_topic_id == found.source_topic_id:
        return None
    return _stop(
        found,
        f"topic id changed from {record.source_topic_id} to {found.source_topic_id}: "
        "the source topic was deleted and created again",
    )


def _out_of_bounds(found: PartitionTruth, committed: CommittedOffset) -> StopError | None:
    if committed.floor < found.log_start:
        return _stop(
            found,
            f"offsets {committed.floor} to {found.log_start - 1} were never read and are gone: "
            f"retention moved the log's start to {found.log_start} ({PERHAPS_NO_MESSAGE})",
        )
    if committed.floor > found.log_end:
        return _stop(
            found,
            f"committed floor {committed.floor} lies beyond the log's end {found.log_end}: "
            "the source topic lost records",
        )
    return None


def _stop(found: PartitionTruth, what: str) -> StopError:
    return StopError(
        StopKind.CONTRACT_BROKEN,
        f"source partition {found.partition}: {what}",
        "find out what changed the topic or the group; nothing was read or written. `relay accept "
        "CONFIG` shows how to continue",
        ErrorPage.ACCEPT,
    )
