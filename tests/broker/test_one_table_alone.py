"""What Kafka says against one table or one message holds up no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from tests.broker.pipeline import PARTITIONS, row_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


@pytest.fixture
def twins(pipeline: Pipeline, client: Client) -> Iterator[tuple[str, str]]:
    """Two tables whose plain topic names Kafka takes for the same."""
    one, other = f"{pipeline.database}.x_t", f"{pipeline.database}_x.t"
    client.command(f"CREATE DATABASE {pipeline.database}_x")
    for table in (one, other):
        client.command(f"CREATE TABLE {table} AS {pipeline.table}")
    yield one, other
    client.command(f"DROP DATABASE {pipeline.database}_x SYNC")


def send(pipeline: Pipeline, table: str, row: int) -> None:
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, row_batch([row]), 0, [("table", table.encode())])
    assert producer.flush(30) == 0


def make(pipeline: Pipeline, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def topics_of(pipeline: Pipeline) -> dict[str, str]:
    """By table, of the blocks that the journal names."""
    commits = (c for cs in pipeline.journal().values() for c in cs)
    return {b.table: b.topic for c in commits for b in c.blocks}


def test_tables_whose_topics_kafka_takes_for_the_same(
    pipeline: Pipeline, twins: tuple[str, str]
) -> None:
    """Each gets a topic of its own, whichever comes first, and goes on with it after a restart."""
    for row, table in enumerate(twins):
        send(pipeline, table, row)
    pipeline.sent.update([0, 1])
    pipeline.start("a")
    pipeline.exactly_once()
    pipeline.stop_all()
    for row, table in enumerate(reversed(twins), 2):
        send(pipeline, table, row)
    pipeline.sent.update([2, 3])
    pipeline.start("a")
    pipeline.exactly_once()
    assert topics_of(pipeline) == {
        twins[0]: f"{pipeline.app}.blocks.{pipeline.database}.x_t",
        twins[1]: f"{pipeline.app}.blocks.{pipeline.database}_x-t",
    }
    assert pipeline.dead() == []


def test_a_topic_that_an_earlier_version_made_stays(
    pipeline: Pipeline, twins: tuple[str, str]
) -> None:
    """The table that had its topic by the plain name keeps it, and the other gets a dashed one."""
    plain = f"{pipeline.app}.blocks.{twins[1]}"
    make(pipeline, plain)
    for row, table in enumerate(twins):
        send(pipeline, table, row)
    pipeline.sent.update([0, 1])
    pipeline.start("a")
    pipeline.exactly_once()
    assert topics_of(pipeline) == {
        twins[0]: f"{pipeline.app}.blocks.{pipeline.database}-x_t",
        twins[1]: plain,
    }


def test_a_block_topic_that_no_source_partition_fits(pipeline: Pipeline, client: Client) -> None:
    """Its table's messages are dead letters with the reason, and other tables' rows go on."""
    wide = f"{pipeline.database}.wide"
    client.command(f"CREATE TABLE {wide} AS {pipeline.table}")
    make(pipeline, names.blocks_topic(pipeline.app, wide), PARTITIONS + 1)
    send(pipeline, wide, 7)
    pipeline.send([1, 2])
    relay = pipeline.start("a")
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")
    ((_, headers),) = pipeline.dead()
    assert headers["table"] == wide
    assert headers["reason"].startswith(f"no block topic for {wide}: ")
    assert "has 3 partitions, the source 2" in headers["reason"]
    assert relay.poll() is None, pipeline.log(relay)
