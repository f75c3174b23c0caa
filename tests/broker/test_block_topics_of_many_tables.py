"""Block topics of many tables are made by one request, on a real broker."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from relay.config.settings import Settings
from relay.kafka.block_topics import BlockTopics
from relay.kafka.topics import MAX_MESSAGE_BYTES, Topics

PARTITIONS = 2


def test_topics_of_many_tables(bootstrap: str, app: str) -> None:
    """Each as if it had been made alone; one that has its plain name of before keeps it."""
    admin, source = AdminClient({"bootstrap.servers": bootstrap}), f"{app}.source"
    tables = [f"{database}.t{n}" for n in range(10) for database in ("shop", "my_shop")]
    old = names.blocks_topics(app, "my_shop.t0")[0]
    made = admin.create_topics([NewTopic(source, PARTITIONS, 1), NewTopic(old, PARTITIONS, 1)])
    for one in made.values():
        one.result()
    topics = Topics(
        Settings.model_validate({
            "app": app,
            "kafka": {"bootstrap": bootstrap},
            "source": {"topic": source},
            "clickhouse": {"url": "http://127.0.0.1:1"},
            "loader": {"checkpoint": "checkpoint"},
        })
    )  # fmt: skip
    topics.source()
    asked: list[int] = []
    create = topics._admin.client.create_topics

    def counted(new: list[NewTopic], **options: Any) -> Any:
        asked.append(len(new))
        return create(new, **options)

    topics._admin.client.create_topics = counted  # type: ignore[method-assign]
    found = BlockTopics(app, topics)
    found.ensure(tables)

    together, *late = asked
    assert together == len(tables) - 1
    # A broker that does not list one yet is asked for that alone, and answers that it is there.
    assert len(late) < len(tables) // 2
    assert set(late) <= {1}
    assert found.of("my_shop.t0") == old
    for table in tables:
        facts = topics.describe(found.of(table))
        assert facts is not None
        assert facts.partitions == PARTITIONS
    assert topics.most_bytes(found.of("shop.t1")) == MAX_MESSAGE_BYTES
    again = BlockTopics(app, topics)
    again.ensure(tables)
    assert len(asked) == 1 + len(late)
