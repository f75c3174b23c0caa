"""relay.kafka.topics: what it asks the brokers, and in which order."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from relay.config.settings import Settings
from relay.kafka.topics import Topics


class Admin:
    """Says that every topic is there, and remembers what was asked."""

    def __init__(self, metadata: KafkaError | None = None) -> None:
        self.asked: list[str] = []
        self._metadata = metadata

    def list_topics(self, topic: str, timeout: float) -> None:
        assert timeout > 0
        self.asked.append(f"metadata of {topic}")
        if self._metadata is not None:
            raise KafkaException(self._metadata)

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        (name,) = topics.topic_names
        self.asked.append(f"describe {name}")
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_id="id", partitions=[0], authorized_operations=[]))
        return {name: answer}

    def poll(self, _: float) -> None:
        pass


@pytest.fixture
def topics() -> Topics:
    return Topics(
        Settings.model_validate(
            {
                "app": "shop",
                "kafka": {"bootstrap": "127.0.0.1:1"},
                "source": {"topic": "rows"},
                "clickhouse": {"url": "http://127.0.0.1:1"},
                "loader": {"checkpoint": "checkpoint"},
            }
        )
    )


def test_nothing_is_asked_about_a_topic_that_may_not_be_there(topics: Topics) -> None:
    """Such a question could create it."""
    admin = Admin()
    topics._admin.client = cast("Any", admin)
    topics.source()
    assert admin.asked == ["describe rows"]


@pytest.mark.parametrize("answer", [None, KafkaError(KafkaError._TIMED_OUT)])
def test_who_is_the_controller_is_asked_before_it_is_needed(
    topics: Topics, answer: KafkaError | None
) -> None:
    """The client would wait for the one that it knows, though that broker is gone for good."""
    admin = Admin(answer)
    topics._admin.client = cast("Any", admin)
    topics.ensure_own()
    admin.asked.clear()
    topics.still_there()
    apps = ("shop.dead", "shop.journal", "shop.schemas")
    expected = [one for app in apps for one in ("metadata of shop.journal", f"describe {app}")]
    assert admin.asked == expected
