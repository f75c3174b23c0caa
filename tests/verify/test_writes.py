"""Recorded INSERTs against their blocks, without a server: each rule, and what it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay import names
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.ledger_history import History, claims, impossible
from relay.operate.verify.judge.server_records import (
    Reach,
    Recorded,
    Statement,
    ViewRun,
    Written,
    groups,
)
from relay.operate.verify.judge.table_facts import Removal, TableFacts
from relay.operate.verify.judge.writes import TableWrites, Writes
from relay.records_pb2 import Block

A, B, T, V = "a:d.t:0:0:0", "a:d.t:0:0:1", "d.t", "d.v"
SEALED = 100_000
LOADED = History("loaded", SEALED + 1_000, SEALED + 3_000, 1)
ALL = Reach(since_ms=0, until_ms=10**9)
PLAIN = TableFacts("MergeTree", "MergeTree ORDER BY id")
VIEWED = replace(PLAIN, views=(V,))


def block(name: str = A) -> Block:
    return Block(id=name, table=T, rows=10, sealed_at_ms=SEALED, partition=4)


def statement(
    at: int = 2_000, rows: int = 10, tried: int = 10, *names: str, finished: bool = True
) -> Statement:
    at_ms = SEALED + at
    return Statement(
        frozenset(names or (A,)),
        at_ms,
        finished,
        code=0 if finished else 252,
        rows=tried if finished else 0,
        written={T: Written(rows, tried, at_ms)} if tried else {},
    )


def table(*statements: Statement, names: tuple[str, ...] = (A,), reach: Reach = ALL) -> TableWrites:
    return TableWrites(
        T,
        PLAIN,
        {name: block(name) for name in names},
        frozenset(names),
        dict.fromkeys(names, LOADED),
        Recorded(statements, reach),
    )


def judged(of: TableWrites) -> tuple[list[AnomalyKind], str]:
    writes = Writes(of)
    found = list(writes.judge())
    assert all(one.partition == 4 for one in found)
    return [one.kind for one in found], "\n".join([*(one.text for one in found), *writes.lines()])


def test_written_once() -> None:
    assert judged(table(statement())) == ([], "")
    assert judged(table(statement(), statement(3_000, 0))) == ([], ""), "the token dropped it"
    partial = statement(2_000, 4, 4, finished=False)
    assert judged(table(partial, statement(3_000, 6))) == ([], ""), "the rest, under the token"


def test_written_twice_and_not_at_all() -> None:
    assert judged(table(statement(), statement(3_000)))[0] == [AnomalyKind.OVERLAP]
    assert judged(table())[0] == [AnomalyKind.GAP]
    assert judged(table(statement(2_000, 4, 4)))[0] == [AnomalyKind.GAP]
    assert judged(table(statement(2_000, 0, 0)))[0] == [AnomalyKind.GAP]


def test_blocks_that_went_together() -> None:
    both = (A, B)
    assert judged(table(statement(2_000, 20, 20, *both), names=both))[0] == []
    again = statement(3_000, 10, 10, B)
    found, text = judged(table(statement(2_000, 20, 20, *both), again, names=both))
    assert found == [AnomalyKind.OVERLAP]
    assert "2 blocks in one INSERT" in text
    assert judged(table(statement(2_000, 10, 10, *both), again, names=both))[0] == []
    assert judged(table(statement(2_000, 15, 15, *both), names=both))[0] == [AnomalyKind.GAP]
    assert judged(table(statement(2_000, 99, 99, A, "unknown")))[0] == []


def test_statements_join_over_others() -> None:
    one, two, three = (statement(0, 1, 1, *names) for names in ("a", "b", "ab"))
    assert len(list(groups([one, two]))) == 2
    (joined,) = groups([one, two, three])
    assert (joined.blocks, len(joined.statements)) == ({"a", "b"}, 3)


@pytest.mark.parametrize(
    ("reach", "doubt"),
    [
        (Reach(SEALED - 4_999, 10**9), "begin after"),
        (Reach(0, SEALED + 2_999), "newest log records"),
        (Reach(0, 10**9, SEALED), "was restarted since"),
        (Reach(but="the user may not"), "the user may not"),
    ],
)
def test_logs_that_may_lack_a_record_prove_no_loss(reach: Reach, doubt: str) -> None:
    found, text = judged(table(reach=reach))
    assert found == []
    assert doubt in text
    assert "only the ledger says that it is loaded" in text
    assert judged(table(statement(), statement(3_000), reach=reach))[0] == [AnomalyKind.OVERLAP]
    assert judged(table(statement(), reach=reach)) == ([], ""), "the record is there"
    counted = replace(table(reach=reach), counted={A: 10})
    assert judged(counted) == ([], ""), "its rows were counted"


def test_a_person_who_decided() -> None:
    of = table()
    assert judged(replace(of, ledger={A: replace(LOADED, asked=True)})) == ([], "")
    assert judged(replace(of, ledger={A: History("parked")})) == ([], "")


@pytest.mark.parametrize(
    ("removed", "history", "kinds"),
    [
        (2_500, LOADED, [AnomalyKind.OVERLAP]),
        (2_500, replace(LOADED, claimed_ms=SEALED + 2_700), []),
        (2_500, replace(LOADED, asked=True), []),
        (1_500, replace(LOADED, claimed_ms=SEALED + 2_700), [AnomalyKind.OVERLAP]),
        (3_500, replace(LOADED, claimed_ms=SEALED + 2_700), [AnomalyKind.OVERLAP]),
    ],
)
def test_inserted_again_after_a_removal(
    removed: int, history: History, kinds: list[AnomalyKind]
) -> None:
    """Right where the ledger went with the rows, or a person asked for it."""
    facts = replace(PLAIN, removals=(Removal(SEALED + removed, "TRUNCATE"),))
    of = replace(table(statement(), statement(3_000)), facts=facts, ledger={A: history})
    found, text = judged(of)
    assert found == kinds
    assert ("inserted again after rows were removed" in text) == (not kinds)
    other = replace(facts.removals[0], blocks=frozenset({B}))
    assert judged(replace(of, facts=replace(facts, removals=(other,))))[0] == [AnomalyKind.OVERLAP]
    thrice = replace(of, recorded=Recorded((statement(), *of.recorded.statements), ALL))
    assert judged(thrice)[0] == [AnomalyKind.OVERLAP], "twice before the removal"


def test_what_was_doubled_and_is_there_once_now() -> None:
    of = replace(table(statement(), statement(3_000)), counted={A: 10})
    assert judged(of)[0] == []
    assert "in the table only once now" in judged(of)[1]
    assert judged(replace(of, counted={A: 20}))[0] == [AnomalyKind.OVERLAP]
    seen = [
        replace(one, written={**one.written, V: Written(1, 1, one.at_ms)})
        for one in of.recorded.statements
    ]
    of = replace(of, recorded=Recorded(tuple(seen), ALL))
    assert judged(of)[0] == [AnomalyKind.OVERLAP], "its view has them twice"


def viewed(*statements: Statement, reach: Reach = ALL, history: History = LOADED) -> TableWrites:
    of = table(*statements, reach=reach)
    return replace(of, facts=VIEWED, counted={A: 10}, ledger={A: history})


def test_views() -> None:
    done, failed = {V: ViewRun(True)}, {V: ViewRun(False, 252)}
    first = statement(2_000, finished=False)
    assert judged(viewed(statement())) == ([], "")
    assert judged(viewed(first))[0] == [AnomalyKind.GAP], "the table has it, no INSERT finished"
    assert judged(viewed(first, statement(3_000, 0))) == ([], ""), "repaired under the token"
    empty = replace(statement(3_000, 0, 0), rows=0)
    assert judged(viewed(first, empty))[0] == [AnomalyKind.GAP], "a condition was false: no repair"
    assert judged(viewed(replace(statement(), views=failed)))[0] == [AnomalyKind.GAP]
    repaired = replace(first, views=failed), replace(statement(3_000, 0), views=done)
    assert judged(viewed(*repaired)) == ([], "")


def test_views_of_a_server_that_was_killed() -> None:
    """A loader that marked after the start had no answer from before: it counted."""
    reach = Reach(0, 10**9, SEALED + 2_500)
    assert judged(viewed(reach=reach))[0] == [AnomalyKind.GAP]
    assert judged(viewed(statement(3_000, 0), reach=reach))[0] == []
    early = replace(LOADED, loaded_ms=SEALED + 2_000)
    found, text = judged(viewed(reach=reach, history=early))
    assert found == []
    assert "what d.v got is not judged" in text


def test_a_ledger_that_cannot_be_true() -> None:
    early = replace(LOADED, loaded_ms=SEALED - 5_001)
    assert [one.kind for one in impossible([block()], {A: early})] == [AnomalyKind.FOREIGN]
    assert list(impossible([block()], {A: replace(early, loaded_ms=SEALED - 5_000)})) == []
    assert list(impossible([block()], {})) == []
    assert list(claims(T, {A: replace(LOADED, claims=2)})) == []
    assert list(claims(T, {A: replace(LOADED, claims=3)})) != []


def test_a_comment_names_blocks_and_perhaps_a_claim() -> None:
    assert names.commented(names.insert_comment([A, B])) == [A, B]
    assert names.commented(f"{A},claim=0f") == [A]
