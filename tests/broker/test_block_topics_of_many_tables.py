"""Block topics of many tables are made by one request, on a real broker."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from relay.config.settings import Settings
from relay.kafka.admin import MAX_MESSAGE_BYTES
from relay.kafka.block_topics import BlockTopics
from relay.kafka.topics import Topics
from tests.broker.pipeline import create_topics

PARTITIONS = 2


def looking_at(bootstrap: str, app: str, source: str) -> Topics:
    return Topics(
        Settings.model_validate({
            "app": app,
            "kafka": {"bootstrap": bootstrap},
            "source": {"topic": source},
            "clickhouse": {"url": "http://127.0.0.1:1"},
            "loader": {"checkpoint": "checkpoint"},
        })
    )  # fmt: skip


def counted(topics: Topics) -> list[int]:
    """How many topics each request creates, from now on."""
    asked: list[int] = []
    create = topics._admin.client.create_topics

    def create_and_count(new: list[NewTopic], **options: Any) -> Any:
        asked.append(len(new))
        return create(new, **options)

    topics._admin.client.create_topics = create_and_count  # type: ignore[method-assign]
    return asked


def counted_looks(topics: Topics) -> list[int]:
    """How many topics each request describes, from now on."""
    asked: list[int] = []
    describe = topics._admin.client.describe_topics

    def describe_and_count(some: Any, **options: Any) -> Any:
        found = describe(some, **options)
        asked.append(len(found))
        return found

    topics._admin.client.describe_topics = describe_and_count  # type: ignore[method-assign]
    return asked


def late_with(topics: Topics, name: str, times: int) -> list[str]:
    """Brokers do not list a topic, as often; each time that they did not, by name."""
    describe = topics._admin.client.describe_topics
    hidden: list[str] = []
    unknown: Future[Any] = Future()
    unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))

    def described(asked: Any, **options: Any) -> Any:
        found = dict(describe(asked, **options))  # the client completes its own
        if name in found and len(hidden) < times:
            hidden.append(name)
            found[name] = unknown
        return found

    topics._admin.client.describe_topics = described  # type: ignore[method-assign]
    return hidden


def test_topics_of_many_tables(bootstrap: str, app: str) -> None:
    """Each as if it had been made alone; one that has its plain name of before keeps it."""
    admin, source = AdminClient({"bootstrap.servers": bootstrap}), f"{app}.source"
    tables = [f"{database}.t{n}" for n in range(10) for database in ("shop", "my_shop")]
    old = names.blocks_topics(app, "my_shop.t0")[0]
    create_topics(admin, NewTopic(source, PARTITIONS, 1), NewTopic(old, PARTITIONS, 1))
    topics = looking_at(bootstrap, app, source)
    topics.source()
    asked = counted(topics)
    found = BlockTopics(app, topics)
    found.ensure(tables)

    assert asked == [len(tables) - 1]
    assert found.of("my_shop.t0") == old
    found.need(PARTITIONS)
    assert not found.have(tables[:5])
    for table in tables:
        facts = topics.describe(found.of(table))
        assert facts is not None
        wide = table in tables[:5] or found.of(table) == old
        assert facts.partitions == found.width(table) == (PARTITIONS if wide else 1)
    assert topics.most_bytes(found.of("shop.t1")) == MAX_MESSAGE_BYTES
    again = BlockTopics(app, topics)
    again.ensure(tables)
    assert len(asked) == 1

    later = looking_at(bootstrap, app, source)
    later.source()
    looks = counted_looks(later)
    BlockTopics(app, later).ensure(tables)
    assert looks == [40, 1], "all of them at once, and the one that has its plain name"


@pytest.mark.parametrize("beside", [[], ["shop.t"]], ids=["alone", "with-another"])
def test_a_dashed_topic_is_found_and_no_plain_one_made(
    bootstrap: str, app: str, beside: list[str]
) -> None:
    """As another table's was in the way when it was made. Whether it is so still only a controller
    says, which may be away."""
    admin, source = AdminClient({"bootstrap.servers": bootstrap}), f"{app}.source"
    dashed = names.blocks_topics(app, "shop.my_t")[1]
    create_topics(admin, NewTopic(source, PARTITIONS, 1), NewTopic(dashed, PARTITIONS, 1))
    topics = looking_at(bootstrap, app, source)
    topics.source()
    asked = counted(topics)
    found = BlockTopics(app, topics)
    found.ensure(["shop.my_t", *beside])
    assert found.of("shop.my_t") == dashed
    assert asked == [1 for _ in beside]


@pytest.mark.parametrize("times", [2, 5])
def test_one_that_is_listed_late_is_not_created_again(bootstrap: str, app: str, times: int) -> None:
    """A broker learns of a new topic a moment after the controller has answered."""
    admin, source = AdminClient({"bootstrap.servers": bootstrap}), f"{app}.source"
    create_topics(admin, NewTopic(source, PARTITIONS, 1))
    topics = looking_at(bootstrap, app, source)
    topics.source()
    asked = counted(topics)
    hidden = late_with(topics, names.blocks_topic(app, "shop.t1"), times)
    BlockTopics(app, topics).ensure([f"shop.t{n}" for n in range(4)])
    assert len(hidden) == times
    assert asked == [4]
