"""A partition whose leader is away is not one that is gone: its block is not parked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from loader import fetch
from loader.fetch import Damaged, Fetcher
from relay.errors import Unavailable
from relay.records_pb2 import Block

BLOCK = Block(id="a:d.t:0:0:0", topic="a.blocks.d.t", partition=1, chunks=1, next_offset=1)


class Consumer:
    """Nothing comes, and the partition's ends cannot be asked for."""

    def __init__(self, partitions: int) -> None:
        self._partitions = dict.fromkeys(range(partitions))

    def assign(self, _: object) -> None: ...

    def poll(self, _: float) -> None: ...

    def get_watermark_offsets(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout > 0
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=self._partitions)})


@pytest.mark.parametrize(("partitions", "raised"), [(2, Unavailable), (1, Damaged), (0, Damaged)])
def test_only_what_the_brokers_do_not_know_is_gone(
    monkeypatch: pytest.MonkeyPatch, partitions: int, raised: type[Exception]
) -> None:
    monkeypatch.setattr(fetch, "READ_SECONDS", 0.0)
    fetcher = Fetcher.__new__(Fetcher)
    fetcher._consumer, fetcher._at = Consumer(partitions), None  # type: ignore[assignment]
    with pytest.raises(raised):
        fetcher.fetch(BLOCK)
