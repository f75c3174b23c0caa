"""Reads the brokers' clock from a record that they stamp, in a topic created for it.

Makes the topic `<app>.doctor`, writes to it and deletes it; nothing else of the doctor writes.
"""

from __future__ import annotations

import time

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in __all__

from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.config.topic_settings import BROKERS_DEFAULT, BY_BROKERS_CLOCK
from relay.operate.doctor.ask.client import SECONDS, Asker
from relay.operate.doctor.facts import ClockOffset, Unasked

WHAT = "the brokers' clock"


def topic_of(app: str) -> str:
    """Return the name of the topic that the probe creates and deletes."""
    return f"{app}.doctor"


def unprobed(app: str) -> Unasked:
    """Return the note for an examination without --probe."""
    return Unasked(
        WHAT,
        "no request of Kafka's protocol returns it",
        f"relay doctor CONFIG --probe, which makes topic {topic_of(app)}, writes to it and "
        "deletes it",
    )


def broker_clock(settings: Settings, asker: Asker) -> ClockOffset | None:
    """Return the clock of the broker that leads the topic, beside ours.

    None where that could not be asked, which the asker keeps with the reason.
    """
    topic = topic_of(settings.app)
    by_hand = f"kafka-topics --bootstrap-server {settings.kafka.bootstrap} --delete --topic {topic}"
    new = NewTopic(
        topic,
        num_partitions=1,
        replication_factor=settings.kafka.replication or BROKERS_DEFAULT,
        config=BY_BROKERS_CLOCK,
    )
    try:
        asker.answer(
            f"create topic {topic}",
            lambda: asker.admin.create_topics([new], request_timeout=SECONDS)[topic],
        )
    except KafkaException as error:
        left = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS  # perhaps by a probe
        asker.cannot(WHAT, f"create topic {topic}: {error.args[0]}", by_hand if left else "")
        return None
    clock = _stamped(settings, asker, topic)
    try:
        asker.answer(
            f"delete topic {topic}",
            lambda: asker.admin.delete_topics([topic], request_timeout=SECONDS)[topic],
        )
    except KafkaException as error:
        asker.cannot(f"deleting topic {topic}", error.args[0], by_hand)
    return clock


def _stamped(settings: Settings, asker: Asker, topic: str) -> ClockOffset | None:
    """Two records: the first waits for metadata and leader, the second times the clock."""
    plain = kafka_clients.plain_producer(settings.kafka)
    producer = Producer({**plain, **asker.quiet, "linger.ms": 0})
    told: list[tuple[KafkaError | None, tuple[int, int]]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        told.append((error, message.timestamp()))

    try:
        for _ in range(2):
            before = time.time()
            producer.produce(topic, b"", partition=0, on_delivery=delivered)
            producer.flush(SECONDS)
            after = time.time()
    except KafkaException as fatal:  # the producer's own: it may write to no topic at all
        asker.cannot(WHAT, f"write to {topic}: {fatal.args[0]}")
        return None
    finally:
        producer.purge()
    error, (kind, stamp_ms) = told[-1] if len(told) == 2 else (None, (0, 0))
    if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
        return ClockOffset(stamp_ms / 1000 - (before + after) / 2, (after - before) / 2)
    asker.cannot(
        WHAT, f"write to {topic}: {error or 'no record was acknowledged with a time of theirs'}"
    )
    return None
