"""Small blocks of many partitions cost a few requests, however long their INSERTs take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from loader.blocks.fetch import Fetcher
from relay.blocks import chunks
from relay.config.settings import Kafka
from relay.records_pb2 import Block
from tests.mock.cluster import Api, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS = [f"a.blocks.d.t{number}" for number in range(8)]
PARTITIONS = 6
ROWS = pa.record_batch({"n": list(range(10))})
CHUNK = chunks.Encoder(10**6).encode(ROWS)[0][0]
INSERTS_SECONDS = 0.3
"""In the place of INSERTs. At the end of what it reads, a client asks again every 10 ms."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as made:
        for topic in TOPICS:
            made.create_topic(topic, PARTITIONS)
        yield made


def sealed(cluster: Cluster) -> list[Block]:
    """A block in each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    made = []
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            block = Block(id=f"a:{topic}:{partition}:0:0", topic=topic, partition=partition)
            block.chunks, block.rows, block.row_bytes = 1, ROWS.num_rows, 100
            block.crc32c, block.next_offset = chunks.crc32c([CHUNK]), 1
            headers = [("seq", b"0")]
            producer.produce(topic, CHUNK, block.id.encode(), partition, headers=headers)
            made.append(block)
    assert producer.flush(30) == 0
    return made


def asked_while_inserting(cluster: Cluster) -> int:
    before = cluster.requests()[Api.FETCH]
    time.sleep(INSERTS_SECONDS)  # the time that INSERTs take
    return cluster.requests()[Api.FETCH] - before


def test_while_blocks_are_inserted_the_brokers_are_asked_for_nothing(cluster: Cluster) -> None:
    """But for the request that was under way."""
    blocks = sealed(cluster)
    fetcher = Fetcher(Kafka(bootstrap=cluster.bootstrap))
    try:
        assert fetcher.fetch(blocks[0], blocks[1:]).equals(ROWS)
        assert asked_while_inserting(cluster) <= 1
        for at, block in enumerate(blocks[1:], 2):
            assert fetcher.fetch(block, blocks[at:]).equals(ROWS)
        assert asked_while_inserting(cluster) <= 1
    finally:
        fetcher.close()


def test_control_what_is_read_on_is_asked_for_again_and_again(cluster: Cluster) -> None:
    """Control: of one partition more is read in the background, and that shows."""
    block = sealed(cluster)[0]
    fetcher = Fetcher(Kafka(bootstrap=cluster.bootstrap))
    try:
        assert fetcher.fetch(block).equals(ROWS)
        assert asked_while_inserting(cluster) > 5
    finally:
        fetcher.close()
