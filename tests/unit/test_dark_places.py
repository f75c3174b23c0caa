"""Which partitions take no records: nobody leads them, or too few brokers have them in sync."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from relay.kafka.topics import Topics
from tests import reach

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Cluster:
    """In the place of an AdminClient, of topics with one partition each.

    Attributes:
        topics: leader, copies in sync, copies, and min.insync.replicas or why that is not told.
        asked: topics whose settings were asked for, of each request.
    """

    def __init__(self, **topics: tuple[int, int, int, str | KafkaError | None]) -> None:
        self.topics = topics
        self.asked: list[list[str]] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout > 0
        leader, in_sync, copies, _ = self.topics[topic]
        one = SimpleNamespace(leader=leader, isrs=[*range(in_sync)], replicas=[*range(copies)])
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: one})})

    def describe_configs(self, asked: Sequence[Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked.append(sorted(one.name for one in asked))
        return {one: self._settings(one.name) for one in asked}

    def _settings(self, topic: str) -> Future[Any]:
        answer: Future[Any] = Future()
        *_, least = self.topics[topic]
        if isinstance(least, KafkaError):
            answer.set_exception(KafkaException(least))
        else:
            found = {} if least is None else {"min.insync.replicas": SimpleNamespace(value=least)}
            answer.set_result(found)
        return answer

    def poll(self, _: float) -> None:
        pass


def dark(cluster: Cluster, places: Collection[str] = ()) -> set[str]:
    topics = Topics(reach.nobody())
    topics._admin.client = cast("Any", cluster)
    found = topics.dark([(topic, 0) for topic in places or cluster.topics])
    assert found is not None
    return {topic for topic, _ in found}


@pytest.mark.parametrize(
    ("in_sync", "copies", "least", "waits"),
    [
        (1, 2, "2", True),
        (1, 3, "2", True),
        (2, 3, "2", False),
        (2, 3, "3", True),
        (1, 3, "1", False),
        (2, 4, "9", True),
        (1, 3, None, True),
        (2, 3, DENIED, False),
        (1, 3, DENIED, True),
        (1, 2, DENIED, False),
    ],
)
def test_it_has_as_many_copies_in_sync_as_the_topic_wants(
    in_sync: int, copies: int, least: str | KafkaError | None, waits: bool
) -> None:
    """Where the topic's setting is not told, as many as relays ask for."""
    assert dark(Cluster(t=(0, in_sync, copies, least))) == ({"t"} if waits else set())


def test_nobody_is_asked_for_settings_while_all_copies_are_in_sync() -> None:
    """Brokers ask for no more copies than there are; and one without a leader is dark anyway."""
    cluster = Cluster(healthy=(0, 1, 1, "2"), alone=(-1, 1, 3, "1"))
    assert dark(cluster) == {"alone"}
    assert cluster.asked == []


def test_settings_of_all_topics_are_asked_for_at_once() -> None:
    cluster = Cluster(a=(0, 1, 3, "2"), b=(1, 2, 3, "2"), other=(0, 1, 3, "2"))
    assert dark(cluster, ["a", "b"]) == {"a"}
    assert cluster.asked == [["a", "b"]]
