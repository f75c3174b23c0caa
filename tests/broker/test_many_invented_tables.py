"""A producer that puts something unique into the header: each message names a table of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from relay.schema.dead_reason import DeadKind
from tests.broker.pipeline import row_batch

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

COUNT = 6000


@pytest.mark.long  # 18 s: thousands of tables
def test_they_become_dead_letters_and_other_tables_go_on(pipeline: Pipeline) -> None:
    """All are sealed together, and the good table's row with them."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for number in range(COUNT):
        table = f"{pipeline.database}.{'x' * 24}{number:06}"
        pipeline.produce(producer, row_batch([number]), 0, [("table", table.encode())])
    pipeline.send([1])
    assert producer.flush(30) == 0

    relay = pipeline.start("a")
    settled = COUNT + 1
    pipeline.until(lambda: pipeline.floor(0) == settled, "the floor behind the last")
    assert relay.poll() is None
    pipeline.await_markers()
    dead = pipeline.dead()
    assert len(dead) == COUNT
    assert {headers["kind"] for _, headers in dead} == {DeadKind.UNKNOWN_TABLE}
    pipeline.exactly_once()
