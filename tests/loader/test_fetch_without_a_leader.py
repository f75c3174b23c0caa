"""A partition whose leader is away is not one that is gone: its block is not parked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from loader.blocks import fetch
from loader.blocks.fetch import Damaged, Fetcher
from relay.config.settings import Kafka
from relay.errors import Unavailable
from relay.records_pb2 import Block

BLOCK = Block(id="a:d.t:0:0:0", topic="a.blocks.d.t", partition=1, chunks=1, next_offset=1)


class Consumer:
    """Nothing comes, and the partition's ends cannot be asked for."""

    def __init__(self, code: int) -> None:
        self._code = code

    def list_topics(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(topics={})

    def assign(self, _: object) -> None: ...

    def poll(self, _: float) -> None: ...

    def get_watermark_offsets(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(self._code))


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError.LEADER_NOT_AVAILABLE, Unavailable),
        (KafkaError._UNKNOWN_PARTITION, Damaged),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Damaged),
    ],
)
def test_only_what_the_brokers_do_not_know_is_gone(
    monkeypatch: pytest.MonkeyPatch, code: int, raised: type[Exception]
) -> None:
    """Which of the two it is, the reader says (tests/mock/test_partition_without_a_leader.py)."""
    monkeypatch.setattr(fetch, "READ_SECONDS", 0.0)
    monkeypatch.setattr(fetch, "PartitionReader", lambda _: Consumer(code))
    fetcher = Fetcher(Kafka(bootstrap="127.0.0.1:1"))
    with pytest.raises(raised):
        fetcher.fetch(BLOCK)
