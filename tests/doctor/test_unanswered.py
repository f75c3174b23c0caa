"""An answer that was never given is no "there is none": a ClickHouse that refuses some questions.

As with max_result_rows in the user's profile (396), a memory limit (241) or a time limit (159).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka import TopicPartition

from relay.clickhouse.table_engine import LISTED_HERE
from relay.operate.doctor.ask import clickhouse as ask
from relay.operate.doctor.ask.group import GroupQuestions
from relay.operate.doctor.facts import ClickHouseFacts
from relay.operate.doctor.findings import Finding
from relay.operate.doctor.judge import rights
from relay.operate.doctor.judge.clickhouse import judge
from relay.operate.doctor.judge.ledger import judge_absence
from relay.operate.view import lost_ledger
from tests.doctor.cases import JOURNAL
from tests.doctor.healthy import OUTAGE, TABLE, codes, kafka, of_kafka, settings, topics

ORDERS: tuple[Any, ...] = (
    "shop",
    "orders",
    "",
    "MergeTree",
    "MergeTree ORDER BY id",
    "",
    "",
    "",
    [],
)
LEDGER: tuple[Any, ...] = (
    "relay",
    "ledger",
    "",
    "MergeTree",
    "MergeTree ORDER BY app",
    "",
    "",
    "",
    [],
)
COLUMNS = [(TABLE, [("id", ("Int64", "")), ("_block", ("String", ""))])]
WINDOWS = [("non_replicated_deduplication_window", "10000")]

EVERY, RELAY, COLUMN, WINDOW = "every", "relay", "FROM system.columns", "_deduplication_window%"


@dataclass
class Server:
    """ClickHouse with these tables, which refuses questions that contain one of these texts."""

    tables: Collection[tuple[Any, ...]]
    refused: Collection[str]
    server_version: str = "26.9.2.1"

    def query(self, sql: str, parameters: dict[str, Any]) -> Any:
        listed = "create_table_query" in sql
        database = parameters.get("database")
        asked = EVERY if listed and LISTED_HERE in sql else database if listed else sql
        if any(asked == one or one in sql for one in self.refused):
            raise DatabaseError("Code: 396. Limit for result exceeded", code=396)
        if listed:
            rows = [one for one in self.tables if database in {None, one[0]}]
        elif sql == lost_ledger._LEDGERS:
            rows = [one[:1] for one in self.tables if one[1] == "ledger"]
        elif sql == lost_ledger._OF_APP:
            rows = [(1,)]
        else:
            rows = COLUMNS if COLUMN in sql else WINDOWS if WINDOW in sql else []
        return SimpleNamespace(result_rows=rows)

    def command(self, _: str) -> int:
        return 1

    def close(self) -> None:
        pass


Look = Callable[[Server], ClickHouseFacts]


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    def looked(server: Server) -> ClickHouseFacts:
        monkeypatch.setattr(ask, "connect", lambda _: server)
        monkeypatch.setattr(ask, "servers", lambda _: ())
        monkeypatch.setattr(ask, "shown_once_there", lambda *_: None)
        return ask.ClickHouseQuestions(settings()).look([TABLE])

    return looked


def found(facts: ClickHouseFacts) -> list[Finding]:
    return [
        *judge(settings(), facts, OUTAGE),
        *rights.judge_clickhouse(facts),
        *judge_absence(settings(), kafka(journal=JOURNAL), facts, {0: 7}),
    ]


@pytest.mark.parametrize("refused", [(), (EVERY,), (EVERY, RELAY)], ids=len)
def test_a_ledger_that_nobody_was_told_of_is_not_lost(look: Look, refused: tuple[str, ...]) -> None:
    """Red before: `ledger-lost`, since "relay.ledger has entries of app app"."""
    facts = look(Server([ORDERS, LEDGER], refused))
    assert (facts.ledger is None) == (RELAY in refused)
    assert codes(found(facts)) == {"decided-by"}
    assert len(facts.unasked) == len(refused)


def test_what_the_ledger_needs_is_asked_once_it_is_known_whether_it_is_there(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(_: Server, text: str) -> int:
        asked.append(text)
        return 1

    monkeypatch.setattr(Server, "command", noted)
    look(Server([ORDERS, LEDGER], (EVERY, RELAY)))
    assert not [text for text in asked if "relay." in text]
    look(Server([ORDERS], (EVERY,)))
    assert [text for text in asked if "CREATE TABLE ON relay.*" in text]


def test_a_ledger_that_is_not_there_is_lost(look: Look) -> None:
    """Negative control; also on a server that has no tables at all, as a new one has none."""
    assert "ledger-lost" in codes(found(look(Server([ORDERS], (EVERY,)))))
    assert codes(found(look(Server([], ())))) == {"table-missing", "ledger-lost"}


@pytest.mark.parametrize("refused", [COLUMN, WINDOW])
def test_columns_and_windows_that_were_not_told_are_judged_by_nothing(
    look: Look, refused: str
) -> None:
    """Red before: no right to see columns, no column _block, a window of no parts."""
    facts = look(Server([ORDERS, LEDGER], (refused,)))
    assert codes(found(facts)) == set()
    assert {one.reason for one in facts.unasked} == {"Code: 396. Limit for result exceeded"}


def test_columns_that_the_server_does_not_show_are_a_missing_right(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: it answered, and named none of a table that has at least one."""
    monkeypatch.setitem(globals(), "COLUMNS", [])
    assert [one.what for one in found(look(Server([ORDERS, LEDGER], ())))] == [
        f"user default has no SHOW COLUMNS on {TABLE}"
    ]


@pytest.mark.parametrize(("absent", "told"), [((), set()), (("app.journal",), {"journal-passed"})])
def test_a_journal_that_could_not_be_asked_about_is_not_gone(
    absent: tuple[str, ...], told: set[str]
) -> None:
    """Red before: "app.journal[0] does not exist", also where the brokers had not said so."""
    floor = TopicPartition("rows", 0, 10, '{"n":1,"journal":5}')
    committed = SimpleNamespace(topic_partitions=[floor])
    first = SimpleNamespace(offset=10)
    brokers: Any = SimpleNamespace(
        answer=lambda what, _: committed if what.startswith("committed") else first
    )
    seen = {name: one for name, one in topics().items() if name != "app.journal"}
    heads = GroupQuestions(settings(), brokers, brokers).heads(seen, absent)
    assert codes(of_kafka(kafka(topics=seen, heads=heads))) == told
