"""Rows that counting misses, without a server: when that is a loss, and when it proves nothing."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.contents import landed
from relay.operate.verify.judge.ledger_history import History
from relay.operate.verify.judge.missing_rows import Missing
from relay.operate.verify.judge.server_records import Reach, Recorded, Statement, Written
from relay.operate.verify.judge.table_facts import Removal, TableFacts
from relay.operate.verify.read import server_logs
from relay.records_pb2 import Block

A, B, T = "a:d.t:0:0:0", "a:d.t:0:0:1", "d.t"
BLOCK = Block(id=A, table=T, rows=10, sealed_at_ms=100_000)
PLAIN = TableFacts("MergeTree", "MergeTree ORDER BY id")
STAMPED = History("loaded", 101_000, 103_000, 1)
BARE = History("loaded", 101_000, 103_000, 1, unstamped=True)
BOTH = History("loaded", 101_000, 103_000, 2, unstamped=True, stamped={"s"})


def wrote(rows: int, claim: str, *blocks: str, table: str = T) -> Statement:
    written = {table: Written(rows, rows, 102_000)}
    return Statement(frozenset(blocks or {A}), 102_000, True, 0, rows, written, claim=claim)


@pytest.mark.parametrize(
    ("history", "rows", "statements", "explained"),
    [
        (STAMPED, 0, (), False),
        (STAMPED, 9, (wrote(10, "s"),), False),
        (BARE, 0, (), True),
        (BARE, 0, (wrote(10, "b"),), True),
        (BOTH, 0, (), True),  # what the server recorded is not there, or not to be read
        (BOTH, 0, (wrote(10, "b"), wrote(0, "s")), True),
        (BOTH, 0, (wrote(10, "s"),), False),
        (BOTH, 6, (wrote(4, "b"), wrote(6, "s")), True),
        (BOTH, 5, (wrote(4, "b"), wrote(6, "s")), False),
        (BOTH, 0, (wrote(10, ""),), True),  # by an earlier version, which did not name the claim
        (BOTH, 0, (wrote(10, "s", A, B),), True),  # whose rows these are is not said
        (BOTH, 0, (wrote(10, "s", table="d.v"),), True),
    ],
)
def test_blocks_claimed_before_the_table_had_the_column(
    history: History, rows: int, statements: tuple[Statement, ...], *, explained: bool
) -> None:
    """At least those rows carry the id that a claim of later wrote, as the server recorded."""
    missing = Missing(T, PLAIN, {A: history}, "_block", "", Recorded(statements))
    assert missing.explained(BLOCK, rows, 10) == explained
    assert missing.excused == ({A} if explained else set())
    said = f"{T}: loaded before the table had _block: what is missing now is not judged by counting"
    line = f"{said}: 1 block, {10 - rows} rows ({A})"
    assert list(missing.lines()) == ([line] if explained else [])


def test_rows_removed_since_that_carried_the_id() -> None:
    facts = TableFacts("MergeTree", removals=(Removal(104_000, "TRUNCATE"),))
    missing = Missing(T, facts, {A: BOTH}, "_block", "", Recorded((wrote(10, "s"),)))
    assert missing.explained(BLOCK, 0, 10)
    (line,) = missing.lines()
    assert "(TRUNCATE): what is missing now is not judged: 1 block, 10 rows" in line


@pytest.mark.parametrize(
    ("forgotten_ms", "explained"), [(0, False), (100_000, False), (104_000, True)]
)
def test_removals_that_the_server_may_have_forgotten(forgotten_ms: int, *, explained: bool) -> None:
    """Of a block that is older than what is left of the record, nobody knows."""
    facts = TableFacts("ReplicatedMergeTree", forgotten_ms=forgotten_ms)
    missing = Missing(T, facts, {A: STAMPED}, "_block")
    assert missing.explained(BLOCK, 0, 10) is explained
    assert ("finished_mutations_to_keep" in "".join(missing.lines())) is explained


@pytest.mark.parametrize(
    ("reach", "unasked", "said"),
    [
        (Reach(101_000), "", "no removal of rows is recorded since then"),
        (
            Reach(110_000),
            "",
            "but the server's logs begin after the block, at 1970-01-01 00:01:50 UTC, and would",
        ),
        (Reach(110_000, but="the table has 3 replicas"), "", "begin after the block"),
        (Reach(110_000), "no right", "whether rows were removed is not known: no right"),
    ],
)
def test_rows_that_are_gone_are_a_gap_whatever_the_logs_reach(
    reach: Reach, unasked: str, said: str
) -> None:
    """A removal that is older than the logs was no less one: it is not said that there was none."""
    missing = Missing(T, PLAIN, {A: STAMPED}, "_block", unasked, Recorded((), reach))
    (gap,) = landed([BLOCK], {}, {A: STAMPED}, 200_000, 60, missing=missing)
    assert gap.kind == AnomalyKind.GAP
    told = gap.text.removeprefix(f"block {A} is loaded, but the table has 0 of its 10 rows; ")
    assert said in told
    assert told.endswith(f" (if you removed them, give --removed {T})")


class Logs:
    """A server whose logs begin at 90 s, and have no INSERT of the app."""

    unanswered: ClassVar[dict[str, str]] = {}

    def ask(self, _: str, sql: str, **__: object) -> list[Any]:
        if sql == server_logs._UP:
            return [(50_000,)]
        return [(5, 90_000, 200_000)] if sql.startswith("\nSELECT count()") else []


@pytest.mark.parametrize(
    ("replicas", "but"),
    [(1, "system.query_log has no INSERT"), (3, "the table has 3 replicas, each with logs")],
)
def test_logs_that_lack_inserts_begin_somewhere_all_the_same(replicas: int, but: str) -> None:
    """Of an app that loads no more, every INSERT may have expired, as a removal may have."""
    logs: Any = Logs()
    read = server_logs.ServerLogs(logs, "a", several=False)
    reach = read.recorded(T, TableFacts("MergeTree", replicas=replicas), 0).reach
    assert reach.since_ms == 90_000
    assert reach.but.startswith(but)
