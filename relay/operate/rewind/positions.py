"""Reads where the source partitions stand: journal, the group's offsets, the source log.

Waits until journal and offsets, which are read one after the other, agree, or have had the time to.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from confluent_kafka import KafkaException, TopicPartition

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.core.offsets import UNKNOWN_EPOCH, epoch_reaches
from relay.errors import ConfigError, Unavailable
from relay.kafka.errors import answered
from relay.kafka.group_offsets import lost_ends
from relay.kafka.partition_reader import PartitionReader
from relay.kafka.topics import READ, Topics
from relay.operate.rewind.plan import BEYOND_ALL, PartitionPositions, at_head
from relay.operate.rewind.records import NextLetter
from relay.operate.rewind.seals import Seals
from relay.operate.verify.read.journal import Reader
from relay.operate.verify.read.topic import TopicReader

SECONDS = 30.0
_BUSY_SECONDS = 10.0
"""Relays commit while one reads; between two of their commits all agrees."""
_PAUSE_SECONDS = 0.1


class PositionsReader:
    """One look after the other; what was read of the journal is not read again.

    Raises (every method):
        Unavailable: the brokers did not answer.
        ConfigError: the app has no journal.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._source = TopicReader(settings)
        self._topics = Topics(settings)
        self._reader: Reader | None = None
        self._seals: dict[int, Seals] = {}

    def look(self, beyond: Mapping[int, int]) -> dict[int, PartitionPositions]:
        """Return all source partitions; seals of those in `beyond` are kept beyond its offset."""
        kept = {p: seals.beyond for p, seals in self._seals.items()}
        if self._reader is None or any(beyond[p] < kept.get(p, BEYOND_ALL) for p in beyond):
            self._begin({**kept, **{p: min(o, kept.get(p, o)) for p, o in beyond.items()}})
        assert self._reader is not None
        # An open transaction of a relay that died hides journal and offsets until it is ended.
        patience = 2 * self._settings.relay.transaction_timeout_seconds
        began = time.monotonic()
        while True:
            named = self._reader.committed()
            for partition, offset, commit in self._reader.records():
                self._seals.setdefault(partition, Seals(BEYOND_ALL)).add(offset, commit)
            places = self._places(named)
            hidden = (places.keys() - named.keys()) | self._unseen(places)
            behind = [late for place in places.values() if (late := _behind(place)) is not None]
            waited = time.monotonic() - began
            if waited > patience and hidden:
                raise Unavailable(
                    "an open transaction hides the committed offsets of partitions "
                    f"{sorted(hidden)}",
                    "wait until the transaction times out, then run this command again",
                )
            limit = patience if hidden or any(behind) else _BUSY_SECONDS
            if not (hidden or behind) or waited > limit:
                return self._with_lost_ends(places)
            time.sleep(_PAUSE_SECONDS)  # until they agree

    def _with_lost_ends(
        self, places: Mapping[int, PartitionPositions]
    ) -> dict[int, PartitionPositions]:
        """Ask the leaders whether the logs still reach what was read of them."""
        assert self._reader is not None
        topic, asked = self._settings.source.topic, []
        for p, place in places.items():
            epoch, head = self._reader.epochs.get(p, UNKNOWN_EPOCH), place.seals.head
            if epoch == UNKNOWN_EPOCH or head is None or not at_head(place):
                continue
            marks = [mark.offset for mark in head.marks]
            reached = epoch_reaches(head.floor, head.position, marks)
            asked.append(TopicPartition(topic, p, reached, leader_epoch=epoch))
        try:
            found = lost_ends(self._settings.source_kafka, asked, SECONDS)
        except KafkaException as error:
            grant = f"grant Read on topic {topic}"
            raise answered(f"read {topic}", error.args[0], grant) from error
        return {p: replace(place, lost_end=found.get(p)) for p, place in places.items()}

    def _unseen(self, places: Mapping[int, PartitionPositions]) -> set[int]:
        """Partitions whose journal may go on behind an open transaction.

        Only the group's offset proves that what is visible is all; one that a tool wrote does not.
        """
        assert self._reader is not None
        doubtful = {p for p, place in places.items() if not at_head(place)}
        if not doubtful:
            return set()
        stable, ends = self._reader.every_end()
        journal = names.journal_topic(self._settings.app)
        return {p for p in doubtful if stable.get((journal, p), 0) < ends.get((journal, p), 0)}

    def _places(
        self, named: Mapping[int, tuple[int, str | None] | None]
    ) -> dict[int, PartitionPositions]:
        assert self._reader is not None
        facts, topic = self._topics.source(), self._settings.source.topic
        places = {}
        for p, seals in sorted(self._seals.items()):
            if p < facts.partitions:
                log = self._source.bounds(topic, p)
                places[p] = PartitionPositions(
                    p,
                    named.get(p),
                    seals,
                    facts.topic_id,
                    *log,
                    topic=topic,
                    journal_start=self._reader.starts[p],
                )
        return places

    def next_letters(self, partitions: Collection[int]) -> dict[int, NextLetter]:
        """Return the place that the next dead letter gets, by source partition; after a look.

        Letters of open transactions lie before it: they are of relays that were fenced.

        Raises:
            Refused: the user may not read the topic, which then looks as if it did not exist.
        """
        assert self._reader is not None
        topic = names.dead_topic(self._settings.app)
        facts = self._topics.describe(topic, (READ,))
        topic_id = "" if facts is None else facts.topic_id
        _, ends = self._reader.every_end()
        return {p: NextLetter(topic_id, ends.get((topic, p), 0)) for p in partitions}

    def offsets_at(self, when_ms: int) -> dict[int, int]:
        """Return the first offset written then or later, by partition that has one."""
        topic, facts = self._settings.source.topic, self._topics.source()
        asked = [TopicPartition(topic, p, when_ms) for p in range(facts.partitions)]
        consumer = PartitionReader(kafka_clients.reader(self._settings.kafka))
        try:
            found = consumer.offsets_for_times(asked, SECONDS)
        except KafkaException as error:
            raise Unavailable(f"{topic}: {error.args[0]}", "check the brokers") from error
        finally:
            consumer.close()
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def partitions(self) -> int:
        """Return how many partitions the source topic has."""
        return self._topics.source().partitions

    def oldest(self) -> dict[int, int]:
        """Return the first offset that can be gone back to, by partition."""
        places = self.look({})
        return {p: max(place.log_start, place.seals.base) for p, place in places.items()}

    def close(self) -> None:
        """Let go of the clients."""
        self._source.close()
        if self._reader is not None:
            self._reader.close()

    def _begin(self, beyond: Mapping[int, int]) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = Reader(self._settings)
        self._reader.grow()
        # Nothing is known of partitions that the journal does not have yet.
        partitions = min(self._topics.source().partitions, len(self._reader.starts))
        self._seals = {p: Seals(beyond.get(p, BEYOND_ALL)) for p in range(partitions)}
        if unknown := sorted(beyond.keys() - self._seals.keys()):
            raise ConfigError(
                f"there is no source partition {unknown[0]}", "choose another --partition"
            )


def _behind(place: PartitionPositions) -> bool | None:
    """None: journal and offset agree; True: the journal does not show all; False: the offset."""
    committed, head = place.committed, place.seals.head
    if committed is None or head is None or committed.journal_offset == place.seals.offset:
        return None
    return committed.journal_offset > place.seals.offset
