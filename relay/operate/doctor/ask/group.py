"""Asks where the relay's group stands, and whether this user may do what the relay does.

The trials: a topic's creation, only validated, and init_transactions under an id of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    NewTopic,
    OffsetSpec,
)

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.config.topic_settings import BROKERS_DEFAULT, copies
from relay.core.offsets import CommittedOffset
from relay.errors import Unavailable
from relay.kafka.admin import MAX_MESSAGE_BYTES
from relay.kafka.partition_ends import listed_offset
from relay.operate.doctor.ask.client import SECONDS, Asker
from relay.operate.doctor.facts import GroupFloor, Topic, Trial

NO_MEMBER = "#doctor"
"""In the place of a member's name, of which it can be none: no relay is fenced."""
NO_TABLE = "doctor.trial"
_STARTING = "ask again: the coordinator may be starting"
"""Brokers that have just been started make the topic of all groups' offsets first; they answer
other questions by then."""


class GroupQuestions:
    """Questions about the group and as the relay, through one client for each cluster.

    Raises (every method):
        Unavailable: no broker answered.
        Refused: the connection was refused, for its credentials.
    """

    def __init__(self, settings: Settings, asker: Asker, of_source: Asker) -> None:
        self._settings = settings
        self._asker, self._of_source = asker, of_source

    def group_granted(self) -> frozenset[str] | None:
        """Return operations on the group; None where the brokers do not say."""
        group = names.group_id(self._settings.app)
        try:
            described = self._of_source.answer(
                f"describe group {group}",
                lambda: self._of_source.admin.describe_consumer_groups(
                    [group], include_authorized_operations=True, request_timeout=SECONDS
                )[group],
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return frozenset()
            self._of_source.cannot(f"rights on group {group}", error.args[0])
            return None
        except Unavailable as error:
            self._of_source.cannot(f"rights on group {group}", error.message, _STARTING)
            return None
        return operations(described)

    def creation(self, topics: Mapping[str, Topic]) -> Trial:
        """Return whether a block topic would be made beside these topics."""
        source = topics.get(self._settings.source.topic)
        wanted = copies(self._settings.kafka.replication, source.replicas if source else 0)
        topic = names.blocks_topic(self._settings.app, NO_TABLE)
        new = NewTopic(
            topic,
            num_partitions=1,
            replication_factor=wanted or BROKERS_DEFAULT,
            config={"max.message.bytes": str(MAX_MESSAGE_BYTES)},
        )
        try:
            self._asker.answer(
                f"validate the creation of {topic}",
                lambda: self._asker.admin.create_topics(
                    [new], validate_only=True, request_timeout=SECONDS
                )[topic],
            )
        except KafkaException as error:
            return Trial(error.args[0].name(), error.args[0].str())
        return Trial()

    def transactions(self) -> Trial | None:
        """Return whether the brokers accept a transactional producer; None: no answer."""
        ids = names.transactional_ids(self._settings.app, by_partition=self._settings.crosses)
        name = f"{ids}{NO_MEMBER}"
        producer = Producer(
            {
                **kafka_clients.producer(self._settings),
                **self._asker.quiet,
                "transactional.id": name,
                "error_cb": lambda _: None,  # the call below says it
            }
        )
        try:
            producer.init_transactions(SECONDS)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() >= 0 and not cause.retriable():
                return Trial(cause.name(), cause.str())
            self._asker.cannot(f"init_transactions of {name}", cause)
            return None
        return Trial()

    def heads(self, topics: Mapping[str, Topic], absent: Collection[str]) -> dict[int, GroupFloor]:
        """Return source partitions that have a committed floor.

        Args:
            topics: that exist.
            absent: that the brokers say do not exist; of all others they did not say it.
        """
        group, source = names.group_id(self._settings.app), self._settings.source.topic
        record = names.journal_topic(self._settings.app)
        hidden = any(topics[name].partitions == 0 for name in (source, record) if name in topics)
        if source not in topics or hidden or (record not in topics and record not in absent):
            return {}  # told as a missing topic or right, or as not asked
        places = [TopicPartition(source, p) for p in range(topics[source].partitions)]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        try:
            found = self._of_source.answer(
                f"committed offsets of {group}",
                lambda: self._of_source.admin.list_consumer_group_offsets(
                    asked, require_stable=True, request_timeout=SECONDS
                )[group],
            )
            committed = found.topic_partitions
            read = [p for p in committed if p.offset != OFFSET_INVALID and p.error is None]
            width = topics[record].partitions if record in topics else 0
            wanted = [(source, p.partition) for p in read]
            wanted += [(record, p.partition) for p in read if p.partition < width]
            starts = {place: self._start(*place) for place in wanted}
        except KafkaException as error:
            self._of_source.cannot(f"read the committed offsets of group {group}", error.args[0])
            return {}
        except Unavailable as error:
            self._of_source.cannot(f"where group {group} stands", error.message, _STARTING)
            return {}
        heads = {}
        for place in read:
            named = CommittedOffset.parse(place.offset, place.metadata)
            heads[place.partition] = GroupFloor(
                floor=place.offset,
                metadata=place.metadata or "",
                journal_offset=None if named is None else named.journal_offset,
                source_start=starts[source, place.partition],
                journal_start=starts.get((record, place.partition)),
            )
        return heads

    def _start(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # untyped upstream
        asker = self._of_source if topic == self._settings.source.topic else self._asker
        found = asker.answer(
            f"oldest offset of {topic}[{partition}]",
            lambda: asker.admin.list_offsets({place: earliest}, request_timeout=SECONDS)[place],
        )
        return listed_offset(place, found)


def operations(described: Any) -> frozenset[str] | None:
    """Return names of operations; brokers without an authorizer may say nothing."""
    granted = described.authorized_operations
    return frozenset(operation.name for operation in granted) if granted else None
