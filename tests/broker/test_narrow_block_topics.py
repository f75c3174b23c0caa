"""A block topic has as many partitions as were needed so far, and its readers see it grow."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from loader.blocks.fetch import Fetcher
from relay import names
from relay.blocks.placement import place
from relay.config import kafka_clients, settings_file
from relay.kafka.transactional_producer import TransactionalProducer
from tests.broker.pipeline import create_topics, wait_until
from tests.broker.test_messages_left_out import ran
from tests.broker.test_source_grows import width
from tests.loader.unsparked import load

if TYPE_CHECKING:
    import pytest
    from clickhouse_connect.driver.client import Client

    from relay.records_pb2 import Block
    from tests.broker.pipeline import Pipeline

LARGE = 600_000
"""Rows of a few bytes each: more than a mebibyte."""


def send_everywhere(pipeline: Pipeline, first: int) -> None:
    for partition in range(pipeline.partitions):
        pipeline.send(range(first + 10 * partition, first + 10 * partition + 10), partition)


def blocks(pipeline: Pipeline) -> list[Block]:
    """In order of their time."""
    found = [b for commits in pipeline.journal().values() for c in commits for b in c.blocks]
    return sorted(found, key=lambda block: block.sealed_at_ms)


def test_a_block_topic_is_as_wide_as_its_relays_need(pipeline: Pipeline, client: Client) -> None:
    """One relay writes its lowest partition; of two, each its own. All rows come once."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    path, topic = pipeline.config(), names.blocks_topic(pipeline.app, pipeline.table)
    pipeline.start("a", path)
    send_everywhere(pipeline, 0)
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "the first rows")
    assert width(pipeline, topic) == 1
    assert {block.partition for block in blocks(pipeline)} == set(range(pipeline.partitions))
    load(settings_file.load(path))

    pipeline.start("b", path)
    at = iter(range(1_000, 100_000, 1_000))

    def both() -> bool:
        send_everywhere(pipeline, next(at))
        return pipeline.has_blocks_of("b")

    pipeline.until(both, "blocks of the second relay")
    pipeline.exactly_once()
    assert width(pipeline, topic) == 2
    writers: dict[int, set[str]] = {}
    for commits in pipeline.journal().values():
        for commit in commits:
            for block in commit.blocks:
                writers.setdefault(place(block)[1], set()).add(commit.member)
    assert writers[1] == {"b"} or writers[1] == {"a"}, "each in partitions of its own"
    pipeline.stop_all()
    load(settings_file.load(path))
    found = client.query(f"SELECT count(), uniqExact(id) FROM {pipeline.table}").result_rows
    assert found == [(len(pipeline.sent), len(pipeline.sent))]
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 0, output


@pytest.mark.long  # 20 s
def test_large_blocks_get_partitions_of_their_own(pipeline: Pipeline, client: Client) -> None:
    """The first lies with the small ones, in several chunks; a reader sees the others come.

    On a slow machine the topic may have grown before the last of the first rows are sealed.
    """
    path, topic = pipeline.config(), names.blocks_topic(pipeline.app, pipeline.table)
    path.write_text(path.read_text().replace("[relay]", "[relay]\nschema_refresh_seconds = 0.5"))
    last = pipeline.partitions - 1
    pipeline.send(range(LARGE), last, per_message=50_000)
    pipeline.start("a", path)
    pipeline.until(lambda: sum(b.rows for b in blocks(pipeline)) == LARGE, "the first rows")
    first = blocks(pipeline)
    places = [place(block) for block in first]
    assert places[0] == (topic, 0)
    assert places == sorted(places), "once in a partition of its own, always there"
    assert set(places) <= {(topic, 0), (topic, last)}
    assert max(block.chunks for block in first if place(block) == (topic, 0)) > 1
    pipeline.until(lambda: width(pipeline, topic) == pipeline.partitions, "the growth")

    fetcher = Fetcher(settings_file.load(path).kafka)
    assert sum(fetcher.fetch(block).num_rows for block in first) == LARGE
    pipeline.send(range(LARGE, 2 * LARGE), last, per_message=50_000)
    pipeline.until(lambda: sum(b.rows for b in blocks(pipeline)) == 2 * LARGE, "the others")
    others = blocks(pipeline)[len(first) :]
    assert {place(block) for block in others} == {(topic, last)}
    assert sum(fetcher.fetch(block).num_rows for block in others) == LARGE
    fetcher.close()
    pipeline.exactly_once()
    load(settings_file.load(path))
    found = client.query(f"SELECT count(), uniqExact(id) FROM {pipeline.table}").result_rows
    assert found == [(2 * LARGE, 2 * LARGE)]
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 0, output


def test_a_reader_sees_a_partition_that_it_has_not_heard_of(pipeline: Pipeline) -> None:
    """It has read the topic when it was narrower, a moment ago."""
    path, topic = pipeline.config(), names.blocks_topic(pipeline.app, pipeline.table)
    pipeline.start("a", path)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "the first rows")
    fetcher = Fetcher(settings_file.load(path).kafka)
    assert fetcher.fetch(blocks(pipeline)[0]).num_rows
    assert width(pipeline, topic) == 1

    pipeline.start("b", path)
    at = iter(range(1_000, 100_000, 1_000))

    def both() -> bool:
        send_everywhere(pipeline, next(at))
        return any(place(block) == (topic, 1) for block in blocks(pipeline))

    pipeline.until(both, "blocks in the second partition")
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "all rows")
    for block in blocks(pipeline):
        assert fetcher.fetch(block).num_rows == block.rows
    fetcher.close()


def test_one_look_shows_a_producer_all_topics_that_grew(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a relay that has joined where many tables are. It took a tenth of a second for each."""
    topics = [f"{pipeline.app}.{number}" for number in range(20)]
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    create_topics(admin, *(NewTopic(topic, 1, 1) for topic in topics))
    settings = settings_file.load(pipeline.config(), {"relay": {"member": "a"}})
    config = {"bootstrap.servers": pipeline.bootstrap, "group.id": pipeline.app}
    looks = []
    look_again = TransactionalProducer._look_again

    def counted(producer: TransactionalProducer) -> None:
        looks.append(1)
        look_again(producer)

    monkeypatch.setattr(TransactionalProducer, "_look_again", counted)
    acknowledged: list[int] = []
    producer = TransactionalProducer(kafka_clients.producer(settings), 30, pipeline.app)
    with contextlib.closing(Consumer(config)) as member, contextlib.closing(producer):
        producer.replace()
        for partition in (0, 1):
            producer.begin(member.consumer_group_metadata())
            for topic in topics:
                place = TopicPartition(topic, partition)
                producer.produce(place, b"row", None, [], acknowledged.append)
            producer.flush()
            producer.commit()
            grown = [NewPartitions(topic, 2) for topic in topics if partition == 0]
            for future in admin.create_partitions(grown).values() if grown else ():
                future.result(30)
            wait_until(lambda: width(pipeline, topics[-1]) == 2, "the growth")

    assert acknowledged == [0] * 40
    assert 0 < len(looks) < 5
