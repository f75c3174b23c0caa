"""Read what was committed: the only thing a relay believes when it takes a partition over.

Receives source partitions, gives PartitionTruth for each: committed floor, the journal record that
its metadata names, whatever is visible behind it, topic id and bounds. It decides nothing;
relay.core.takeover does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from google.protobuf.message import DecodeError

from relay import names
from relay.blocks import journal
from relay.blocks.journal_record import no_record
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.core.offsets import CommittedOffset
from relay.core.records import JournalEnd, JournalRecord, PartitionTruth
from relay.core.takeover import OTHER_TOPIC, came_later, mark_to_prove, other_topic
from relay.errors import ConfigError, ContractBroken, ErrorPage, Unavailable
from relay.kafka.errors import REFUSED, answering
from relay.kafka.group_offsets import known_epoch, lost_ends
from relay.kafka.partition_ends import TopicEnds
from relay.kafka.partition_reader import OUT_OF_RANGE, PartitionReader
from relay.kafka.reconnect import Renewal
from relay.kafka.topics import READ, WRITE, Topics

T = TypeVar("T")

STRETCH = 100
"""Offsets read first; ten times as many if no record is among them."""


def decode_record(message: Message) -> JournalRecord:
    """Return the journal record that a message of the journal holds, with the message's time.

    Raises:
        ContractBroken: it holds none.
    """
    try:
        record = journal.decode(message.value() or b"")
    except DecodeError as error:
        place = message.topic() or "", message.partition() or 0, message.offset() or 0
        raise no_record(*place) from error
    return replace(record, appended_at_ms=message.timestamp()[1])


def _stretches(size: int) -> Iterator[int]:
    """Yield how many of so many offsets are read at a time: few, then ever more, at last all."""
    stretch = STRETCH
    while stretch < size:
        yield stretch
        stretch *= 10
    if size > 0:
        yield size


class TruthReader:
    """Reads committed truth; holds two readers of the journal, made when first needed."""

    def __init__(self, settings: Settings, topics: Topics, deadline_seconds: float) -> None:
        self._settings = settings
        self._topics = topics
        self._deadline_seconds = deadline_seconds
        self._journal = names.journal_topic(settings.app)
        brokers = [settings.kafka, *([settings.source_kafka] if settings.crosses else [])]
        clients = [kafka_clients.admin(cluster) for cluster in brokers]
        self._admins = [(AdminClient(client), Renewal(client)) for client in clients]
        admin, of_source = self._admins[0][0], self._admins[-1][0]
        self._of_journal = TopicEnds(admin, self._journal, deadline_seconds)
        self._of_source = TopicEnds(of_source, settings.source.topic, deadline_seconds)
        self._readers: dict[str, PartitionReader] = {}
        self._widths: tuple[int, ...] | None = None

    def read(
        self, partitions: Collection[int], group: Consumer, ends: Mapping[int, JournalEnd]
    ) -> tuple[PartitionTruth, ...]:
        """Return the truth of each partition.

        `group` is the member's own consumer; `ends` are the journal's, where predecessors were
        fenced by partition.

        Raises:
            Unavailable: no answer within the deadline.
            Refused: the brokers said no.
            ContractBroken: a committed offset carries foreign metadata.
        """
        self._widths = None
        return self._ask(lambda: self._with_lost_ends(self._read(partitions, group, ends)))

    def check_source(self) -> None:
        """Check that a source that is wider than the journal is the one that the journal is of.

        Topics that had grown with another one would stay too wide for theirs for ever.

        Raises:
            ConfigError: it is another.
            Unavailable, Refused: as the brokers answer.
        """
        self._ask(self._check_source)

    def _check_source(self) -> None:
        source = self._topics.source()
        journal = self._topics.describe(self._journal, (READ, WRITE))
        if journal is None or journal.partitions >= source.partitions:
            return
        now = self._settings.source.topic, source.topic_id
        for index, (low, end) in self._of_journal.bounds(range(journal.partitions)).items():
            last = self._last(index, low, end)
            if last is None:
                continue
            record = decode_record(last)
            if difference := other_topic((record.source_topic, record.source_topic_id), now):
                raise ConfigError(difference, OTHER_TOPIC, page=ErrorPage.START)

    def _ask(self, call: Callable[[], T]) -> T:
        for admin, renewal in self._admins:
            renewal.look(admin)
        source, group_id = self._settings.source.topic, names.group_id(self._settings.app)
        with answering(
            f"read what was committed ({self._journal}, {source}, group {group_id})",
            f"grant Read on topics {self._journal} and {source} and on group {group_id}",
        ):
            return call()

    def _with_lost_ends(self, truths: tuple[PartitionTruth, ...]) -> tuple[PartitionTruth, ...]:
        """Ask the leaders about marks, of those that have to be proved."""
        topic = self._settings.source.topic
        places = [
            TopicPartition(topic, truth.partition, mark, leader_epoch=truth.leader_epoch)
            for truth in truths
            if (mark := mark_to_prove(truth)) is not None
        ]
        lost = lost_ends(self._settings.source_kafka, places, self._deadline_seconds)
        return tuple(replace(truth, lost_end=lost.get(truth.partition)) for truth in truths)

    def _read(
        self, partitions: Collection[int], group: Consumer, _: Mapping[int, JournalEnd]
    ) -> tuple[PartitionTruth, ...]:
        source = self._topics.source()
        stable_ends = self._of_journal.stable(partitions)
        truths = []
        places = [TopicPartition(self._settings.source.topic, p) for p in sorted(partitions)]
        entries = group.committed(places, timeout=self._deadline_seconds)
        fresh = any(entry.offset == OFFSET_INVALID for entry in entries)
        journal_id = self._journal_id() if fresh else ""
        bounds = self._of_source.bounds(partitions)  # later: what is committed lies before the end
        for entry in entries:
            committed = self._committed(entry)
            index = entry.partition
            low, high = bounds[index]
            record, later, last = self._journal_of(index, committed, stable_ends[index])
            truths.append(
                PartitionTruth(
                    index,
                    committed,
                    record,
                    later_records=later,
                    source_topic_id=source.topic_id,
                    log_start=low,
                    log_end=high,
                    start_offset=None if committed else self._start(index, low, high),
                    last_record=last,
                    leader_epoch=known_epoch(entry),
                    journal_topic_id="" if committed else journal_id,
                    source_partitions=source.partitions,
                    source_topic=self._settings.source.topic,
                )
            )
        return tuple(truths)

    def renew(self) -> None:
        """Let go of readers that know a topic as it was before it grew."""
        self.close()
        self._readers = {}

    def close(self) -> None:
        """Close the readers."""
        for consumer in self._readers.values():
            consumer.close()

    def _journal_id(self) -> str:
        """The journal's topic id, which a recreated topic does not have."""
        facts = self._topics.describe(self._journal)
        if facts is None:
            raise Unavailable(
                f"topic {self._journal} does not exist any more: somebody deleted it",
                "find out who deleted it, then start again",
            )
        return facts.topic_id

    def _committed(self, entry: TopicPartition) -> CommittedOffset | None:
        if entry.error is not None:
            raise Unavailable(
                f"committed offset of partition {entry.partition}: {entry.error}",
                "check the brokers' group coordinators",
            )
        if entry.offset == OFFSET_INVALID:
            return None
        committed = CommittedOffset.parse(entry.offset, entry.metadata)
        if committed is None:
            raise ContractBroken(
                f"partition {entry.partition}: committed offset {entry.offset} of group "
                f"{names.group_id(self._settings.app)} carries metadata {entry.metadata!r}, "
                "which no relay wrote: a tool moved the group's offsets",
                "`relay accept CONFIG` shows how to continue",
                page=ErrorPage.ACCEPT,
            )
        return committed

    def _start(self, index: int, low: int, high: int) -> int | None:
        """Where a partition that nobody read begins; one that is new, with its first message.

        What was written between its making and its discovery came after the app's start.
        """
        chosen = {"earliest": low, "latest": high, None: None}[self._settings.source.start]
        if chosen == low:
            return low
        if self._widths is None:
            self._widths = tuple(self._recorded_widths())
        return low if came_later(index, self._widths) else chosen

    def _recorded_widths(self) -> Iterator[int]:
        """How many partitions the source had, by the oldest record of each of the journal's.

        0 where that is gone, or was written by a version that did not say so: the app is known.
        """
        facts = self._topics.describe(self._journal)
        bounds = self._of_journal.bounds(range(0 if facts is None else facts.partitions))
        for index, (low, end) in bounds.items():
            if low > 0:
                yield 0
            elif (record := self._oldest(index, end)) is not None:
                yield record.source_partitions

    def _oldest(self, index: int, end: int) -> JournalRecord | None:
        for stretch in _stretches(end):
            if visible := self._from("read_committed", index, 0, stretch):
                return decode_record(visible[0])
        return None

    def _last(self, index: int, beginning: int, end: int) -> Message | None:
        """The last visible record of a journal partition in [beginning, end)."""
        for stretch in _stretches(end - beginning):
            if visible := self._from("read_committed", index, end - stretch, end):
                return visible[-1]
        return None

    def _journal_of(
        self, index: int, committed: CommittedOffset | None, stable_end: int
    ) -> tuple[JournalRecord | None, int, JournalRecord | None]:
        """The record that the committed offset names; how many are visible behind it; the last."""
        if committed is None:
            self._check_beginning(index)
            return None, *self._visible_from(index, 0, stable_end)
        record = self._at(index, committed.journal_offset)
        # The record's own transaction marker is the next offset; anything more wants a look.
        after = committed.journal_offset + 1
        if stable_end <= after + 1:
            return record, 0, None
        return record, *self._visible_from(index, after, stable_end)

    def _check_beginning(self, index: int) -> None:
        """Deleted records count as well: a partition that was read before has no first start."""
        low, _ = self._bounds(self._reader("read_committed"), index)
        if low > 0:
            raise ContractBroken(
                f"source partition {index}: group {names.group_id(self._settings.app)} has no "
                f"committed offset, and the first {low} offsets of {self._journal}[{index}] were "
                "deleted, so nothing says where to continue",
                "`relay accept CONFIG` shows how to continue",
                page=ErrorPage.ACCEPT,
            )

    def _at(self, index: int, offset: int) -> JournalRecord | None:
        """The record at exactly `offset`.

        Read uncommitted: the group's offset proves that it is committed, while a paused
        predecessor's open transaction could hide it from a read_committed reader.
        """
        try:
            records = self._from("read_uncommitted", index, offset, offset + 1)
        except KafkaException as error:
            if error.args[0].code() in OUT_OF_RANGE:
                return None
            raise
        for message in records:
            if message.offset() == offset:
                record = decode_record(message)
                return record if record.partition == index else None
        return None

    def _bounds(self, reader: PartitionReader, index: int) -> tuple[int, int]:
        """Return where a journal partition begins and ends for this reader, as its leader says."""
        place = TopicPartition(self._journal, index)
        low, high = reader.get_watermark_offsets(place, timeout=self._deadline_seconds)
        return int(low), int(high)

    def _visible_from(self, index: int, offset: int, end: int) -> tuple[int, JournalRecord | None]:
        if end <= offset:
            return 0, None
        visible = self._from("read_committed", index, offset, end)
        return len(visible), decode_record(visible[-1]) if visible else None

    def _reader(self, isolation: str) -> PartitionReader:
        if isolation not in self._readers:
            config = {**kafka_clients.reader(self._settings.kafka), "isolation.level": isolation}
            self._readers[isolation] = PartitionReader(config)
        return self._readers[isolation]

    def _from(self, isolation: str, index: int, offset: int, end: int) -> list[Message]:
        """Records of a journal partition in [offset, end); markers and aborted ones pass.

        Raises:
            KafkaException: with a code of OUT_OF_RANGE if the first of them were deleted, or if the
                partition ended before them for so long that it must have been made anew.
        """
        reader = self._reader(isolation)
        place = TopicPartition(self._journal, index, offset)
        reader.assign([place])
        deadline = time.monotonic() + self._deadline_seconds
        records: list[Message] = []
        position = offset
        behind: KafkaError | None = None
        while position < end:
            if time.monotonic() > deadline:
                if behind is None and self._bounds(reader, index)[1] <= position:
                    # To read at the end of a partition is no error: offset 0 of an empty one.
                    behind = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
                if behind is not None:
                    raise KafkaException(behind)
                raise Unavailable(
                    f"{self._journal}[{index}]: the brokers did not send offset {position} within "
                    f"{self._deadline_seconds:g} s",
                    "check the brokers that lead the journal",
                )
            message = reader.poll(0.05)
            error = None if message is None else message.error()
            if error is not None and error.code() in OUT_OF_RANGE:
                # A leader that is behind says so too; the client reads on only if told to.
                if self._bounds(reader, index)[0] > position:
                    raise KafkaException(error)
                behind = error
                reader.assign([TopicPartition(self._journal, index, position)])
            if error is not None and error.code() in REFUSED:
                raise KafkaException(error)
            if message is not None and error is None:
                offset, behind = message.offset() or 0, None
                position = offset + 1
                if offset < end:
                    records.append(message)
            # The client's own position also passes markers and aborted records.
            position = max(position, reader.position([place])[0].offset)
        reader.unassign()
        return records
