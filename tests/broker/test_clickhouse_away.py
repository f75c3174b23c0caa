"""ClickHouse is away, and a message names a table that the relay has not met: all others go on."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from relay.dev import clickhouse as dev_clickhouse
from relay.dev import layout, process
from tests import reach
from tests.broker.pipeline import Pipeline, row_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


LATE = 20.0
"""Seconds; a relay that waits for ClickHouse's answer gives it thirty."""


class OwnServer:
    """A ClickHouse that the test stops and starts again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._plan, _ = layout.decide(directory, 1, 0, 0)
        layout.write(directory, self._plan)
        self.settings = dev_clickhouse.reach(directory, self._plan)

    def start(self) -> None:
        dev_clickhouse.launch(self._directory, self._plan)
        dev_clickhouse.await_ready(self._directory, self._plan)

    def stop(self) -> None:
        process.end(self._directory, dev_clickhouse.NAME)

    def pause(self) -> None:
        """From now on it takes connections, and answers nobody."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        running = process.find(self._directory, dev_clickhouse.NAME)
        assert running is not None
        running.send_signal(number)

    def command(self, sql: str) -> None:
        client = reach.client(self.settings)
        client.command(sql)
        client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OwnServer]:
    made = OwnServer(tmp_path / "clickhouse")
    made.start()
    yield made
    made.resume()
    made.stop()


@pytest.fixture
def pipeline(bootstrap: str, server: OwnServer, app: str, tmp_path: Path) -> Iterator[Pipeline]:
    server.command("CREATE DATABASE away")
    for table in ("t", "new"):
        server.command(
            f"CREATE TABLE away.{table} (id Int64, v String) ENGINE = MergeTree ORDER BY id"
        )
    made = Pipeline(bootstrap, server.settings, app, "away", tmp_path)
    made.create_source()
    yield made
    made.stop_all()


def test_one_message_for_an_unknown_table_stops_no_other(
    pipeline: Pipeline, server: OwnServer
) -> None:
    """Nor after a restart in the outage. Red before: the relay waited without polling, for all
    tables. Once ClickHouse is back a table that is there gets its rows, and one that is not gives a
    dead letter, each once; before, nothing is said of either."""
    config = pipeline.config(wait_for_servers_seconds=0.0)
    first = pipeline.start("a", config)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows().total() == 10, "rows before the outage")

    server.stop()
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for table, row in (("away.typo", 900), ("away.new", 10)):
        pipeline.produce(producer, row_batch([row]), 0, [("table", table.encode())])
    assert producer.flush(30) == 0
    for partition in range(2):  # both behind the message, and beside it
        pipeline.send(range(20 + 10 * partition, 30 + 10 * partition), partition)
    pipeline.until(lambda: pipeline.rows().total() == 30, "rows of a table known before")
    first.send_signal(signal.SIGTERM)
    assert pipeline.end_of(first) == 0
    floor = pipeline.floor(0)

    second = pipeline.start("a", config)
    pipeline.send(range(40, 50))
    pipeline.until(lambda: pipeline.rows().total() == 40, "rows after a restart")
    assert pipeline.dead() == []
    assert pipeline.floor(0) == floor == 10, "before the first message that is held back"

    server.start()
    pipeline.sent[10] += 1
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")
    pipeline.exactly_once()
    ((_, headers),) = pipeline.dead()
    assert "unknown table away.typo" in headers["reason"]
    second.send_signal(signal.SIGTERM)
    assert pipeline.end_of(second) == 0


def test_a_server_that_says_nothing_keeps_nobody(pipeline: Pipeline, server: OwnServer) -> None:
    """Red before: the relay waited half a minute for each answer, and polled for 2 s between two.

    Three times longer than the time between two questions, so that each of them is met.
    """
    pipeline.start("a", pipeline.config(wait_for_servers_seconds=0.0))
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows before the silence")
    server.pause()
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, row_batch([10]), 0, [("table", b"away.new")])
    assert producer.flush(30) == 0

    begun = time.monotonic()
    first = 20
    while time.monotonic() < begun + 3 * 2.0:
        pipeline.send(range(first, first + 10), partition=1)
        pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows in the silence", LATE)
        first += 10

    server.resume()
    pipeline.sent[10] += 1
    pipeline.exactly_once()
    assert pipeline.dead() == []
