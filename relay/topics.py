"""Topics of one app: created and grown by the relay, never by the broker's auto-creation.

Receives names, gives what the cluster has. Every block topic, the journal and the dead
letters have as many partitions as the source topic, because partition p of the source
goes to partition p of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewPartitions,
    NewTopic,
)

from relay import kafka_settings, names
from relay.errors import ConfigError, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Collection

    from relay.settings import Settings

REQUEST_SECONDS = 10.0

MAX_MESSAGE_BYTES = 16 * 2**20
"""Of topics the relay creates: chunks stay near block.chunk_bytes, but one row, like one
dead letter, is as large as its producer made it."""

_ABSENT = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What tells a topic from another of the same name, and how wide it is."""

    topic_id: str
    partitions: int


class Topics:
    """Looks at, creates and grows topics.

    Raises (every method):
        Unavailable: the brokers did not answer.
        Refused: they answered no.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = AdminClient(kafka_settings.admin(settings.kafka))
        self._ready: set[str] = set()
        self._partitions = 0

    def source(self) -> TopicFacts:
        """The source topic as it is now.

        Raises:
            Refused: it is not there.
        """
        topic = self._settings.source.topic
        facts = self.describe(topic)
        if facts is None:
            raise Refused(
                f"source topic {topic!r} is not there (kafka.bootstrap = "
                f"{self._settings.kafka.bootstrap})",
                "create it, or mend source.topic; the relay never creates its source",
            )
        self._partitions = facts.partitions
        return facts

    def ensure_own(self) -> TopicFacts:
        """Create journal, dead letters and schema registry where they are missing."""
        facts = self.source()
        app = self._settings.app
        for topic in (names.journal_topic(app), names.dead_topic(app)):
            self._ensure(topic, facts.partitions, {})
        self._ensure(names.schemas_topic(app), 1, {"cleanup.policy": "compact"})
        return facts

    def ensure_blocks(self, tables: Collection[str]) -> None:
        """Create or grow the block topics of these tables."""
        for table in tables:
            topic = names.blocks_topic(self._settings.app, table)
            if topic not in self._ready:
                self._ensure(topic, self._partitions, {})

    def describe(self, topic: str) -> TopicFacts | None:
        """Id and width of a topic; None where there is no such topic."""
        future = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=REQUEST_SECONDS
        )[topic]
        try:
            found = future.result()
        except KafkaException as error:
            if error.args[0].code() in _ABSENT:
                return None
            raise _mapped(f"describe topic {topic}", error) from error
        return TopicFacts(str(found.topic_id), len(found.partitions))

    def _ensure(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        facts = self.describe(topic)
        if facts is None:
            self._create(topic, partitions, config)
        elif facts.partitions < partitions:
            self._wait(
                f"grow topic {topic} to {partitions} partitions",
                self._admin.create_partitions(
                    [NewPartitions(topic, partitions)], request_timeout=REQUEST_SECONDS
                )[topic],
            )
        elif facts.partitions > partitions:
            raise ConfigError(
                f"topic {topic} has {facts.partitions} partitions, the source {partitions}",
                "use another app name: this one's topics belong to another source",
            )
        self._ready.add(topic)

    def _create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=self._settings.kafka.replication,
            config={"max.message.bytes": str(MAX_MESSAGE_BYTES), **config},
        )
        future = self._admin.create_topics([new], request_timeout=REQUEST_SECONDS)[topic]
        self._wait(f"create topic {topic}", future, fine=KafkaError.TOPIC_ALREADY_EXISTS)

    @staticmethod
    def _wait(what: str, future: Any, fine: int | None = None) -> None:
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != fine:
                raise _mapped(what, error) from error


def _mapped(what: str, error: KafkaException) -> Refused | Unavailable:
    cause = error.args[0]
    text = f"{what}: {cause.name()} ({cause.str()})"
    if cause.retriable() or cause.code() < 0:  # librdkafka's own codes: no broker answered
        return Unavailable(text, "check kafka.bootstrap and that the brokers are up")
    return Refused(text, "grant the right that is missing, then start again")
