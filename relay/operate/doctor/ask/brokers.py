"""Asks the brokers for what the doctor judges, but for the clock."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # not in __all__

from relay import names
from relay.config.settings import Settings
from relay.kafka.admin import ABSENT
from relay.kafka.errors import answered
from relay.kafka.partition_ends import TopicEnds
from relay.operate.doctor.ask.client import SECONDS, Asker
from relay.operate.doctor.ask.group import GroupQuestions, operations
from relay.operate.doctor.facts import KafkaFacts, Topic, Unasked, Values
from relay.operate.doctor.fixes import grant


class BrokerQuestions:
    """Questions to the brokers, through one client for each cluster.

    Args:
        settings: of the app.
        asker: asks the brokers of all that the app writes.
        of_source: asks those of source and group; None: they are the same.

    Raises (every method):
        Unavailable: no broker answered.
        Refused: the connection was refused, for its credentials.
    """

    def __init__(self, settings: Settings, asker: Asker, of_source: Asker | None = None) -> None:
        self._settings = settings
        self._asker, self._of_source = asker, of_source or asker
        self._absent: set[str] = set()

    def look(self) -> KafkaFacts:
        """Return all facts but the clock."""
        app, asker, of_source = self._settings.app, self._asker, self._of_source
        group = GroupQuestions(self._settings, asker, of_source)
        brokers = self._broker_settings(asker)
        elsewhere = {} if of_source is asker else self._broker_settings(of_source)
        if not asker.apis:
            asker.cannot("which requests the brokers take", "librdkafka's log does not say")
        topics = self._topics()
        numbers = self._end(names.schemas_topic(app), topics)
        return KafkaFacts(
            brokers=brokers,
            topics=topics,
            apis=asker.apis or None,
            group_granted=group.group_granted(),
            transactions=group.transactions(),
            creation=group.creation(topics),
            heads=group.heads(topics, self._absent),
            journal=self._bounds(names.journal_topic(app), topics),
            numbers=numbers,
            absent=frozenset(self._absent),
            written=self._written(topics) if numbers == 0 else (),
            unasked=self.unasked(),
            source_brokers=elsewhere,
        )

    def unasked(self) -> tuple[Unasked, ...]:
        """Return what got no answer so far."""
        askers = dict.fromkeys((self._asker, self._of_source))
        return tuple(question for asker in askers for question in asker.unasked)

    def _broker_settings(self, asker: Asker) -> dict[int, Values | None]:
        cluster = asker.answer(
            "describe the cluster", lambda: asker.admin.describe_cluster(request_timeout=SECONDS)
        )
        found: dict[int, Values | None] = {}
        where = self._settings.kafka if asker is self._asker else self._settings.source_kafka
        mend = grant(where, "DescribeConfigs", "cluster", "")
        for broker in (node.id for node in cluster.nodes):
            found[broker] = self._settings_of(asker, "broker", str(broker), mend)
        return found

    def _settings_of(self, asker: Asker, kind: str, name: str, mend: str) -> Values | None:
        asked = ConfigResource(kind, name)
        try:
            entries = asker.answer(
                f"describe the settings of {kind} {name}",
                lambda: asker.admin.describe_configs([asked], request_timeout=SECONDS)[asked],
            )
        except KafkaException as error:
            asker.cannot(f"settings of {kind} {name}", error.args[0], mend)
            return None
        return {key: str(entry.value) for key, entry in entries.items() if entry.value is not None}

    def _topics(self) -> dict[str, Topic]:
        """The source and the app's own, as far as they are there; the source first."""
        app, source = self._settings.app, self._settings.source.topic
        # Asked for by name: of a topic that this user may not see, the brokers say just that.
        always = [names.journal_topic(app), names.dead_topic(app), names.schemas_topic(app)]
        try:
            listed = self._asker.admin.list_topics(timeout=SECONDS).topics
        except KafkaException as error:
            raise answered("list the topics", error.args[0], "") from error
        blocks, replayed = names.blocks_prefix(app), names.replayed_topic(app)
        listed_too = sorted(name for name in listed if name == replayed or name.startswith(blocks))
        found = {name: self._topic(name) for name in (source, *always, *listed_too)}
        return {name: topic for name, topic in found.items() if topic is not None}

    def _end(self, name: str, topics: Mapping[str, Topic]) -> int | None:
        """Where the last of a topic's partitions ends; None: nobody says."""
        return max((end for _, end in self._bounds(name, topics).values()), default=None)

    def _written(self, topics: Mapping[str, Topic]) -> tuple[str, ...]:
        blocks = names.blocks_prefix(self._settings.app)
        return tuple(t for t in topics if t.startswith(blocks) and self._end(t, topics))

    def _bounds(self, name: str, topics: Mapping[str, Topic]) -> dict[int, tuple[int, int]]:
        """First offsets and ends, as far as they were asked."""
        if name not in topics or not topics[name].partitions:
            return {}
        try:
            ends = TopicEnds(self._asker.admin, name, SECONDS)
            return ends.bounds(range(topics[name].partitions))
        except KafkaException as error:
            self._asker.cannot(f"where {name} begins and ends", error.args[0])
            return {}

    def _topic(self, name: str) -> Topic | None:
        asker = self._of_source if name == self._settings.source.topic else self._asker
        try:
            described = asker.answer(
                f"describe topic {name}",
                lambda: asker.admin.describe_topics(
                    TopicCollection([name]),
                    request_timeout=SECONDS,
                    include_authorized_operations=True,
                )[name],
            )
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return Topic(0, 0, 0, None, frozenset())
            if code in ABSENT:
                self._absent.add(name)
            else:
                asker.cannot(f"topic {name}", error.args[0])
            return None
        mend = grant(self._settings.kafka_of(name), "DescribeConfigs", "topic", name)
        return Topic(
            partitions=len(described.partitions),
            replicas=min(len(partition.replicas) for partition in described.partitions),
            in_sync=min(len(partition.isr) for partition in described.partitions),
            settings=self._settings_of(asker, "topic", name, mend),
            granted=operations(described),
            topic_id=str(described.topic_id),
        )
