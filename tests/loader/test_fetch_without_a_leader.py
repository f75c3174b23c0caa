"""A partition whose leader is away is not one that is gone: its block is not parked.

It is waited for once in a task, however many of its blocks the task has.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from loader.blocks import fetch
from loader.blocks.fetch import Damaged, Fetcher
from loader.clickhouse.client import TableRefused
from relay.config.settings import Kafka
from relay.errors import Refused, Unavailable, WrongCredentials
from relay.records_pb2 import Block

AWAY = KafkaError.LEADER_NOT_AVAILABLE


def sealed(partition: int, first: int = 0) -> Block:
    return Block(
        id=f"a:d.t:{partition}:0:{first}",
        topic="a.blocks.d.t",
        partition=partition,
        chunks=1,
        first_offset=first,
        next_offset=first + 1,
    )


BLOCK = sealed(1)


class Consumer:
    """Nothing comes, and the partition's ends cannot be asked for.

    Attributes:
        lists: whether the brokers answer where they are asked for a topic.
        asked: how many reads were begun.
    """

    def __init__(self, code: int) -> None:
        self._code, self.lists, self.asked = code, True, 0

    def list_topics(self, *_: object, **__: object) -> SimpleNamespace:
        self.asked += 1
        if not self.lists:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={})

    def assign(self, _: object) -> None: ...

    def unassign(self) -> None: ...

    def poll(self, _: float) -> None: ...

    def get_watermark_offsets(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(self._code))


def fetching(monkeypatch: pytest.MonkeyPatch, consumer: Consumer) -> Fetcher:
    """One that waits for nothing, and asks about the topic at every read."""
    monkeypatch.setattr(fetch, "READ_SECONDS", 0.0)
    monkeypatch.setattr(fetch, "_KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(fetch, "PartitionReader", lambda _: consumer)
    return Fetcher(Kafka(bootstrap="127.0.0.1:1"))


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
    with pytest.raises(raised):
        fetching(monkeypatch, Consumer(code)).fetch(BLOCK)


@pytest.mark.parametrize("lists", [True, False], ids=["a leader is away", "every broker is away"])
def test_what_was_waited_for_in_vain_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch, *, lists: bool
) -> None:
    """Nor what was to be read with it, until the next task; other partitions are."""
    consumer = Consumer(AWAY)
    consumer.lists = lists
    fetcher = fetching(monkeypatch, consumer)
    beside, later, other = sealed(2), sealed(1, 100), sealed(3)
    asked = []
    for block, ahead in [(BLOCK, [beside, later]), (later, []), (beside, []), (other, [])]:
        with pytest.raises(Unavailable):
            fetcher.fetch(block, ahead)
        asked.append(consumer.asked)
    assert asked == [1, 1, 1, 2]
    fetcher.rest()
    with pytest.raises(Unavailable):
        fetcher.fetch(later)
    assert consumer.asked == 3


def test_what_failed_at_once_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cost no time, and says nothing of what was to be read with it."""
    consumer = Consumer(AWAY)
    consumer.lists = False
    fetcher = fetching(monkeypatch, consumer)
    monkeypatch.setattr(fetch, "READ_SECONDS", 30.0)
    for times in (1, 2):
        with pytest.raises(Unavailable):
            fetcher.fetch(BLOCK, [sealed(2)])
        assert consumer.asked == times


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TableRefused),
        (KafkaError.SASL_AUTHENTICATION_FAILED, WrongCredentials),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Refused),
    ],
)
def test_a_no_for_one_topic_is_one_tables(
    monkeypatch: pytest.MonkeyPatch, code: int, raised: type[Exception]
) -> None:
    """Any other is the loader's."""
    fetcher = fetching(monkeypatch, Consumer(code))
    with pytest.raises(Refused) as error:
        fetcher.fetch(BLOCK)
    assert type(error.value) is raised
    assert (error.value.code, BLOCK.topic in error.value.message) == (code, True)
