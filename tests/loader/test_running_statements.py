"""Whether an INSERT still runs, asked of one server, and of a balancer that is made up here.

Of one server it is one question, as cheap as it can be. tests/replicas asks real replicas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clickhouse_connect.driver.httpclient import HttpClient

from loader.clickhouse import running_statements
from loader.clickhouse.client import connect
from loader.clickhouse.running_statements import Definition, Running, Runs
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


class Balancer(running_statements._AskedServer):
    """Each connection to it reaches the next server, and gets the answer of that."""

    def __init__(self, *answers: Any) -> None:
        self.url, self._answers = "http://balancer", cycle(answers)

    def ask(self, *_: Any, afresh: bool = False) -> Any:
        assert afresh
        return next(self._answers)

    def close(self) -> None: ...


NO_REPLICA: list[Any] = []
"""Of a server that has not got the table, or not yet."""


def says(replica: str, answer: Any) -> list[Any]:
    """Of a replica of a table that has two."""
    return [(replica, ["r1", "r2"], answer)]


def behind(balancer: Balancer, *, knows: Sequence[str] = ()) -> Running:
    """Questions through it, with a client whose server knows these replicas of the table."""

    def query(sql: str, **_: Any) -> Any:
        if sql == running_statements._REPLICA:
            return SimpleNamespace(result_rows=[("r2", list(knows))] if knows else [])
        return SimpleNamespace(result_rows=[([] if "groupUniq" in sql else 0,)])

    client = cast("HttpClient", SimpleNamespace(query=query))
    made = Running(client, ClickHouse(url="http://127.0.0.1:1", insert_quorum="auto"))
    made._balancer = balancer
    return made


def here(running: int) -> Any:
    return running, Definition("ReplicatedMergeTree", "", 0, "26.9.2.1", [])


def test_a_server_that_has_not_got_the_table_is_no_replica_of_it() -> None:
    """A new one behind a balancer ended the question, whatever its replicas ran."""
    still = behind(Balancer(NO_REPLICA, says("r1", here(1)))).of(BLOCK)
    assert (still.running, still.silent) == (True, False)
    assert "still runs on r1, behind http://balancer" in still.reason
    both = Balancer(NO_REPLICA, says("r1", here(0)), NO_REPLICA, says("r2", here(0)))
    assert len(behind(both).of(BLOCK).definitions) == 2


@pytest.mark.parametrize(
    ("answers", "knows", "missing"),
    [
        pytest.param([NO_REPLICA, says("r1", here(0))], [], "r2", id="one is not met"),
        pytest.param([NO_REPLICA], ["r1", "r2"], "r1, r2", id="the client's server knows them"),
        pytest.param([NO_REPLICA, "refused"], [], r"of the table \(refused\)", id="no answer"),
    ],
)
def test_a_replica_that_was_not_met_is_named(
    answers: list[Any], knows: list[str], missing: str
) -> None:
    still = behind(Balancer(*answers), knows=knows).of(BLOCK)
    assert (still.running, still.silent) == (True, True)
    assert re.search(f"reached replica {missing}[; ]", still.reason), still.reason


def test_a_table_without_replicas_is_asked_of_the_server_in_use() -> None:
    assert not behind(Balancer(NO_REPLICA)).of(BLOCK).running
    runs = behind(Balancer(NO_REPLICA)).of_app("app", {BLOCK.table})
    assert runs == Runs(frozenset())


@pytest.mark.parametrize("knows", [[], ["r1", "r2"]])
def test_what_an_app_runs_is_not_ended_by_such_a_server(knows: list[str]) -> None:
    asked = behind(Balancer(NO_REPLICA, says("r1", [BLOCK.id])), knows=knows)
    assert asked.of_app("app", {BLOCK.table}) == Runs(
        frozenset({BLOCK.id}), frozenset({BLOCK.table})
    )
