"""Reads an app's dead letters, and the marks of those that were replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaException, Message, TopicPartition

from relay import names
from relay.blocks import dead_letter as letters
from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import ConfigError, ContractBroken, ErrorPage
from relay.kafka import librdkafka
from relay.kafka.errors import answered
from relay.kafka.partition_reader import PartitionReader, records
from relay.kafka.topics import READ, Topics
from relay.operate.dead.replay_plan import ReplayMark, mark_key

SECONDS = 30.0
"""For one request, and for the next record to come."""
_DESPITE = (
    "find out which messages were replayed: with --despite-replays you say that these may become "
    "rows twice; set cleanup.policy of the topic to compact, so that it keeps its marks"
)


class DeadReader:
    """Dead letters and marks of one app, as a read_committed reader sees them now.

    Args:
        incomplete: whether to give the marks that are left where some were deleted.

    Attributes:
        topic_id: of the dead letter topic; part of the marks' keys.
        deleted_marks: what shows, as of the last look at the marks, that some were deleted; empty:
            nothing does.

    Raises (every method):
        Unavailable: the brokers did not answer.
        Refused: they answered no.
        ConfigError: the app has no dead letter topic.
    """

    def __init__(self, settings: Settings, *, incomplete: bool = False) -> None:
        self._incomplete = incomplete
        self.deleted_marks = ""
        self._kafka = settings.kafka
        self._topic = names.dead_topic(settings.app)
        self._marks_topic = names.replayed_topic(settings.app)
        self._topics = Topics(settings)
        topic = self._topics.describe(self._topic, (READ,))
        if topic is None:
            raise ConfigError(
                f"there is no topic {self._topic}",
                "check `app` in the configuration; the relay creates the topic when it first runs",
            )
        self.topic_id, self._partitions = topic.topic_id, topic.partitions
        self._consumer = PartitionReader(kafka_clients.reader(settings.kafka))

    def letters(self, places: Iterable[RecordPlace] = ()) -> Iterator[DeadLetter]:
        """Yield those at `places`, or all that are there now: by partition, in order.

        Raises:
            ConfigError: nothing stands at one of `places`.
            ContractBroken: a record is no dead letter of a relay.
        """
        wanted = sorted(set(places))
        if not wanted:
            for partition in range(self._partitions):
                place = TopicPartition(self._topic, partition, 0)
                yield from map(self._letter, self._records(self._consumer, place))
        for at in wanted:
            yield self._at(at)

    def marks(self) -> dict[RecordPlace, ReplayMark]:
        """Return marks by the dead letter's place; of this topic, not of a former one.

        Raises:
            ContractBroken: a record is no mark, or some were deleted.
        """
        return {mark.dead: mark for mark, is_of_this in self._marks() if is_of_this}

    def replays(self) -> list[ReplayMark]:
        """Return all marks, also of letters in a former topic of this name.

        What was sent again is in the source, whatever became of the letter. Letters of two topics
        may have the same place.

        Raises:
            ContractBroken: a record is no mark, or some were deleted.
        """
        return [mark for mark, _ in self._marks()]

    def has_marks_topic(self) -> bool:
        """Return whether the topic of marks is there; the first replay makes it."""
        return self._topics.describe(self._marks_topic, (READ,)) is not None

    def _marks(self) -> Iterator[tuple[ReplayMark, bool]]:
        """Yield each with whether its letter is in this topic, not in a former one of its name."""
        if not self.has_marks_topic():
            return
        place = TopicPartition(self._marks_topic, 0, 0)
        # A client of its own: marks are read anew while letters are being read.
        with contextlib.closing(PartitionReader(kafka_clients.reader(self._kafka))) as consumer:
            for message in self._records(consumer, place):
                try:
                    mark = ReplayMark.decode(message.value() or b"")
                except ValueError as problem:
                    raise self._foreign(message, problem) from problem
                yield mark, message.key() == mark_key(self.topic_id, mark.dead)
        self.deleted_marks = ""
        if place.offset > 0:  # compaction alone moves no topic's beginning
            self.deleted_marks = (
                f"{self._marks_topic} begins at offset {place.offset}, but it must begin at 0: "
                "marks of replays were deleted, so dead letters that were replayed look as if "
                "they were not"
            )
            if not self._incomplete:
                raise ContractBroken(self.deleted_marks, _DESPITE, page=ErrorPage.GAP)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _at(self, place: RecordPlace) -> DeadLetter:
        if place.partition < self._partitions:
            start = TopicPartition(self._topic, place.partition, place.offset)
            for message in self._records(self._consumer, start, place.offset + 1):
                if message.offset() == place.offset:
                    return self._letter(message)
        raise ConfigError(
            f"there is no dead letter {place} in {self._topic}",
            "`relay dead ls` lists the dead letters; retention may have deleted this one",
        )

    def _letter(self, message: Message) -> DeadLetter:
        place = RecordPlace(message.partition() or 0, message.offset() or 0)
        headers = librdkafka.headers(message)
        try:
            return letters.parse(place, message.timestamp()[1], message.value(), headers)
        except ValueError as problem:
            raise self._foreign(message, problem) from problem

    @staticmethod
    def _foreign(message: Message, problem: ValueError) -> ContractBroken:
        return ContractBroken(
            f"{message.topic()}[{message.partition()}], offset {message.offset()}: {problem}",
            "find out who writes to this topic; only relays of this app may",
            page=ErrorPage.LETTER,
        )

    def _records(
        self, consumer: PartitionReader, place: TopicPartition, end: int | None = None
    ) -> Iterator[Message]:
        """Visible records from `place` on to `end`, or to where the partition ends now.

        `place` itself is moved to where the partition begins, if that is later.

        A read_committed consumer is told the last stable offset as the end, so that an open
        transaction is neither shown nor waited for.
        """
        try:
            low, stable = consumer.get_watermark_offsets(place, SECONDS)
            end = stable if end is None else min(end, stable)
            place.offset = max(low, place.offset)
            yield from records(consumer, place, end, SECONDS)
        except KafkaException as error:
            grant = f"grant Read on topic {place.topic} to the user of kafka.client"
            raise answered(f"read {place.topic}", error.args[0], grant) from error
