"""By which clock records are stamped: retention and the brokers' limits go by it."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from relay import names
from relay.dev.jars import KAFKA_VERSION
from tests.broker.test_topic_settings import carried, settings, topics
from tests.broker.topic_changes import set_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.pipeline import Pipeline

HOUR_MS = 3_600_000
TIMES = (-240 * HOUR_MS, 0, 2 * HOUR_MS)
"""Of records beside now: retention would have deleted the first, Kafka 4 refuses the last."""
BEFORE, AFTER = (
    ("message.timestamp.difference.max.ms",) * 2
    if KAFKA_VERSION < "3.6"
    else ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
)


def written(bootstrap: str, topic: str) -> dict[int, int | None]:
    """A record of each of these times: how far its time is from now, ms; None: refused for it."""
    producer = Producer({"bootstrap.servers": bootstrap})
    found: dict[int, int | None] = {}
    now = round(time.time() * 1000)
    for at in TIMES:

        def keep(error: KafkaError | None, message: Message, at: int = at) -> None:
            assert error is None or error.code() == KafkaError.INVALID_TIMESTAMP
            found[at] = None if error else message.timestamp()[1] - now

        producer.produce(topic, b"x", partition=0, timestamp=now + at, on_delivery=keep)
        assert producer.flush(30) == 0, "one by one: a batch is refused as a whole"
    return found


def test_no_record_has_the_time_of_the_relays_clock(pipeline: Pipeline) -> None:
    for limit in (BEFORE, AFTER):
        alter(pipeline, pipeline.source, limit, str(HOUR_MS))
    carried(pipeline)
    for topic in (*topics(pipeline), names.schemas_topic(pipeline.app)):
        assert settings(pipeline.bootstrap, topic)["message.timestamp.type"] == "LogAppendTime"

    own = written(pipeline.bootstrap, names.dead_topic(pipeline.app))
    assert all(found is not None and abs(found) < HOUR_MS for found in own.values()), own
    sources = written(pipeline.bootstrap, pipeline.source)
    assert sources == {TIMES[0]: None, 0: 0, TIMES[2]: None}, "there the producers' clocks count"


@pytest.mark.parametrize("topic_of", [names.journal_topic, lambda app: f"{app}.blocks"])
def test_a_relay_whose_records_are_refused_for_their_time_says_so(
    pipeline: Pipeline, topic_of: Callable[[str], str]
) -> None:
    """By topics that an earlier version made; another relay, with a right clock, takes over."""
    relay = pipeline.start("a")
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "the first rows")
    (topic,) = (one for one in topics(pipeline) if one.startswith(topic_of(pipeline.app)))
    alter(pipeline, topic, "message.timestamp.type", "CreateTime")
    alter(pipeline, topic, BEFORE, "0")
    refusal = f"delivery to {topic}[0]: INVALID_TIMESTAMP"
    ids = itertools.count(10)

    def refused() -> bool:
        """Sends on: Kafka's metadata may say a setting before the topic's log goes by it."""
        pipeline.send([next(ids)])
        return refusal in pipeline.log(relay)

    pipeline.until(refused, "a record that is refused")
    assert pipeline.end_of(relay) == 5
    assert "set the clocks by NTP" in pipeline.log(relay)
    alter(pipeline, topic, "message.timestamp.type", "LogAppendTime")
    pipeline.start("b")
    pipeline.exactly_once()


def alter(pipeline: Pipeline, topic: str, name: str, value: str) -> None:
    set_topic(AdminClient({"bootstrap.servers": pipeline.bootstrap}), topic, **{name: value})
