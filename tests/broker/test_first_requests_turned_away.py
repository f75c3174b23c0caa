"""A leader that does not know a new partition yet turns the first requests away and takes a later
one: nothing of that transaction may be committed.

Of a partition that is new to a producer, a broker takes any first sequence number. librdkafka
(2.16) takes an accepted request as proof of those before it, and reports their records as
delivered, without an offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from relay.config import kafka_clients, settings_file
from relay.core.events import Failure
from relay.kafka.transactional_producer import TransactionalProducer, TransactionFailed
from tests.broker import unguarded
from tests.broker.pipeline import create_topics
from tests.chaos.proxy_wire import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.proxied_pipeline import ProxiedPipeline

SECONDS = 40.0
TURNED_AWAY = 2
RECORDS = [b"first", b"second", b"third", b"fourth"]


@pytest.fixture
def producer(proxied_pipeline: ProxiedPipeline) -> Iterator[TransactionalProducer]:
    """Sends each record in a request of its own, several at once, as it does large chunks."""
    pipeline = proxied_pipeline
    settings = settings_file.load(pipeline.config(), {"relay": {"member": "a"}})
    config = {**kafka_clients.producer(settings), "batch.num.messages": 1}
    made = TransactionalProducer(config, SECONDS, pipeline.app)
    yield made
    made.close()


def send(pipeline: ProxiedPipeline, producer: TransactionalProducer) -> set[bytes | None]:
    """One transaction into a new topic, its first requests turned away; what is visible of it."""
    topic = names.journal_topic(pipeline.app)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    create_topics(admin, NewTopic(topic, 1, 1))
    member = Consumer({"bootstrap.servers": pipeline.bootstrap, "group.id": pipeline.app})
    before = pipeline.proxy.counts()["turned_away"]
    pipeline.proxy.turn_away(TURNED_AWAY, pipeline.client("a"))
    producer.replace()
    try:
        producer.begin(member.consumer_group_metadata())
        # All are queued before the first may go: whether one is refused alone is no luck.
        held = pipeline.proxy.hold(Api.ADD_PARTITIONS_TO_TXN, pipeline.client("a"))
        for record in RECORDS:
            producer.produce(TopicPartition(topic, 0), record, b"", [], lambda _: None)
        held.wait_until_held(SECONDS)
        held.release()
        producer.flush()
        producer.commit()
    finally:
        member.close()
        turned_away = pipeline.proxy.counts()["turned_away"] - before
    assert turned_away == TURNED_AWAY

    def visible() -> set[bytes | None]:
        return {value for records in pipeline.read(topic, 1).values() for _, value, _ in records}

    # It is committed before its marker is in the log.
    pipeline.until(lambda: bool(visible()), "what is left of the transaction")
    return visible()


def test_the_transaction_is_not_committed(
    proxied_pipeline: ProxiedPipeline, producer: TransactionalProducer
) -> None:
    with pytest.raises(TransactionFailed, match="without an offset") as failed:
        send(proxied_pipeline, producer)
    assert failed.value.kind is Failure.UNKNOWN


def test_uncounted_its_first_records_are_lost(
    proxied_pipeline: ProxiedPipeline,
    producer: TransactionalProducer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: librdkafka alone commits what is left of it."""
    monkeypatch.setattr(TransactionalProducer, "flush", TransactionalProducer.flush)  # undone
    unguarded.acked()
    visible = send(proxied_pipeline, producer)
    assert visible < set(RECORDS), "the control lost nothing"
    assert RECORDS[-1] in visible
