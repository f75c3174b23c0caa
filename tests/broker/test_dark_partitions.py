"""A partition that takes no records, as a broker with a copy of it is away."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewTopic,
)

from relay import names
from relay.dev import broker, layout
from relay.dev.layout import HOST
from tests.broker.own_broker import bootstrap  # noqa: F401 - a fixture
from tests.broker.pipeline import WAIT_SECONDS, create_topics, row_batch, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline

STAYS, GOES = 0, 1
"""The broker that controls the cluster, and the one that goes away and comes back."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """Directory of two brokers of one cluster, of which the first runs."""
    place = tmp_path / "brokers"
    plan, _ = layout.decide(place, 2, 0, 0)
    layout.write(place, plan)
    voter = f"controller.quorum.voters={STAYS}@{HOST}:{plan.controller_ports[STAYS]}\n"
    (place / "extra.properties").write_text(voter, encoding="utf-8")
    alone = f"process.roles=broker\nlisteners=PLAINTEXT://{HOST}:{plan.kafka_ports[GOES]}\n"
    (place / f"{broker.name(GOES)}.extra.properties").write_text(alone, encoding="utf-8")
    try:
        broker.start(place, STAYS)
        yield place
    finally:
        for index in (STAYS, GOES):
            broker.kill(place, index)


ITS_ONLY_COPY: tuple[list[int], dict[str, str]] = ([GOES], {})
ONE_OF_TWO_NEEDED = ([STAYS, GOES], {"min.insync.replicas": "2"})


@pytest.fixture(
    params=[ITS_ONLY_COPY, ONE_OF_TWO_NEEDED], ids=["nobody leads it", "too few copies in sync"]
)
def dark(request: pytest.FixtureRequest, pipeline: Pipeline, client: Client, own: Path) -> str:
    """A table whose block topic needs its copy on the broker that goes away."""
    table = f"{pipeline.database}.dark"
    client.command(f"CREATE TABLE {table} AS {pipeline.table}")
    app, partitions = pipeline.app, [[STAYS]] * pipeline.partitions
    lay(pipeline, names.blocks_topic(app, pipeline.table), partitions)
    lay(pipeline, names.journal_topic(app), partitions)
    lay(pipeline, names.dead_topic(app), partitions)
    lay(pipeline, names.schemas_topic(app), [[STAYS]])
    broker.start(own, GOES)
    copies, settings = request.param
    lay(pipeline, names.blocks_topic(app, table), [copies], settings)
    return table


def lay(
    pipeline: Pipeline,
    topic: str,
    replicas: list[list[int]],
    settings: dict[str, str] | None = None,
) -> None:
    """Create a topic whose partitions are on these brokers."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=settings or {})
    create_topics(admin, new)


def is_known_dark(pipeline: Pipeline, topic: str) -> bool:
    """Whether the broker that stays says that it leads nothing of it, or has the last copy."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    found = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions[0]
    return found.leader < 0 or found.isrs == [STAYS]


def send(pipeline: Pipeline, table: str, ids: Sequence[int]) -> None:
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for one in ids:
        pipeline.produce(producer, row_batch([one]), 0, [("table", table.encode())])
    assert producer.flush(30) == 0
    pipeline.sent.update(ids)


def rows(pipeline: Pipeline, table: str) -> Counter[int]:
    """Ids of the rows in all visible blocks of one table."""
    found: Counter[int] = Counter()
    topics: dict[str, Any] = {}
    blocks = (b for commits in pipeline.journal().values() for c in commits for b in c.blocks)
    for block in blocks:
        if block.table == table:
            found.update(pipeline.rows_of(block, topics).column("id").to_pylist())
    return found


@pytest.mark.long  # two brokers, and what waits for one of them
def test_a_table_whose_blocks_nobody_can_take_stops_no_other(
    own: Path, pipeline: Pipeline, dark: str
) -> None:
    """Red before: the transaction that had a record for it kept the relay waiting, and all tables
    with it, until the broker was back. It is aborted, and its input is in no other block."""
    config = pipeline.config(wait_for_servers_seconds=0.0)
    relay = pipeline.start("a", config)
    send(pipeline, dark, range(10))
    pipeline.send(range(100, 110))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "the first rows")
    broker.kill(own, GOES)
    topic = names.blocks_topic(pipeline.app, dark)
    wait_until(lambda: is_known_dark(pipeline, topic), "it is dark")

    send(pipeline, dark, range(10, 20))
    pipeline.send(range(110, 120))
    seen = Counter(range(100, 120))
    pipeline.until(lambda: rows(pipeline, pipeline.table) == seen, "rows of the other table")
    assert f"no broker takes records for {topic}[0]" in pipeline.log(relay)
    assert pipeline.floor(0) == 20, "the first message that waits"

    relay.kill()
    relay.wait(30)
    again = pipeline.start("a", config)
    send(pipeline, dark, range(20, 30))
    pipeline.send(range(120, 130))
    seen.update(range(120, 130))
    pipeline.until(lambda: rows(pipeline, pipeline.table) == seen, "they go on after a restart")
    assert "a transactional call failed" not in pipeline.log(again), "it asked before it wrote"

    broker.start(own, GOES)
    pipeline.exactly_once()
    assert again.poll() is None
