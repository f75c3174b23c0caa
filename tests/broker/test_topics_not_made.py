"""A block topic that cannot be made now: its table waits, and all others go on."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

from relay import names
from tests.broker.test_dark_partitions import rows, send
from tests.broker.test_narrow_block_topics import width

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


def test_a_topic_with_more_copies_than_brokers_stops_no_other(
    pipeline: Pipeline, client: Client
) -> None:
    """The setting was raised, or a broker was lost: the app's own topics are there. Red before: the
    relay waited without polling, for all tables, from the first message of the new one on."""
    new = f"{pipeline.database}.new"
    client.command(f"CREATE TABLE {new} AS {pipeline.table}")
    path = pipeline.config(wait_for_servers_seconds=0.0)
    first = pipeline.start("a", path)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows before")
    first.send_signal(signal.SIGTERM)
    assert pipeline.end_of(first) == 0

    copies = pipeline.config(wait_for_servers_seconds=0.0)
    copies.write_text(path.read_text().replace("[kafka]", "[kafka]\nreplication = 3"))
    second = pipeline.start("a", copies)
    send(pipeline, new, range(100, 110))
    for partition in range(2):  # both behind the messages, and beside them
        at = 10 + 10 * partition
        pipeline.send(range(at, at + 10), partition)
    seen = Counter(range(30))
    pipeline.until(lambda: rows(pipeline, pipeline.table) == seen, "rows of the other table")
    assert f"create topic {names.blocks_topic(pipeline.app, new)}" in pipeline.log(second)
    assert pipeline.floor(0) == 10, "the first message that waits"
    assert pipeline.floor(1) == 10
    second.send_signal(signal.SIGTERM)
    assert pipeline.end_of(second) == 0

    pipeline.start("a", path)
    pipeline.exactly_once()
    assert pipeline.dead() == []
    assert width(pipeline, names.blocks_topic(pipeline.app, new))
