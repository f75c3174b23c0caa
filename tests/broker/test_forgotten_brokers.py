"""Metadata that names no broker: librdkafka forgets them all (#5301), the product asks again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from relay.config import kafka_clients
from relay.config.settings import Kafka
from relay.kafka import librdkafka
from relay.kafka.partition_reader import PartitionReader
from tests.broker.pipeline import wait_until

if TYPE_CHECKING:
    from tests.broker.proxied_pipeline import ProxiedPipeline
    from tests.chaos.proxy import Proxy

ANSWER_SECONDS = 2.0


def forgetful(proxy: Proxy, name: str, topic: str) -> PartitionReader:
    """A client that has no broker left, though all are there and say so."""
    client_settings = {"topic.metadata.refresh.interval.ms": 200, "client.id": name}
    kafka = Kafka(bootstrap=proxy.address, client=client_settings)
    client = PartitionReader(kafka_clients.reader(kafka))
    client.list_topics(topic, timeout=30)
    before = proxy.counts()["emptied"]
    proxy.name_no_broker(client=name)

    def forgot() -> bool:
        """Once it has heard so; one call may get no answer for another reason."""
        heard = proxy.counts()["emptied"] > before
        return heard and [brokers(client, topic) for _ in range(2)] == [None, None]

    wait_until(forgot, "the client to forget them")
    proxy.name_no_broker(False, client=name)
    return client


def brokers(client: PartitionReader, topic: str) -> int | None:
    """How many a call of it names; None where it gets no answer."""
    try:
        return len(client.list_topics(topic, timeout=ANSWER_SECONDS).brokers)
    except KafkaException:
        return None


def test_they_are_found_again(proxied_pipeline: ProxiedPipeline) -> None:
    topic = proxied_pipeline.source
    client = forgetful(proxied_pipeline.proxy, f"found-{uuid.uuid4()}", topic)
    wait_until(lambda: brokers(client, topic) == 1, "the broker again")


def test_librdkafka_alone_does_not(
    proxied_pipeline: ProxiedPipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: green one day, relay.kafka.reconnect is needed no more."""
    monkeypatch.setattr(librdkafka, "unsupported", lambda: "taken away")
    topic = proxied_pipeline.source
    client = forgetful(proxied_pipeline.proxy, f"lost-{uuid.uuid4()}", topic)
    assert [brokers(client, topic) for _ in range(5)] == [None] * 5
