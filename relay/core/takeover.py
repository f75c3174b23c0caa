"""Take over a source partition: do the committed floor, the journal and the topic agree?

Receives what the brokers said (PartitionTruth), gives the partition's state or the reason
to stop. Where two recorded truths differ, going on would lose or double rows, so
it never chooses one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay import names
from relay.core.offsets import UNKNOWN_EPOCH, CommittedOffset, epoch_reaches
from relay.core.records import JournalRecord, PartitionTruth
from relay.core.state import Partition
from relay.errors import (
    NEW_APP,
    PERHAPS_NO_MESSAGE,
    ConfigError,
    ContractBroken,
    ErrorPage,
    RelayError,
    Unavailable,
)

OTHER_TOPIC = f"put the old name back into source.topic; to read another topic, {NEW_APP}"
"""The next step where source.topic names another topic than the app has read."""


def take_over(truth: PartitionTruth, now_ms: int) -> Partition | RelayError:
    """Return the partition as its last committed transaction left it, with empty buffers."""
    if stopped := _other_topic(truth) or _ahead(truth):
        return stopped
    if truth.committed is None:
        return _first_start(truth, now_ms)
    if truth.record is None:
        return _stop(
            truth,
            f"committed floor {truth.committed.floor} names journal offset "
            f"{truth.committed.journal_offset}, but the journal has no record of this partition "
            "there",
        )
    record = truth.record
    problem = (
        _disagreement(truth, truth.committed, record)
        or _rewinding(truth, record)
        or _out_of_bounds(truth, truth.committed, record)
    )
    if problem is not None:
        return problem
    return Partition(
        epoch=record.epoch,
        n=record.n,
        floor=record.floor,
        position=record.floor,
        source_topic_id=truth.source_topic_id,
        reference=record.floor if record.flush_point else record.reference,
        count=0 if record.flush_point else record.count,
        flushed_at_ms=now_ms,
        recorded_at_ms=record.appended_at_ms,
        marks={mark.table: mark.offset for mark in record.marks},
        source_partitions=truth.source_partitions,
    )


def came_later(partition: int, widths: Iterable[int]) -> bool:
    """Return whether a source partition without a committed floor is newer than its app.

    `widths`: how many partitions the source had, by the oldest record of each journal partition.
    All that were there at the app's first start are below each of them.
    """
    return any(width <= partition for width in widths)


def mark_to_prove(truth: PartitionTruth) -> int | None:
    """Return the mark that the log has to reach under the committed leader epoch; None: no mark.

    The consumer proves the floor itself, where it begins. A log that lost its end between floor and
    mark, and has grown again since, has new messages there that would be passed over.
    """
    record = truth.record
    if record is None or truth.committed is None or truth.leader_epoch == UNKNOWN_EPOCH:
        return None
    marks = [mark.offset for mark in record.marks]
    reached = epoch_reaches(record.floor, record.position, marks)
    return reached if record.floor < reached <= truth.log_end else None


def other_topic(read: tuple[str, str], now: tuple[str, str]) -> str:
    """Return that the app has read a topic of another name; empty: it has not, or nobody knows.

    `read`: name and id of the source topic, as a journal record has them; `now`: as the settings.
    """
    (name, topic_id), (present, present_id) = read, now
    if not name or not present or name == present or topic_id == present_id:
        return ""
    return f"the journal is of topic {name!r}, and source.topic is {present!r}"


def _other_topic(truth: PartitionTruth) -> ConfigError | None:
    """First of all: every other difference, and its cure, would be of the wrong topic."""
    record = truth.record or truth.last_record
    if record is None:
        return None
    read = record.source_topic, record.source_topic_id
    difference = other_topic(read, (truth.source_topic, truth.source_topic_id))
    if not difference:
        return None
    where = f"source partition {truth.partition}: {difference}"
    return ConfigError(where, OTHER_TOPIC, page=ErrorPage.START)


def _ahead(truth: PartitionTruth) -> ContractBroken | None:
    """A group in another cluster gets its offset after each commit: it may lag, but never lead."""
    head = truth.committed
    if truth.shown is None or (head is not None and truth.shown.n <= head.n):
        return None
    ends = "is empty" if head is None else f"ends with n={head.n}"
    return _stop(
        truth,
        f"the group in the source's cluster has floor {truth.shown.floor} (n={truth.shown.n}), "
        f"but the journal {ends}: the journal lost records, or [kafka] names another cluster than "
        "before",
    )


def _first_start(truth: PartitionTruth, now_ms: int) -> Partition | RelayError:
    if truth.later_records:
        if truth.last_record is not None and (anew := _made_anew(truth, truth.last_record)):
            return anew  # the broker deletes a group's offsets with the topic
        return _stop(
            truth,
            "the consumer group has no committed offset, but the journal holds records "
            f"({truth.later_records}): the offset expired or was deleted",
        )
    if truth.start_offset is None:
        return ConfigError(
            f"source partition {truth.partition} was never read, and source.start does not say "
            "where to begin",
            'set source.start = "earliest" (everything that the topic still holds) or "latest" '
            "(only new messages)",
        )
    return Partition(
        epoch=names.first_epoch(truth.journal_topic_id),
        n=0,
        floor=truth.start_offset,
        position=truth.start_offset,
        source_topic_id=truth.source_topic_id,
        reference=truth.start_offset,
        count=0,
        flushed_at_ms=now_ms,
        recorded_at_ms=now_ms,
        fresh=True,
        source_partitions=truth.source_partitions,
    )


def _disagreement(
    truth: PartitionTruth, committed: CommittedOffset, record: JournalRecord
) -> ContractBroken | None:
    if (record.n, record.floor) != (committed.n, committed.floor):
        return _stop(
            truth,
            f"committed floor {committed.floor} (n={committed.n}) and the journal record's floor "
            f"{record.floor} (n={record.n}) differ: somebody moved the group's offsets",
        )
    if truth.later_records:
        return _stop(
            truth,
            f"the group's offset names n={committed.n}, but the journal holds records after it "
            f"({truth.later_records}): somebody set the offset back",
        )
    return _made_anew(truth, record)


def _rewinding(truth: PartitionTruth, record: JournalRecord) -> Unavailable | None:
    """Blocks formed now could be loaded beside the rows that they replace.

    It passes by itself, so whatever supervises relays shall start them again. None waits for it as
    a member of the group: the rewind needs the partitions once more, to end.
    """
    if not record.rewinding:
        return None
    return Unavailable(
        f"source partition {truth.partition}: a rewind to offset {record.floor} was begun and is "
        "not finished: rows that it replaces may still be in ClickHouse",
        "start again when it is done, as a supervisor does by itself; one that was interrupted "
        "goes on with `relay rewind CONFIG --run`",
        page=ErrorPage.REWIND,
    )


def _made_anew(truth: PartitionTruth, record: JournalRecord) -> ContractBroken | None:
    if record.source_topic_id == truth.source_topic_id:
        return None
    return _stop(
        truth,
        f"topic id changed from {record.source_topic_id} to {truth.source_topic_id}: "
        "the source topic was deleted and created again",
    )


def _out_of_bounds(
    truth: PartitionTruth, committed: CommittedOffset, record: JournalRecord
) -> ContractBroken | None:
    """The floor and the marks are places in the log: whoever read to there saw it reach there."""
    if committed.floor > truth.log_end:
        return _stop(
            truth,
            f"committed floor {committed.floor} lies beyond the log's end {truth.log_end}: "
            "the source topic lost records",
        )
    last = max(record.marks, key=lambda mark: mark.offset, default=None)
    if last is not None and last.offset > truth.log_end:
        return _stop(
            truth,
            f"messages of {last.table!r} before offset {last.offset} are in blocks, but the log "
            f"ends at {truth.log_end}: the source topic lost records",
        )
    if last is not None and truth.lost_end is not None:
        lost = (
            f"the log lost its end and has grown again to {truth.log_end}: from offset "
            f"{truth.lost_end} on its messages are others than those that were read"
        )
        if truth.lost_end < 0:
            lost = "its leader, who does not know the committed epoch, cannot say if they are those"
        read = f"messages of {last.table!r} before offset {last.offset} are in blocks"
        return _stop(truth, f"{read}, but {lost}")
    if committed.floor < truth.log_start:
        return _stop(
            truth,
            f"offsets {committed.floor} to {truth.log_start - 1} were never read and are gone: "
            f"retention moved the log's start to {truth.log_start} ({PERHAPS_NO_MESSAGE})",
        )
    return None


def _stop(truth: PartitionTruth, what: str) -> ContractBroken:
    return ContractBroken(
        f"source partition {truth.partition}: {what}",
        "find out what changed the topic or the group; nothing was read or written. `relay accept "
        "CONFIG` shows how to continue",
        page=ErrorPage.ACCEPT,
    )
