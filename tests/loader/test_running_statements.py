"""Whether an INSERT still runs, asked of one server: one question, as cheap as it can be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.httpclient import HttpClient

from loader.clickhouse.client import connect
from loader.clickhouse.running_statements import Running
from loader.clickhouse.servers import several
from relay.config.server_settings import ClickHouse
from relay.records_pb2 import Block
from tests import reach
from tests.loader.test_replicas import Recorded

BLOCK = Block(id="app:db.t:0:0:0", table="db.t")


@pytest.fixture
def recorded(clickhouse: ClickHouse) -> Iterator[Recorded]:
    made = Recorded(clickhouse)
    yield made
    made.stop()


def test_one_server_is_asked_one_question(recorded: Recorded) -> None:
    """However often; nothing else is asked, and nobody else."""
    alone = recorded.reached
    client = connected(alone)
    asked = Running(client, alone)
    recorded.statements.clear()
    assert not asked.of(BLOCK).running
    assert not asked.of(BLOCK).running
    assert len(recorded.statements) == 2
    assert all("system.processes" in sql for sql, _ in recorded.statements)
    client.close()


def test_with_a_quorum_a_table_of_one_server_is_asked_of_it(clickhouse: ClickHouse) -> None:
    """A quorum may be configured before any table is replicated."""
    ready = clickhouse.model_copy(update={"insert_quorum": 2})
    client = connected(ready)
    asked = Running(client, ready)
    assert not asked.of(BLOCK).running
    asked.close()
    client.close()


def test_one_server_is_not_several(clickhouse: ClickHouse) -> None:
    assert not several(clickhouse, "MergeTree")
    assert not several(reach.elsewhere(clickhouse, "http://127.0.0.1:1"), "")


def connected(settings: ClickHouse) -> HttpClient:
    return connect(settings, 60)
