"""Recorded INSERTs against their blocks, without a server: each rule, and what it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay import names
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.ledger_history import (
    History,
    WaitingBlock,
    claims,
    impossible,
    lost,
    waiting_lines,
)
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


MERGING = TableFacts("SummingMergeTree", "SummingMergeTree ORDER BY id")


def vanished(at: int, rows: int, *names: str, finished: bool = True) -> Statement:
    """An INSERT of so many rows, which made no part."""
    return replace(statement(at, 0, 0, *names, finished=finished), rows=rows)


@pytest.mark.parametrize(
    ("statements", "lost"),
    [
        ((vanished(2_000, 20, A, B),), False),
        ((vanished(2_000, 19, A, B),), True),
        ((vanished(2_000, 20, A, B, finished=False),), True),
        ((vanished(2_000, 0, A, B),), True),
        ((vanished(1_000, 0, A, B), vanished(2_000, 10, A), vanished(3_000, 10, B)), False),
        ((vanished(1_000, 0, A, B), vanished(2_000, 10, A), statement(3_000, 1, 1, B)), False),
        ((vanished(1_000, 0, A, B), vanished(2_000, 10, A)), True),
        ((vanished(1_000, 0, A, B), statement(2_000, 1, 1, A)), True),
    ],
)
def test_engines_that_merge_rows_into_nothing(
    statements: tuple[Statement, ...], *, lost: bool
) -> None:
    """Each block has come in an INSERT of all its rows, whatever the engine left of them."""
    of = replace(table(*statements, names=(A, B)), facts=MERGING)
    assert judged(of)[0] == ([AnomalyKind.GAP] if lost else [])
    assert judged(replace(of, facts=PLAIN))[0] == [AnomalyKind.GAP], "it merges nothing"


def test_rows_of_views_are_none_of_the_table() -> None:
    """The server counts them together."""
    seen = replace(vanished(2_000, 10), views={V: ViewRun(True, rows=1)})
    assert judged(replace(table(seen), facts=MERGING))[0] == [AnomalyKind.GAP]
    assert judged(replace(table(replace(seen, rows=11)), facts=MERGING))[0] == []


def test_nothing_made_of_a_block_needs_no_insert() -> None:
    """The other of the two went alone, after an INSERT of both had failed."""
    of = table(vanished(1_000, 0, A, B, finished=False), statement(2_000, 1, 1, A), names=(A, B))
    assert judged(replace(of, facts=MERGING, made={B: 0}))[0] == []


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


@pytest.mark.parametrize("reach", [ALL, Reach(but="the user may not")])
def test_what_counting_excused_is_judged_by_the_record(reach: Reach) -> None:
    """Rows of the table were removed since: the record still says whether all were written."""
    counted = replace(table(statement(2_000, 4, 4), reach=reach), counted={A: 4})
    assert judged(counted) == ([], ""), "counting has judged it"
    found, text = judged(replace(counted, excused={A}))
    assert found == ([AnomalyKind.GAP] if reach is ALL else [])
    assert ("only the ledger says that it is loaded" in text) == (reach is not ALL)
    written = replace(counted, recorded=Recorded((statement(),), reach), excused={A})
    assert judged(written) == ([], "")


def test_a_person_who_decided() -> None:
    """What a loader inserted as they asked is judged as any other block; a word proves no row."""
    of = table()
    retried = replace(of, ledger={A: replace(LOADED, asked=True)})
    assert judged(retried)[0] == [AnomalyKind.GAP]
    assert judged(replace(retried, recorded=Recorded((statement(),), ALL))) == ([], "")
    said = replace(of, ledger={A: replace(LOADED, asked=True, said=True)})
    found, text = judged(said)
    assert found == []
    assert text == (
        f"{T}: the server did not record all of its rows: only a person says that it is loaded: "
        f"1 block ({A})"
    )
    assert judged(replace(said, recorded=Recorded((statement(),), ALL))) == ([], "")
    unknown = judged(replace(said, recorded=Recorded((), Reach(but="the user may not"))))
    assert unknown[0] == []
    assert "the user may not: only the ledger says that it is loaded" in unknown[1]
    assert judged(replace(of, ledger={A: History("parked")})) == ([], "")


def test_a_person_who_decided_about_a_view() -> None:
    """The table has all rows, by a count, and its view got none: as they may have found."""
    first = statement(2_000, finished=False)
    said = replace(LOADED, asked=True, said=True)
    found, text = judged(viewed(first, history=said))
    assert found == []
    assert "only a person says that it is loaded" in text
    assert judged(viewed(first, history=replace(said, said=False)))[0] == [AnomalyKind.GAP]


SAID = replace(LOADED, asked=True, said=True)
WORD = "only a person says that it is loaded"


def of_which_b_is_said(*statements: Statement, facts: TableFacts = PLAIN) -> TableWrites:
    of = table(*statements, names=(A, B))
    return replace(of, facts=facts, ledger={A: LOADED, B: SAID})


def test_a_person_who_decided_about_one_block_of_a_failed_view() -> None:
    """Red before: the line named the other block and no view, and nothing told what it lacks."""
    failed = replace(statement(2_000, 20, 20, A, B, finished=False), views={V: ViewRun(False, 252)})
    of = replace(of_which_b_is_said(failed, facts=VIEWED), counted={A: 10, B: 10})
    lacks = f"view {V} failed with error 252 and no later INSERT brought it the rows"
    line = f"{T}: {lacks}: {WORD}: 1 block ({B})"
    assert judged(of) == ([AnomalyKind.GAP], f"block {A} is loaded, but {lacks}\n{line}")
    assert judged(replace(of, ledger=dict.fromkeys((A, B), SAID))) == ([], line.replace(B, A))


@pytest.mark.parametrize("facts", [PLAIN, MERGING])
def test_a_person_who_decided_about_rows_of_one_block(facts: TableFacts) -> None:
    """The other was inserted alone since: it lacks nothing, whatever theirs does."""
    failed = vanished(1_000, 0, A, B, finished=False)
    line = f"{T}: the server did not record all of its rows: {WORD}: 1 block ({B})"
    alone = statement(2_000, 10, 10, A)
    assert judged(of_which_b_is_said(failed, alone, facts=facts)) == ([], line)
    found, text = judged(of_which_b_is_said(failed, facts=facts))
    assert found == [AnomalyKind.GAP]
    assert text == f"block {A} is loaded, but the server recorded 0 rows of 10\n{line}"


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
    bare = replace(of, counted={A: 0}, ledger={A: replace(LOADED, unstamped=True)})
    assert judged(bare)[0] == [AnomalyKind.OVERLAP], "they are there without its id"
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


def test_a_view_that_is_not_there_any_more() -> None:
    """It lacks nothing that anybody could read; one that was made anew is another."""
    gone = {V: ViewRun(False, 252, there=False), "d.good": ViewRun(True)}
    first = replace(statement(2_000, finished=False), views=gone)
    retried = replace(statement(3_000, 0), views={"d.good": ViewRun(True)})
    found, text = judged(viewed(first, retried))
    assert found == []
    assert f"view {V} failed with error 252, and was dropped or replaced since" in text
    anew = replace(first, views={**gone, V: ViewRun(False, 252)})
    assert judged(viewed(anew, retried))[0] == [], "one of its name was made after the last INSERT"
    assert judged(viewed(anew, replace(retried, views={})))[0] == [AnomalyKind.GAP], "not logged"
    assert judged(viewed(anew, replace(retried, views=anew.views)))[0] == [AnomalyKind.GAP]
    failed = replace(retried, views={"d.other": ViewRun(False, 1)})
    assert judged(viewed(first, failed))[0] == [AnomalyKind.GAP], "another failed"


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


@pytest.mark.parametrize(
    ("log", "rows", "kinds"),
    [
        ((7, 9), 0, []),
        ((8, 9), 0, [AnomalyKind.GAP]),
        ((8, 9), 4, [AnomalyKind.GAP]),
        ((8, 9), 10, []),  # parked, as it could not be told, and all of them are there
        ((0, 8), 0, [AnomalyKind.GAP]),  # its end was lost, or the topic was made anew
        (None, 0, [AnomalyKind.GAP]),
        ("unknown", 0, []),
    ],
)
def test_a_block_that_waits_needs_its_records(
    log: tuple[int, int] | str | None, rows: int, kinds: list[AnomalyKind]
) -> None:
    one = block()
    one.topic, one.share.partition = "a.blocks.d.t", 2
    one.first_offset, one.next_offset = 7, 9
    logs = {} if isinstance(log, str) else {("a.blocks.d.t", 2): log}
    found = list(lost([WaitingBlock(one, "parked", rows)], logs))
    assert [one.kind for one in found] == kinds
    assert all("is parked, not loaded, and its records from offset 7 on" in f.text for f in found)


def test_blocks_that_wait_are_counted_by_state() -> None:
    states = {A: "aside", B: "parked", "a:d.t:0:0:2": "aside"}
    waiting = [WaitingBlock(block(name), state) for name, state in states.items()]
    why = "not loaded yet (`loader parked ls` says why)"
    assert list(waiting_lines(T, waiting)) == [
        f"{T}: set aside, {why}: 2 blocks, 20 rows (the first is {A})",
        f"{T}: parked, {why}: 1 block, 10 rows ({B})",
    ]


def test_a_comment_names_blocks_and_perhaps_a_claim() -> None:
    assert names.commented(names.insert_comment([A, B])) == [A, B]
    assert names.commented(f"{A},claim=0f") == [A]
