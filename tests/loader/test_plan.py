from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

import pytest

from loader.clickhouse.server_records import Parts, inserted_since
from loader.core import plan, set_aside_plan
from loader.core.retry_cause import RetryCause
from loader.core.table_rules import Nature, Window, emptied, nature
from relay.clickhouse.table_keys import TableKeys
from tests.loader import model
from tests.loader.model import Guards, Table, Violation, begin, begin_left_out, search

pytestmark = pytest.mark.search

STAMPED, BARE = Table(stamped=True), Table(stamped=False)


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize(
    ("size", "loaders", "rounds", "faults", "others"),
    [
        # As the negative controls below.
        *((size, 2, 1, 1, 1) for size in (0, 1, 2)),
        *((size, 1, 3, 2, 2) for size in (0, 1, 2)),
        *(
            pytest.param(*bounds, marks=pytest.mark.long)
            for bounds in [
                (1, 2, 1, 1, 2),
                (2, 2, 1, 1, 2),
                (0, 1, 4, 3, 2),
                (1, 1, 4, 3, 2),
                (2, 1, 4, 3, 3),
            ]
        ),
    ],
)
def test_every_order_of_events(
    stamped: bool, size: int, loaders: int, rounds: int, faults: int, others: int
) -> None:
    """Loaders, faults, other inserts in every order: never doubled, never marked without rows."""
    table = Table(stamped=stamped, window=size)
    start = begin(table, loaders=loaders, rounds=rounds, faults=faults, others=others)
    states, endings = search(start, table, Guards())
    print(f"{table}: {states} states, endings {endings}")
    assert "loaded" in endings
    if stamped:
        assert endings == {"loaded"}, "counting decides every case of a plain table"


PARTITIONED = Table(window=6, parts=2, bounded=False)


@pytest.mark.parametrize(
    ("loaders", "rounds", "faults", "kills"),
    [(1, 3, 1, 2), pytest.param(2, 1, 1, 1, marks=pytest.mark.long)],
)
@pytest.mark.parametrize(
    "table",
    [
        Table(window=6),
        Table(window=6, stamped=False),
        PARTITIONED,
        replace(PARTITIONED, stamped=False),
        Table(window=6, replaces=True),
        Table(window=6, hidden=True),
        Table(window=6, expires=True),
    ],
)
def test_a_server_that_is_killed(
    table: Table, loaders: int, rounds: int, faults: int, kills: int
) -> None:
    """It may have logged a token without its part: no repeat under it counts as the rows."""
    bounds = {"loaders": loaders, "rounds": rounds, "faults": faults, "kills": kills}
    _, endings = search(begin(table, others=0, **bounds), table, Guards())
    assert "loaded" in endings


@pytest.mark.parametrize("table", [Table(window=6), PARTITIONED, Table(window=6, replaces=True)])
def test_a_server_that_is_killed_while_others_insert(table: Table) -> None:
    """The counter moves, so it says nothing; a count does, or a repeat changes nothing."""
    start = begin(table, loaders=1, rounds=3, faults=1, others=1, kills=1)
    _, endings = search(start, table, Guards())
    assert "loaded" in endings


VIEWED = Table(window=8, viewed=True)
RECORDED = replace(VIEWED, logged=True)


@pytest.mark.parametrize("table", [VIEWED, RECORDED])
@pytest.mark.parametrize("others", [0, 1])
def test_a_server_that_is_killed_with_a_view_behind_the_table(others: int, table: Table) -> None:
    """What only the token tells of the view, a count tells of the table, and no record."""
    start = begin(table, loaders=1, rounds=3, faults=1, others=others, kills=1)
    _, endings = search(start, table, Guards())
    assert endings == {"loaded", "parked"}


@pytest.mark.parametrize("human", ["absent", "retry"])
@pytest.mark.parametrize("table", [VIEWED, RECORDED, Table(window=6, parts=2, logged=True)])
def test_a_person_who_begins_a_parked_block_anew(table: Table, human: plan.Human) -> None:
    """And says so before the DELETE is done, or whose loader dies: no older record is believed."""
    start = begin(table, loaders=2, rounds=2, faults=1, others=1, human=human, kills=1, cleans=1)
    _, endings = search(start, table, Guards())
    assert endings == {"loaded", "parked"}


@pytest.mark.parametrize(
    ("guards", "table"),
    [
        (Guards(restarted=False), Table(window=6, stamped=False)),
        (Guards(anew=False), Table(window=6, stamped=False)),
        (Guards(anew=False), PARTITIONED),
        (Guards(anew=False), Table(window=6, replaces=True)),
        (Guards(anew=False), RECORDED),
    ],
)
def test_without_knowing_of_a_killed_server_the_search_finds_it(
    guards: Guards, table: Table
) -> None:
    start = begin(table, loaders=1, rounds=3, faults=1, others=0, kills=1)
    with pytest.raises(Violation, match="marked loaded with copies"):
        search(start, table, guards)


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("others", [0, pytest.param(1, marks=pytest.mark.long)])
def test_blocks_over_two_partitions(others: int, *, stamped: bool) -> None:
    """An INSERT that ends between its parts is completed or parked, never doubled."""
    table = Table(stamped=stamped, window=6, parts=2)
    start = begin(table, loaders=2, rounds=1, faults=1, others=others)
    _, endings = search(start, table, Guards())
    assert "loaded" in endings


@pytest.mark.parametrize(
    "table",
    [
        # Fewer rows of the second version; as many as two parts of the first; others, as many.
        *(Table(window=0, parts=2, sizes=sizes) for sizes in ((7, 4), (4, 8), (3, 3))),
        Table(stamped=False, window=2, sizes=(7, 4)),
        Table(stamped=False, window=6, parts=2, sizes=(3, 3)),
        Table(stamped=False, window=0, sizes=(7, 4), replaces=True),
    ],
)
def test_two_versions_of_a_transform(table: Table) -> None:
    """In every order: parts of both are never in the table, and the ledger names the right one."""
    _, endings = search(begin(table, loaders=2, rounds=1, faults=1, others=0), table, Guards())
    assert "loaded" in endings


@pytest.mark.parametrize("human", ["loaded", "discard"])
def test_a_person_beside_a_loader_with_a_transform(human: plan.Human) -> None:
    """A claim of a person's command inserts nothing, and is taken for no version's."""
    table = Table(sizes=(7, 4))
    start = begin(table, loaders=2, rounds=1, faults=1, others=1, human=human)
    _, endings = search(start, table, Guards())
    assert "loaded" in endings


@pytest.mark.parametrize(
    ("table", "unsaid"),
    [
        (Table(stamped=False, window=6, parts=2, sizes=(3, 3)), {"transform": "the same"}),
        (Table(window=0, parts=2, sizes=(4, 8)), {"rows": 8}),
    ],
)
def test_what_claims_do_not_say_of_versions_is_found(
    table: Table, unsaid: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: with one version, or one number of rows, in all claims."""
    real = model._made
    monkeypatch.setattr(model, "_made", lambda *of: replace(real(*of), **unsaid))
    monkeypatch.setattr(model, "_check_named", lambda *_: None)
    with pytest.raises(Violation, match=r"mixed|loaded with copies"):
        search(begin(table, loaders=2, rounds=1, faults=1, others=0), table, Guards())


@pytest.mark.parametrize(
    ("guards", "table"),
    [
        (Guards(ledger=False), STAMPED),
        (Guards(ledger=False), BARE),
        (Guards(prepare=False), STAMPED),
        (Guards(prepare=False), BARE),
        (Guards(condition=False), STAMPED),
        (Guards(condition=False), BARE),
        (Guards(running=False), STAMPED),
        (Guards(running=False), BARE),
        (Guards(fewer=False), Table(expires=True)),
        (Guards(fewer=False), Table(hidden=True)),
        (Guards(views=False), Table(window=0, viewed=True)),
        (Guards(), Table(stamped=False, window=6, deaf=True)),
    ],
)
def test_without_a_guard_the_search_finds_it(guards: Guards, table: Table) -> None:
    """Negative control: each guard taken away doubles rows somewhere.

    So does a version of ClickHouse that ignores tokens, against which no plan helps: the loader
    sends the setting that has it listen, and `relay doctor --try` looks.
    """
    with pytest.raises(Violation, match=r"doubled|marked loaded with copies"):
        search(begin(table, loaders=2, rounds=1, faults=1, others=1), table, guards)


def test_a_mark_taken_for_written_is_found() -> None:
    """Negative control: a loader that was overtaken calls a block loaded that nobody marked."""
    start = begin(STAMPED, loaders=2, rounds=2, faults=1, others=0)
    with pytest.raises(Violation, match="the ledger says nothing"):
        search(start, STAMPED, Guards(marked=False))


@pytest.mark.parametrize("guards", [Guards(limit=False), Guards(others=False)])
def test_without_a_bound_of_other_inserts_the_search_finds_it(guards: Guards) -> None:
    """Negative control: a repeated INSERT comes after its token has left the window."""
    table = Table(stamped=False, window=2)
    with pytest.raises(Violation, match="doubled"):
        search(begin(table, loaders=1, rounds=2, faults=1, others=2), table, guards)


@pytest.mark.parametrize(
    ("guards", "table", "deletes"),
    [
        (Guards(told=False), Table(lags=True), 0),
        (Guards(fewer=False), STAMPED, 1),
        (Guards(sent=False, emptied=False), Table(window=6), 1),
        (Guards(emptied=False), Table(stamped=False, window=6), 1),
    ],
)
def test_without_a_guard_of_evidence_the_search_finds_it(
    guards: Guards, table: Table, deletes: int
) -> None:
    """Negative control: a false success, deleted rows that come back, a token of several blocks."""
    start = begin(table, loaders=1, rounds=2, faults=1, others=1, deletes=deletes)
    with pytest.raises(Violation, match=r"doubled|marked loaded with copies"):
        search(start, table, guards)


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        (Table(expires=True), {"loaded", "parked"}),
        (Table(window=6, expires=True), {"loaded"}),
        # Parked where the server gave up a statement that had written something.
        (Table(window=0, expires=True, logged=True), {"loaded", "parked"}),
        (Table(hidden=True), {"loaded", "parked"}),
        (Table(window=6, viewed=True), {"loaded"}),
        (Table(window=0, viewed=True), {"loaded", "parked"}),
        (Table(stamped=False, window=6, viewed=True), {"loaded"}),
        (Table(stamped=False, window=0, replaces=True), {"loaded"}),
        (Table(stamped=False, window=0, logged=True), {"loaded", "parked"}),
        (Table(stamped=False, window=6, bounded=False), {"loaded", "parked"}),
        (Table(lags=True), {"loaded"}),
        (Table(stamped=False, window=6, lags=True), {"loaded"}),
    ],
)
def test_tables_whose_rows_do_not_tell(table: Table, wanted: set[str]) -> None:
    """In every order: one copy, in the view too; parked only where nothing is left to prove it."""
    start = begin(table, loaders=1, rounds=3, faults=2, others=1)
    _, endings = search(start, table, Guards())
    assert endings == wanted


@pytest.mark.parametrize(
    "table",
    [
        Table(stamped=False, window=0, altered=6),
        Table(stamped=False, window=6, altered=0),
        Table(stamped=False, window=2, altered=1),
        Table(stamped=False, window=6, altered=0, logged=True),
        Table(stamped=False, window=6, altered=0, viewed=True),
        Table(stamped=False, window=0, altered=6, viewed=True),
        Table(window=6, altered=0, parts=2),
        Table(window=0, altered=6, parts=2, expires=True),
    ],
)
@pytest.mark.parametrize(
    ("loaders", "rounds", "faults"),
    [pytest.param(2, 1, 1, marks=pytest.mark.long), (1, 3, 2)],
)
def test_a_window_that_a_person_alters(
    table: Table, loaders: int, rounds: int, faults: int
) -> None:
    """And takes back, between any two events: a token that was forgotten is never relied on."""
    start = begin(table, loaders=loaders, rounds=rounds, faults=faults, others=0, alters=2)
    _, endings = search(start, table, Guards())
    assert endings == {"loaded", "parked"}


@pytest.mark.parametrize(
    ("guards", "table"),
    [
        # Either is enough where a table without a window gets one, as doctor advises.
        (Guards(altered=False, remembers=False), Table(stamped=False, window=0, altered=6)),
        # It is the same window as before, and has forgotten what was in it.
        (Guards(altered=False), Table(stamped=False, window=6, altered=0)),
        # Between the loader's look and its repeat.
        (Guards(same=False), Table(stamped=False, window=6, altered=0)),
    ],
)
def test_without_knowing_of_alterations_the_search_finds_it(guards: Guards, table: Table) -> None:
    """Negative control: each way to know that a table has forgotten tokens, taken away."""
    with pytest.raises(Violation, match="doubled"):
        search(begin(table, loaders=1, rounds=3, faults=2, others=0, alters=2), table, guards)


@pytest.mark.parametrize(
    "table",
    [
        Table(rejects=True, window=0),
        Table(rejects=True, window=6, stamped=False),
        Table(rejects=True, window=0, stamped=False, logged=True),
        Table(rejects=True, window=0, parts=2),
        Table(rejects=True, window=6, parts=2),
        Table(rejects=True, window=6, parts=2, stamped=False),
        Table(rejects=True, window=0, parts=2, stamped=False),
        Table(rejects=True, window=0, expires=True),
    ],
)
@pytest.mark.parametrize(
    ("loaders", "rounds", "faults", "turns"),
    [
        (2, 1, 0, 1),
        pytest.param(2, 1, 1, 0, marks=pytest.mark.long),
        (1, 2, 2, 1),
    ],
)
def test_a_message_that_the_table_rejects(
    table: Table, loaders: int, rounds: int, faults: int, turns: int
) -> None:
    """In every order, while a person makes or drops the rule: the rest once, and named rightly."""
    start = begin(table, loaders=loaders, rounds=rounds, faults=faults, others=0, turns=turns)
    _, endings = search(start, table, Guards())
    assert "loaded" in endings or (table.parts > 1 and not table.window and not table.stamped)


@pytest.mark.parametrize(
    ("guards", "table"),
    [
        (Guards(over=False), Table(rejects=True, window=0, parts=2, stamped=False)),
        (Guards(running=False), Table(rejects=True, window=0)),
        (Guards(condition=False), Table(rejects=True, window=0)),
    ],
)
def test_without_a_guard_of_rejected_messages_the_search_finds_it(
    guards: Guards, table: Table
) -> None:
    """Negative control: rows doubled, or a message in the table that is called left out."""
    start = begin(table, loaders=2, rounds=1, faults=1, others=0, turns=1)
    with pytest.raises(Violation, match=r"doubled|mixed|loaded with copies|called"):
        search(start, table, guards)


@pytest.mark.parametrize(
    ("table", "humans", "rounds", "faults"),
    [
        (STAMPED, ("dead", "dead"), 1, 1),
        (STAMPED, ("dead", "retry"), 1, 1),
        (STAMPED, ("dead", "discard"), 1, 0),
        (BARE, ("dead", "retry"), 1, 1),
        (BARE, ("dead", "absent"), 1, 1),
        (BARE, ("dead",), 3, 2),
        (Table(viewed=True, window=0), ("dead", "retry"), 1, 0),
    ],
)
def test_left_out_messages_become_dead_letters(
    table: Table, humans: tuple[plan.Human, ...], rounds: int, faults: int
) -> None:
    """In every order: each once, never beside their rows, and called so only then."""
    start = begin_left_out(humans, rounds=rounds, faults=faults, table=table)
    states, endings = search(start, table, Guards())
    print(f"{table}, {humans}: {states} states, endings {endings}")
    assert "dead" in endings


@pytest.mark.parametrize(
    ("guards", "humans"),
    [
        (Guards(fences=False), ("dead", "retry")),
        (Guards(letters=False), ("dead", "retry")),
        (Guards(letters=False), ("dead", "discard")),
        (Guards(prepare=False), ("dead", "retry")),
        (Guards(condition=False), ("dead", "retry")),
        (Guards(running=False), ("dead", "retry")),
    ],
)
def test_without_a_guard_of_dead_letters_the_search_finds_it(
    guards: Guards, humans: tuple[plan.Human, ...]
) -> None:
    """Negative control: letters twice, or beside rows, or under another name."""
    start = begin_left_out(humans, rounds=1, faults=1, table=BARE)
    with pytest.raises(Violation, match=r"letters|doubled|copies"):
        search(start, BARE, guards)


def test_without_a_second_reading_the_search_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: who took the producer over last must read the ledger behind that."""
    real = plan._decide_by_letters

    def at_once(run: plan.Run, letters: plan.LettersFound) -> tuple[plan.Run, plan.Effect]:
        found, effect = real(run, letters)
        if not isinstance(effect, plan.ReadEntries):
            return found, effect
        return replace(found, at="letters"), plan.WriteLetters()

    start = begin_left_out(("dead", "dead", "retry"), rounds=0, faults=0, table=BARE)
    search(start, BARE, Guards())
    monkeypatch.setattr(
        plan, "_decide_by_letters", lambda r, le: (at_once if r.human == "dead" else real)(r, le)
    )
    with pytest.raises(Violation, match=r"letters"):
        search(start, BARE, Guards())


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        (Table(replicated=True, window=0), {"loaded"}),
        (Table(replicated=True, window=6), {"loaded"}),
        (Table(replicated=True, window=0, logged=True), {"loaded"}),
        (Table(replicated=True, stamped=False, window=6), {"loaded"}),
        (Table(replicated=True, stamped=False, window=0, logged=True), {"loaded", "parked"}),
        (Table(replicated=True, window=6, viewed=True), {"loaded"}),
    ],
)
@pytest.mark.parametrize(("loaders", "rounds", "faults"), [(2, 1, 1), (1, 3, 2)])
def test_an_insert_that_keeper_did_not_answer(
    table: Table, wanted: set[str], loaders: int, rounds: int, faults: int
) -> None:
    """In every order of attempts and of the replica's own look, or where another is asked that has
    not fetched its rows: once, and never by rows that go."""
    start = begin(table, loaders=loaders, rounds=rounds, faults=faults, others=1)
    states, endings = search(start, table, Guards())
    print(f"{table}: {states} states, endings {endings}")
    assert endings <= wanted
    assert "loaded" in endings


@pytest.mark.parametrize(
    ("guards", "table"),
    [
        (Guards(confirmed=False), Table(replicated=True, window=0)),
        (Guards(confirmed=False), Table(replicated=True, window=6)),
        (Guards(fetched=False), Table(replicated=True, window=0)),
        (
            Guards(unanswered=False),
            Table(replicated=True, stamped=False, window=0, logged=True),
        ),
    ],
)
def test_without_a_guard_of_confirmed_rows_the_search_finds_it(
    guards: Guards, table: Table
) -> None:
    """Negative control: loaded by rows that the replica drops; doubled, as the log has no part, or
    as another replica has not fetched it."""
    start = begin(table, loaders=1, rounds=3, faults=2, others=1)
    with pytest.raises(Violation, match=r"doubled|marked loaded with copies"):
        search(start, table, guards)


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        (Table(window=0), {"loaded", "parked"}),
        (Table(window=0, logged=True), {"loaded", "parked"}),
        (Table(stamped=False, window=6), {"loaded", "parked"}),
        (Table(stamped=False, window=6, logged=True), {"loaded", "parked"}),
        (Table(window=6, viewed=True), {"loaded", "parked"}),
    ],
)
def test_rows_that_a_person_deleted_stay_deleted(table: Table, wanted: set[str]) -> None:
    """In every order of kills and one DELETE: nothing is inserted twice."""
    start = begin(table, loaders=1, rounds=3, faults=2, others=1, deletes=1)
    _, endings = search(start, table, Guards())
    assert endings == wanted


@pytest.mark.parametrize("table", [STAMPED, BARE])
def test_a_person_gives_up_a_block_beside_a_loader(table: Table) -> None:
    """In every order: no row comes after it, and it stays given up or was loaded before."""
    start = begin(table, loaders=2, rounds=1, faults=1, others=1, human="discard")
    _, endings = search(start, table, Guards())
    assert {"discarded", "loaded"} <= endings


def test_a_person_calls_a_block_loaded_beside_a_loader() -> None:
    """In every order: where the rows can be counted, a wrong word marks nothing."""
    start = begin(STAMPED, loaders=2, rounds=1, faults=1, others=1, human="loaded")
    _, endings = search(start, STAMPED, Guards())
    assert {"parked", "loaded"} <= endings


@pytest.mark.parametrize("guards", [Guards(condition=False), Guards(running=False)])
def test_without_a_guard_rows_come_after_a_block_was_given_up(guards: Guards) -> None:
    """Negative control of the search above."""
    start = begin(BARE, loaders=2, rounds=1, faults=1, others=0, human="discard")
    with pytest.raises(Violation, match="given up"):
        search(start, BARE, guards)


UNCLEAR = plan.ServerRecord("unclear")


def decide(
    facts: plan.InsertFacts,
    *,
    stamped: bool = True,
    since: int = 0,
    human: plan.Human = "nothing",
    was_stamped: bool | None = None,
    sent: plan.Sent = plan.ALONE,
    record: plan.ServerRecord = UNCLEAR,
) -> plan.Effect:
    """The effect for a block that an earlier claim prepared, as the server has it."""
    run, _ = plan.start("me", 10, stamped=stamped, human=human)
    before = stamped if was_stamped is None else was_stamped
    earlier = plan.Entry(plan.PREPARED, 1, "other", since, before, rows=10, sent=sent)
    run, _ = plan.step(run, (earlier,))
    run, _ = plan.step(run, plan.Ok())
    own = plan.Entry(plan.PREPARED, 2, "me", 5, stamped, rows=10, sent=plan.ALONE)
    run, effect = plan.step(run, (earlier, own))
    assert effect == plan.Ask()
    run, effect = plan.step(run, facts)
    return plan.step(run, record)[1] if effect == plan.AskRecord() else effect


LOGS = plan.InsertFacts(logs_tokens=True)
KILLED = replace(LOGS, restarted=True)
ANEW = plan.Claim(3, token=2)


def first_insert() -> plan.Run:
    """A first attempt at a block of ten rows, up to its INSERT."""
    run, _ = plan.start("me", 10, stamped=True)
    run, _ = plan.step(run, ())
    run, _ = plan.step(run, plan.Ok())
    run, effect = plan.step(run, (MINE,))
    assert effect == plan.Insert(None)
    return run


MINE = plan.Entry(plan.PREPARED, 1, "me", 0, stamped=True, rows=10, sent=plan.ALONE)


@pytest.mark.parametrize("rows", [10, 25])
def test_the_servers_own_answer_is_proof(rows: int) -> None:
    """At least the block's rows, for those of views count too: done, and nothing is counted."""
    run, effect = plan.step(first_insert(), plan.Wrote(rows))
    assert effect == plan.FIRST
    assert plan.step(run, plan.Marked())[1] == plan.Done("loaded")
    run, effect = plan.step(run, plan.Ok())
    assert effect == plan.ReadEntries()
    marked = (MINE, plan.Entry(plan.LOADED, 1, "me", rows=10))
    assert plan.step(run, marked)[1] == plan.Done("loaded")


def test_nothing_written_is_a_failed_attempt() -> None:
    """The claim was lost meanwhile; or it holds, and the server that answered did not see it."""
    run, effect = plan.step(first_insert(), plan.Wrote(0))
    assert effect == plan.ReadEntries()
    others = (MINE, plan.Entry(plan.PREPARED, 2, "other", rows=10))
    lost = plan.Done("retry", "another loader works on this block")
    assert plan.step(run, others)[1] == lost
    assert plan.step(run, (MINE,))[1] == plan.Done(
        "retry", "the server wrote nothing, though this loader's claim holds"
    )
    partly = plan.step(first_insert(), plan.Wrote(4))[1]
    assert partly == plan.Done("retry", "the server wrote 4 of 10 rows")


def test_a_retry_says_why_for_those_who_count() -> None:
    """Nothing is decided by it, so two ends that differ in it alone are equal."""
    began, _ = plan.start("me", 10, stamped=True)
    taken = plan.step(plan.step(first_insert(), plan.Wrote(0))[0], (replace(MINE, claim="other"),))
    partly = plan.step(first_insert(), plan.Wrote(4))
    altered = plan.step(began, plan.NoAnswer("altered", cause=RetryCause.TABLE_ALTERED))
    silent = plan.step(began, plan.NoAnswer("no answer"))
    ends = [cast("plan.Done", effect) for _, effect in (taken, partly, altered, silent)]
    assert [end.cause for end in ends] == [
        RetryCause.ANOTHER_LOADER,
        RetryCause.ROWS_NOT_WRITTEN,
        RetryCause.TABLE_ALTERED,
        RetryCause.ERROR,
    ]
    assert ends[2] == plan.Done("retry", "altered")
    assert cast("plan.Done", decide(SHOWN)).cause == RetryCause.UNCONFIRMED


WRITTEN, NEVER = plan.ServerRecord("written", "other"), plan.ServerRecord("never")
SHOWN = plan.InsertFacts(counted=10, unconfirmed="the replica has still to check a part")
"""All of its rows are there, and Keeper may not have them."""
WAITS = plan.Done("retry", "the replica has still to check a part")
BEHIND = plan.InsertFacts(counted=0, unconfirmed="the replica has still to fetch parts")
"""None of its rows are there, or not all, and others may come."""
COME = plan.Done("retry", "the replica has still to fetch parts")


@pytest.mark.parametrize(
    ("facts", "more", "effect"),
    [
        (
            plan.InsertFacts(running="r2 does not answer"),
            {},
            plan.Done("retry", "r2 does not answer"),
        ),
        # The token, surely remembered: whatever is counted, and however much is missing.
        (plan.InsertFacts(inserted=3, margin=50, newest=7), {}, plan.Insert(54)),
        (plan.InsertFacts(inserted=3, margin=50, newest=7, counted=4), {}, plan.Insert(54)),
        (plan.InsertFacts(inserted=3, margin=50, newest=7, views=("v",)), {}, plan.Insert(54)),
        # Nothing at all was inserted since: safe without any window, and whatever the token was.
        (plan.InsertFacts(inserted=0, newest=7), {"sent": ""}, plan.Insert(7)),
        # Another token, or none that is surely remembered: not by the token.
        (plan.InsertFacts(inserted=3, margin=50, newest=7), {"sent": plan.TOGETHER}, plan.Park),
        (plan.InsertFacts(inserted=3, margin=50, newest=7), {"sent": ""}, plan.Park),
        (
            plan.InsertFacts(inserted=3, margin=50, newest=7),
            {"sent": plan.UNREMEMBERED},
            plan.Park,
        ),
        (plan.InsertFacts(inserted=51, margin=50, newest=7), {}, plan.Park),
        (plan.InsertFacts(inserted=None, margin=50, newest=7), {}, plan.Park),
        (plan.InsertFacts(inserted=3, margin=50, newest=7), {"since": -1}, plan.Park),
        # The rows, all of them.
        (plan.InsertFacts(counted=10), {}, plan.Settle(2, made_by="other")),
        (plan.InsertFacts(counted=10, fewer="TTL"), {}, plan.Settle(2, made_by="other")),
        (plan.InsertFacts(counted=10, views=("v",)), {}, plan.Park),
        (plan.InsertFacts(counted=10), {"was_stamped": False}, plan.Park),
        # They are there, whatever the window says: a table that was restored has no tokens.
        (
            plan.InsertFacts(inserted=3, margin=50, newest=7, counted=10),
            {},
            plan.Settle(2, made_by="other"),
        ),
        # What the server recorded.
        (plan.InsertFacts(), {"record": WRITTEN}, plan.Settle(2, made_by="other")),
        (plan.InsertFacts(counted=0), {"record": WRITTEN}, plan.Settle(2, made_by="other")),
        (plan.InsertFacts(counted=0, fewer="TTL"), {"record": NEVER}, plan.Insert(None)),
        (plan.InsertFacts(), {"record": NEVER}, plan.Insert(None)),
        (plan.InsertFacts(counted=0, views=("v",)), {"record": NEVER}, plan.Insert(None)),
        # Rows are there, of which the record says that nobody wrote them: one of the two is wrong.
        (plan.InsertFacts(counted=10, views=("v",)), {"record": NEVER}, plan.Park),
        (plan.InsertFacts(counted=4), {"record": NEVER}, plan.Park),
        (plan.InsertFacts(counted=4), {"record": NEVER, "human": "retry"}, plan.Park),
        (plan.InsertFacts(counted=4), {"record": NEVER, "human": "dead"}, plan.Park),
        (plan.InsertFacts(counted=4, repeatable=True), {"record": NEVER}, plan.Insert(None)),
        (plan.InsertFacts(inserted=0, margin=50, newest=7, counted=4), {}, plan.Park),
        (plan.InsertFacts(inserted=0, newest=7, counted=10, views=("v",)), {}, plan.Park),
        (plan.InsertFacts(inserted=0, newest=7, counted=4), {"human": "dead"}, plan.Park),
        (plan.InsertFacts(inserted=0, newest=7, counted=0), {}, plan.Insert(7)),
        # Its rows were there. A person removed them; or, under a claim that the ledger does not
        # have, both were set back, and what the table has now is all of it.
        (plan.InsertFacts(counted=0), {"record": plan.ServerRecord("gone", "other")}, plan.Park),
        (plan.InsertFacts(), {"record": plan.ServerRecord("gone", "other")}, plan.Park),
        (
            plan.InsertFacts(counted=0),
            {"record": plan.ServerRecord("gone", "of later")},
            plan.Insert(None),
        ),
        (plan.InsertFacts(), {"record": plan.ServerRecord("gone", "of later")}, plan.Park),
        # Its parts went, and others may have its rows.
        *(
            (facts, {"record": plan.ServerRecord("replaced", claim)}, effect)
            for claim, facts, effect in (
                ("other", plan.InsertFacts(counted=0), plan.Park),
                ("other", plan.InsertFacts(), plan.Park),
                ("of later", plan.InsertFacts(counted=0), plan.Insert(None)),
                ("of later", plan.InsertFacts(), plan.Park),
            )
        ),
        # Without a part log.
        (
            plan.InsertFacts(),
            {"record": plan.ServerRecord("perhaps", "other")},
            plan.Settle(2, made_by="other"),
        ),
        (plan.InsertFacts(), {"record": plan.ServerRecord("perhaps", "of later")}, plan.Park),
        # The rows, none of them, where that means something.
        (plan.InsertFacts(counted=0), {}, plan.Insert(None)),
        (plan.InsertFacts(counted=0, fewer="TTL"), {}, plan.Park),
        (plan.InsertFacts(counted=0, views=("v",)), {}, plan.Park),
        (plan.InsertFacts(counted=4), {}, plan.Park),
        (plan.InsertFacts(repeatable=True), {}, plan.Insert(None)),
        (plan.InsertFacts(), {}, plan.Park),
        # A token may be there without its part: nobody repeats under it where nothing is there.
        (replace(LOGS, counted=0), {}, ANEW),
        (replace(LOGS, counted=0), {"record": NEVER}, ANEW),
        (replace(LOGS, counted=0, inserted=0, newest=7), {}, ANEW),
        (replace(LOGS, repeatable=True, counted=0, fewer="merges"), {}, ANEW),
        (replace(LOGS, inserted=0, newest=7), {}, plan.Insert(7)),
        (replace(KILLED, inserted=0, newest=7), {}, ANEW),
        (replace(KILLED, counted=0, fewer="a row policy", inserted=0, newest=7), {}, ANEW),
        # Where only the token can tell, it is believed; and a view has rows that it alone tells.
        (replace(KILLED, inserted=3, margin=50, newest=7), {}, plan.Insert(54)),
        (replace(KILLED, inserted=0, newest=7, views=("v",)), {}, plan.Insert(7)),
        # Others have inserted, and still a count tells, or a repeat changes nothing.
        (replace(KILLED, counted=0, inserted=3, margin=50, newest=7), {}, ANEW),
        (replace(LOGS, counted=0, inserted=1, margin=50, newest=7), {}, ANEW),
        (
            replace(KILLED, counted=0, inserted=3, margin=50, newest=7, repeatable=True, fewer="m"),
            {},
            ANEW,
        ),
        (replace(LOGS, counted=4, inserted=1, margin=50, newest=7), {}, plan.Insert(56)),
        # A person who has looked; one who errs is kept from it by the token.
        (LOGS, {"human": "absent", "stamped": False}, plan.Insert(None)),
        (KILLED, {"human": "absent", "stamped": False}, ANEW),
        (plan.InsertFacts(removed="deleted"), {"human": "absent", "stamped": False}, ANEW),
        # A claim of a version that did not say so was sent under the block's id, too.
        (
            plan.InsertFacts(removed="deleted"),
            {"human": "absent", "stamped": False, "sent": ""},
            ANEW,
        ),
        # The rows, all or some of them, which the replica drops if Keeper does not have them.
        (SHOWN, {}, WAITS),
        (replace(SHOWN, counted=4), {"record": NEVER}, WAITS),
        *((SHOWN, {"human": one}, WAITS) for one in ("retry", "absent", "loaded", "discard")),
        (SHOWN, {"human": "dead"}, WAITS),
        (replace(SHOWN, repeatable=True), {"human": "dead"}, WAITS),
        (replace(SHOWN, repeatable=True), {}, plan.Insert(None)),
        # Keeper says what it has to a repeat, if it surely remembers the token.
        (replace(SHOWN, inserted=3, margin=50, newest=7), {}, plan.Insert(54)),
        (replace(SHOWN, inserted=0, margin=50, newest=7), {}, plan.Insert(57)),
        (replace(SHOWN, inserted=0, margin=-1, newest=7), {}, WAITS),
        (
            replace(SHOWN, inserted=0, margin=50, newest=7),
            {"sent": plan.UNREMEMBERED},
            WAITS,
        ),
        # An INSERT that succeeded had Keeper's answer.
        (SHOWN, {"record": WRITTEN}, plan.Settle(2, made_by="other")),
        # No row, or not all, of a replica that has not fetched all.
        *((replace(BEHIND, counted=n), {}, COME) for n in (0, 4)),
        *((BEHIND, {"human": h}, COME) for h in ("retry", "absent", "loaded", "discard", "dead")),
        (BEHIND, {"record": WRITTEN}, plan.Settle(2, made_by="other")),
        (replace(BEHIND, inserted=3, margin=50, newest=7), {}, plan.Insert(54)),
        (replace(BEHIND, inserted=0, newest=7), {}, plan.Insert(7)),
        (replace(BEHIND, repeatable=True), {}, plan.Insert(None)),
        (replace(BEHIND, passing=False), {}, plan.Park),
        (replace(BEHIND, passing=False), {"record": NEVER}, plan.Insert(None)),
        (replace(BEHIND, passing=False), {"human": "absent"}, plan.Insert(None)),
        (replace(BEHIND, passing=False), {"human": "dead"}, plan.Park),
        # This user may not ask.
        (replace(SHOWN, passing=False), {}, plan.Park),
        (replace(SHOWN, passing=False), {"record": WRITTEN}, plan.Settle(2, made_by="other")),
        (replace(SHOWN, passing=False), {"human": "loaded"}, plan.Settle),
    ],
)
def test_the_order_of_proof(
    facts: plan.InsertFacts, more: dict[str, Any], effect: plan.Effect | type[plan.Effect]
) -> None:
    """Every line of the table in the document `evidence` for a block found prepared."""
    found = decide(facts, **more)
    if isinstance(effect, type):
        assert isinstance(found, effect)
    else:
        assert found == effect


def test_a_claim_for_a_further_token_says_that_nothing_was_there() -> None:
    """Whoever finds it repeats under that token, and no more under the older one."""
    first = plan.Entry(plan.PREPARED, 1, "dead", 5, stamped=False, rows=10, sent=plan.ALONE)
    looked = replace(first, attempt=2, claim="killed")
    anew = replace(looked, attempt=3, sent=plan.say_alone(2))
    begun = (first, looked, anew)

    def found(facts: plan.InsertFacts, *ours: plan.Entry) -> plan.Effect:
        run, effect = plan.step(plan.start("me", 10, stamped=False)[0], begun)
        assert effect == plan.Claim(4, token=2)
        run, _ = plan.step(run, plan.Ok())
        run, _ = plan.step(run, (*begun, *ours))
        run, effect = plan.step(run, facts)
        return plan.step(run, UNCLEAR)[1] if effect == plan.AskRecord() else effect

    ours = replace(anew, attempt=4, claim="me")
    assert found(replace(KILLED, inserted=1, margin=50, newest=6), ours) == plan.Insert(55)
    assert found(replace(KILLED, inserted=0, newest=5), ours) == plan.Claim(5, token=3)
    # A claim that came between the look and the claim for the token may have inserted.
    between = replace(first, attempt=3, claim="between")
    facts = replace(KILLED, inserted=1, margin=50, newest=6)
    begun = (*begun, between)
    assert isinstance(found(facts, ours), plan.Park)


def test_a_persons_word_holds_for_the_claim_of_a_further_token() -> None:
    """The same attempt claims twice; of another's claim nobody knows whether it had the answer."""
    first = plan.Entry(plan.PREPARED, 1, "dead", 5, stamped=False, rows=10, sent=plan.ALONE)
    parked = plan.Entry(plan.PARKED, 2, "dead")
    run, _ = plan.step(plan.start("me", 10, stamped=False, human="absent")[0], (first, parked))
    ours = replace(first, attempt=3, claim="me")
    anew = replace(ours, attempt=4, sent=plan.say_alone(2))
    for entries in ((first, parked, ours), (first, parked, ours, anew)):
        run, _ = plan.step(run, plan.Ok())
        run, _ = plan.step(run, entries)
        run, effect = plan.step(run, KILLED)
    assert effect == plan.Insert(None)


def test_others_that_insert_meanwhile_bring_the_token_back() -> None:
    """Nothing was inserted, so the block was begun anew; by then something was: it may be its."""
    first = plan.Entry(plan.PREPARED, 1, "dead", 5, stamped=False, rows=10, sent=plan.ALONE)
    entries = [first]
    run, effect = plan.step(plan.start("me", 10, stamped=False)[0], tuple(entries))
    untouched = replace(KILLED, inserted=0, newest=5)
    touched = replace(KILLED, inserted=1, margin=50, newest=6)
    for facts, token in ((untouched, 1), (touched, 2), (touched, 1)):
        assert isinstance(effect, plan.Claim)
        assert effect.token == token
        sent = plan.say_alone(token)
        entries.append(replace(first, attempt=effect.attempt, claim="me", sent=sent))
        run, _ = plan.step(run, plan.Ok())
        run, _ = plan.step(run, tuple(entries))
        run, effect = plan.step(run, facts)
        if effect == plan.AskRecord():
            run, effect = plan.step(run, UNCLEAR)
    assert effect == plan.Insert(55)


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (replace(LOGS, counted=10), plan.Settle(2)),
        (replace(LOGS, counted=4), plan.Park),
        (replace(LOGS, counted=0), plan.Park),
        # They expire meanwhile; or somebody removes some, and a person has to say.
        (replace(LOGS, counted=4, fewer="rows expire"), plan.Settle(2)),
        (replace(LOGS, counted=4, fewer="deleted", removed="deleted"), plan.Park),
    ],
)
def test_a_repeat_of_what_a_count_can_show_is_counted(
    again: plan.InsertFacts, expected: plan.Effect | type[plan.Effect]
) -> None:
    """The token may be there without a part, and the server answers alike."""
    for facts in (
        replace(LOGS, counted=4, inserted=1, margin=50, newest=7),
        replace(LOGS, counted=0, inserted=1, margin=50, newest=7, views=("v",)),
    ):
        run, effect = repeated(facts)
        run, effect = plan.step(run, plan.Wrote(10))
        assert effect == plan.Ask()
        _, effect = plan.step(run, replace(again, views=facts.views))
        assert effect == expected or type(effect) is expected


LACKS = replace(LOGS, counted=4)
REMOVED = replace(LACKS, fewer="deleted", removed="deleted")
REPEAT = plan.ServerRecord("written", "again")


@pytest.mark.parametrize(
    ("facts", "record", "before"),
    [
        (LACKS, REPEAT, plan.ALONE),
        (replace(LACKS, counted=0, views=("v",)), REPEAT, plan.ALONE),
        (LACKS, plan.ServerRecord("perhaps", "again"), plan.ALONE),
        # A DELETE that a person began is not done yet, or done; or nobody may ask for it.
        (REMOVED, REPEAT, plan.ALONE),
        (replace(REMOVED, counted=0), REPEAT, plan.ALONE),
        # A claim that does not say so was sent under the block's id; a statement that does not say
        # whose it is, or whose claim is not in the ledger, may be a repeat.
        (LACKS, REPEAT, ""),
        (LACKS, plan.ServerRecord("written"), plan.ALONE),
        (LACKS, plan.ServerRecord("written", "of later"), plan.ALONE),
    ],
)
@pytest.mark.parametrize("human", ["nothing", "retry", "absent", "dead"])
def test_a_record_of_a_repeat_is_no_proof_of_rows_that_are_not_there(
    facts: plan.InsertFacts, record: plan.ServerRecord, before: plan.Sent, human: plan.Human
) -> None:
    """The repeat was answered, and recorded, by a server that has the token without the part."""
    if human == "absent" and not facts.counted:
        return  # a person who has looked begins anew
    found = recorded(facts, record, before, human=human)
    assert isinstance(found, plan.Park)
    for part in (f"{facts.counted} of 10", "mutations_sync = 2", *facts.views, facts.removed):
        assert part in found.reason


@pytest.mark.parametrize(
    ("facts", "record", "before"),
    [
        # The first INSERT under its token has brought what it wrote, whatever became of that.
        (REMOVED, plan.ServerRecord("written", "first"), plan.ALONE),
        (LACKS, REPEAT, plan.TOGETHER),
        (LACKS, REPEAT, "alone 3"),
        # A count tells nothing, or that all is there.
        (replace(LACKS, fewer="rows expire"), REPEAT, plan.ALONE),
        (replace(REMOVED, fewer="rows expire, deleted"), REPEAT, plan.ALONE),
        (replace(LACKS, counted=10, views=("v",)), REPEAT, plan.ALONE),
        # Keeper has parts and tokens, or neither.
        (plan.InsertFacts(counted=4), REPEAT, plan.ALONE),
    ],
)
def test_other_records_are_proof(
    facts: plan.InsertFacts, record: plan.ServerRecord, before: plan.Sent
) -> None:
    assert isinstance(recorded(facts, record, before), plan.Settle)


def recorded(
    facts: plan.InsertFacts,
    record: plan.ServerRecord,
    before: plan.Sent,
    *,
    human: plan.Human = "nothing",
) -> plan.Effect:
    """What is decided behind two claims, the second of which was sent under the first token."""
    first = plan.Entry(plan.PREPARED, 1, "first", 6, stamped=True, rows=10, sent=before)
    again = replace(first, attempt=2, claim="again", sent=plan.ALONE)
    entries = (first, again)
    run, _ = plan.step(plan.start("me", 10, stamped=True, human=human)[0], entries)
    run, _ = plan.step(run, plan.Ok())
    run, _ = plan.step(run, (*entries, replace(again, attempt=3, claim="me")))
    run, effect = plan.step(run, facts)
    assert effect == plan.AskRecord()
    return plan.step(run, record)[1]


def test_a_record_that_a_further_token_has_overtaken_is_none() -> None:
    """Nothing of that INSERT was there: its record does not stand for the one that came next."""
    first = plan.Entry(plan.PREPARED, 1, "first", 6, stamped=False, rows=10, sent=plan.ALONE)
    looked = replace(first, attempt=2, claim="looked")
    anew = replace(looked, attempt=3, sent=plan.say_alone(2))
    entries = (first, looked, anew)
    run, _ = plan.step(plan.start("me", 10, stamped=False)[0], entries)
    run, _ = plan.step(run, plan.Ok())
    run, _ = plan.step(run, (*entries, replace(anew, attempt=4, claim="me")))
    run, _ = plan.step(run, LOGS)
    found = plan.step(run, plan.ServerRecord("written", "first"))[1]
    assert isinstance(found, plan.Park)
    assert "nothing of it was there later" in found.reason
    own = plan.step(run, plan.ServerRecord("written", "looked"))[1]
    assert own == plan.Settle(4, made_by="looked")


def test_rows_removed_before_a_ledger_was_lost_stay_removed() -> None:
    """Nobody knows which claims there were; rows that nobody removed are missing all the same."""
    record = plan.ServerRecord("written", "of before")
    assert forgotten(replace(REMOVED, counted=0), record) == plan.Settle(1)
    assert isinstance(forgotten(LACKS, record), plan.Park)


def test_a_repeat_that_seems_to_run_is_not_counted_yet() -> None:
    """A server answers before its list of statements lacks the INSERT; or another's still runs."""
    run, _ = repeated(replace(LACKS, inserted=1, margin=50, newest=7))
    run, effect = plan.step(run, plan.Wrote(10))
    assert effect == plan.Ask()
    _, effect = plan.step(run, plan.InsertFacts(running="it runs"))
    assert effect == plan.Done("retry", "it runs")
    assert cast("plan.Done", effect).cause == RetryCause.STILL_RUNNING


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(plan.InsertFacts(counted=4, inserted=1, margin=50, newest=7), id="replicated"),
        pytest.param(replace(LOGS, inserted=1, margin=50, newest=7), id="not counted"),
        pytest.param(
            replace(LOGS, counted=4, fewer="m", inserted=1, margin=50, newest=7), id="merges"
        ),
    ],
)
def test_other_repeats_are_proved_by_their_answer(facts: plan.InsertFacts) -> None:
    run, _ = repeated(facts)
    assert plan.step(run, plan.Wrote(10))[1] == plan.Settle(2)


def repeated(facts: plan.InsertFacts) -> tuple[plan.Run, plan.Effect]:
    """An attempt that repeats another's INSERT under its token."""
    stamped = facts.counted is not None
    first = plan.Entry(plan.PREPARED, 1, "dead", 6, stamped=stamped, rows=10, sent=plan.ALONE)
    run, _ = plan.step(plan.start("me", 10, stamped=stamped)[0], (first,))
    run, _ = plan.step(run, plan.Ok())
    run, effect = plan.step(run, (first, replace(first, attempt=2, claim="me")))
    assert effect == plan.Ask()
    run, effect = plan.step(run, facts)
    assert effect == plan.AskRecord()
    run, effect = plan.step(run, UNCLEAR)
    assert effect == plan.Insert(56)
    return run, effect


def test_a_parked_block_says_what_was_found() -> None:
    """A person has to settle it, and reads nothing but this."""
    facts = plan.InsertFacts(counted=4, fewer="rows expire", views=("db.v",))
    found = decide(facts, record=plan.ServerRecord("unclear", said="no query log"))
    assert isinstance(found, plan.Park)
    for part in ("4 of its 10 rows", "rows expire", "db.v", "deduplication token", "no query log"):
        assert part in found.reason


def forgotten(facts: plan.InsertFacts, record: plan.ServerRecord) -> plan.Effect:
    """A block of which the ledger has nothing, and may have lost what it had."""
    doubt = plan.doubt(10, lost=False)
    run, _ = plan.start("me", 10, stamped=True)
    run, _ = plan.step(run, (doubt,))
    run, _ = plan.step(run, plan.Ok())
    run, effect = plan.step(run, (doubt, MINE))
    assert effect == plan.Ask()
    run, effect = plan.step(run, facts)
    return plan.step(run, record)[1] if effect == plan.AskRecord() else effect


def test_a_block_that_the_ledger_may_have_forgotten() -> None:
    """Found in the table or in the server's log: loaded; in part: parked; else it is new."""
    assert forgotten(plan.InsertFacts(counted=10), UNCLEAR) == plan.Settle(1)
    assert forgotten(plan.InsertFacts(), plan.ServerRecord("written")) == plan.Settle(1)
    assert forgotten(plan.InsertFacts(), plan.ServerRecord("gone")) == plan.Insert(None)
    assert isinstance(forgotten(plan.InsertFacts(), plan.ServerRecord("perhaps")), plan.Park)
    assert isinstance(forgotten(plan.InsertFacts(), plan.ServerRecord("replaced")), plan.Park)
    counted = plan.InsertFacts(counted=0)
    assert forgotten(counted, plan.ServerRecord("replaced")) == plan.Insert(None)
    removed = plan.InsertFacts(counted=0, fewer="replaced", removed="replaced")
    assert forgotten(removed, plan.ServerRecord("gone")) == plan.Insert(None)
    # The table may have its token still.
    assert forgotten(removed, plan.ServerRecord("replaced")) == plan.Claim(2, token=2)
    assert isinstance(forgotten(plan.InsertFacts(counted=3), plan.ServerRecord("gone")), plan.Park)
    assert isinstance(forgotten(plan.InsertFacts(counted=3), UNCLEAR), plan.Park)
    assert forgotten(plan.InsertFacts(counted=0, fewer="TTL"), UNCLEAR) == plan.Insert(None)
    # Claims of others could not be what these parts are bounded by.
    assert forgotten(plan.InsertFacts(inserted=0, newest=3), UNCLEAR) == plan.Insert(None)
    # The table may have the token without the rows; and the rows, which this user does not see.
    logs = plan.InsertFacts(counted=0, logs_tokens=True, restarted=True)
    assert forgotten(logs, UNCLEAR) == plan.Claim(2, token=2)
    assert forgotten(replace(logs, fewer="a row policy"), UNCLEAR) == plan.Insert(None)


def test_a_person_decides_a_parked_block() -> None:
    """A parked block stays parked, until somebody says retry or absent."""
    parked = (plan.Entry(plan.PARKED, 1, "other", reason="table missing"),)
    assert plan.step(plan.start("me", 1, stamped=True)[0], parked)[1] == plan.Done(
        "parked", "table missing"
    )
    run, _ = plan.start("me", 1, stamped=True, human="retry")
    assert plan.step(run, parked)[1] == plan.Claim(2)
    assert decide(plan.InsertFacts(), stamped=False, human="absent") == plan.Insert(None)
    # What is there has the last word.
    assert decide(plan.InsertFacts(counted=10), human="absent") == plan.Settle(2, made_by="other")
    assert isinstance(decide(plan.InsertFacts(counted=4), human="absent"), plan.Park)


@pytest.mark.parametrize(
    ("human", "counted", "effect"),
    [
        ("loaded", 10, plan.Settle),
        ("loaded", None, plan.Settle),
        ("loaded", 4, plan.Park),
        ("loaded", 0, plan.Park),
        ("discard", 10, plan.Settle),
        ("discard", 4, plan.Settle),
        ("discard", None, plan.Settle),
    ],
)
def test_the_tables_count_has_the_last_word(
    human: plan.Human, counted: int | None, effect: type[plan.Effect]
) -> None:
    """A person is believed where nothing can be counted, and not against a count."""
    found = decide(plan.InsertFacts(counted=counted), stamped=counted is not None, human=human)
    assert isinstance(found, effect)
    if isinstance(found, plan.Settle):
        whole = human == "loaded" or counted == 10
        assert found.state == (plan.LOADED if whole else plan.DISCARDED)
        assert found.reason
    running = plan.InsertFacts(running="it runs")
    assert isinstance(decide(running, stamped=False, human=human), plan.Done)


def test_what_was_given_up_stays_so() -> None:
    """No attempt, and no further word, takes up a discarded block."""
    entries = (
        plan.Entry(plan.PARKED, 1, "a", reason="no table"),
        plan.Entry(plan.PREPARED, 3, "late"),
        plan.Entry(plan.DISCARDED, 2, "b", reason="test rows"),
    )
    for human in ("nothing", "retry", "absent", "loaded", "discard"):
        run, _ = plan.start("me", 1, stamped=True, human=cast("plan.Human", human))
        assert plan.step(run, entries)[1] == plan.Done("discarded", "test rows")
    assert not plan.holds(entries, "late")


DEFAULTS = {
    "non_replicated_deduplication_window": 0,
    "replicated_deduplication_window": 10000,
    "replicated_deduplication_window_seconds": 3600,
}


@pytest.mark.parametrize(
    ("engine", "settings", "parts", "counter"),
    [
        ("MergeTree", "", 0, "parts"),
        ("MergeTree", " SETTINGS non_replicated_deduplication_window = 8, x = 1", 8, "parts"),
        ("ReplicatedMergeTree", "", 10000, "log"),
        ("ReplicatedMergeTree", " SETTINGS replicated_deduplication_window = 0", 0, "log"),
        ("Null", "", 0, "none"),
    ],
)
def test_windows(engine: str, settings: str, parts: int, counter: str) -> None:
    """A table's window is its own setting, else the server's; 0 and other engines have none."""
    found = nature(engine, f"{engine} ORDER BY a{settings}", DEFAULTS).window
    assert (found.parts, found.counter) == (parts, counter)
    if engine.startswith("Replicated"):
        assert found.margin(10) == parts // 2
        assert found.margin(1801) == -1


@pytest.mark.parametrize(
    ("engine_full", "vanish", "repeatable"),
    [
        ("MergeTree ORDER BY a", "", False),
        ("MergeTree ORDER BY a TTL day + toIntervalDay(30)", "TTL day", False),
        ("MergeTree ORDER BY a TTL day + toIntervalDay(3) TO VOLUME 'cold'", "", False),
        ("MergeTree ORDER BY a TTL d TO DISK 'x', d + toIntervalDay(9) DELETE", "9", False),
        ("MergeTree ORDER BY a TTL d RECOMPRESS CODEC(ZSTD(1)) SETTINGS x = 1", "", False),
        ("MergeTree ORDER BY a TTL d RECOMPRESS CODEC(Delta(4), ZSTD(1))", "", False),
        ("MergeTree ORDER BY a TTL toDateTime(d, 'UTC') TO DISK 'a, b'", "", False),
        ("MergeTree ORDER BY a TTL toDateTime(d, 'UTC') TO DISK 'a', d", "TTL d)", False),
        ("MergeTree ORDER BY a TTL d GROUP BY a SET b = max(b)", "d GROUP BY a", False),
        ("ReplacingMergeTree ORDER BY a", "merges", False),
        ("ReplacingMergeTree(ver) ORDER BY a", "merges", True),
        # A merge may clean up a key, and an older version of it would come back.
        ("ReplacingMergeTree(ver, is_deleted) ORDER BY a", "merges", False),
        ("ReplacingMergeTree(ver) ORDER BY a TTL d + toIntervalDay(30)", "merges", False),
        ("ReplacingMergeTree(`a ver`) ORDER BY a", "merges", True),
        ("ReplicatedReplacingMergeTree('/p', 'r') ORDER BY a", "merges", False),
        ("ReplicatedReplacingMergeTree('/p', 'r', ver) ORDER BY a", "merges", True),
        ("SharedReplacingMergeTree('/p', '{replica}', ver) ORDER BY a", "merges", True),
        ("SummingMergeTree ORDER BY a", "merges", False),
        ("CollapsingMergeTree(sign) ORDER BY a", "merges", False),
        ("VersionedCollapsingMergeTree(sign, ver) ORDER BY a", "merges", False),
        ("AggregatingMergeTree ORDER BY a", "merges", False),
        ("CoalescingMergeTree ORDER BY a", "merges", False),
        ("Distributed('c', 'd', 't')", "does not keep", False),
    ],
)
def test_what_becomes_of_rows(engine_full: str, vanish: str, *, repeatable: bool) -> None:
    """By engine and TTL; a view would take a repeat's rows twice; a key made anew is another."""
    engine = engine_full.partition(" ")[0].partition("(")[0]
    keys = TableKeys("a", "", dict.fromkeys(["a", "ver", "a ver"], ""))
    found = nature(engine, engine_full, DEFAULTS, keys)
    assert vanish in found.vanish
    assert bool(vanish) == bool(found.vanish)
    assert found.repeatable is repeatable
    assert not nature(engine, engine_full, DEFAULTS, keys, views=("db.v",)).repeatable
    made = replace(keys, defaults={**keys.defaults, "a": "now()"})
    assert not nature(engine, engine_full, DEFAULTS, made).repeatable


@pytest.mark.parametrize(
    ("column", "gone"),
    [
        ("`_block` String", False),
        ("`_block` String TTL day + toIntervalDay(30)", True),
    ],
)
def test_ids_that_expire(column: str, *, gone: bool) -> None:
    """A count of none says nothing then, though the rows stay."""
    create = f"CREATE TABLE d.t (`id` Int64, {column}) ENGINE = MergeTree ORDER BY id TTL day"
    assert emptied(create, "_block") == ("column _block has a TTL" if gone else "")


@pytest.mark.parametrize(
    ("settings", "patched"),
    [
        ("", False),
        (" SETTINGS enable_block_number_column = 1", False),
        (" SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1", True),
    ],
)
def test_lightweight_updates(settings: str, *, patched: bool) -> None:
    assert nature("MergeTree", f"MergeTree ORDER BY a{settings}", DEFAULTS).patched is patched


@pytest.mark.parametrize(
    ("of", "since", "newest", "parts", "inserted"),
    [
        (Nature(Window(9, None, "parts")), 3, 5, None, 2),
        # It went back: the newest parts were dropped, and with them what came after.
        (Nature(Window(9, None, "parts")), 3, 2, None, None),
        # One partition of several may have come and gone without a trace.
        (Nature(Window(9, None, "parts"), partitioned=True), 3, 4, None, None),
        (Nature(Window(9, None, "parts"), partitioned=True), 3, 4, Parts(11, 0), 11),
        # The log lacks parts that the table has numbered; or the newest ones went again.
        (Nature(Window(9, None, "parts")), 3, 5, Parts(0, 0), 2),
        (Nature(Window(9, None, "parts"), partitioned=True), 3, 5, Parts(1, 0), 2),
        (Nature(Window(9, None, "parts")), 3, 1, Parts(1, 0), 1),
        (Nature(Window(9, None, "parts")), 3, -1, Parts(1, 0), 1),
        # With a dropped partition go its tokens.
        (Nature(Window(9, None, "parts")), 3, 5, Parts(2, 1), None),
        (Nature(Window(9, 60, "log")), 3, 5, None, 2),
        (Nature(Window(9, 60, "log")), 3, 3, None, 0),
        (Nature(Window(9, 60, "log")), 0, 0, None, 1),  # the first entry of all, or none
        (Nature(Window(9, 60, "log")), 3, -1, None, None),
        # One entry may be of many parts, as ATTACH PARTITION FROM makes it; and what other replicas
        # inserted is not in the part log.
        (Nature(Window(9, 60, "log")), 3, 4, Parts(150, 0), 150),
        (Nature(Window(9, 60, "log")), 0, 0, Parts(4, 0), 4),
        (Nature(Window(9, 60, "log")), 3, 5, Parts(1, 0), 2),
        # Without an entry what is logged came before the claim, within its second.
        (Nature(Window(9, 60, "log")), 3, 3, Parts(1, 0), 0),
        (Nature(Window(9, 60, "log")), 3, 2, Parts(1, 0), None),
        (Nature(Window(9, 60, "log")), 3, 5, Parts(2, 1), None),
        (Nature(Window(9, 60, "log")), -1, 5, None, None),
        (Nature(Window(0, None, "none")), 3, 5, None, None),
    ],
)
def test_how_many_parts_came_since_a_claim(
    of: Nature, since: int, newest: int, parts: Parts | None, inserted: int | None
) -> None:
    """A bound that holds, or none."""
    assert inserted_since(of, since, newest, parts) == inserted


@pytest.mark.parametrize(
    ("of", "sent", "since"),
    [
        (Window(9, 60, "log"), ["alone", "unremembered"], 7),
        # The release before wrote another number, as long as it did not say how it sends.
        (Window(9, 60, "log"), ["alone", ""], -1),
        (Window(9, None, "parts"), ["alone", ""], 7),
        (Window(9, 60, "log"), [], 7),
    ],
)
def test_what_claims_of_earlier_versions_counted(of: Window, sent: list[str], since: int) -> None:
    assert of.counter_before(7, sent) == since


CLEANS_UP = "allow_experimental_replacing_merge_with_cleanup"
PATCHED = "enable_block_number_column = 1, enable_block_offset_column = 1"
EXPIRING = "MergeTree ORDER BY a TTL day + toIntervalDay(1)"


@pytest.mark.parametrize(
    ("full", "views", "margin", "hides", "though_logged"),
    [
        (EXPIRING, ("v",), 0, True, False),
        (EXPIRING, ("v",), -1, True, False),
        # Rows that cancel each other in one INSERT make no part that a log could have.
        ("CollapsingMergeTree(s) ORDER BY a", ("v",), 0, True, True),
        ("VersionedCollapsingMergeTree(s, n) ORDER BY a", ("v",), 0, True, True),
        ("SummingMergeTree ORDER BY a", ("v",), 0, True, True),
        ("ReplicatedSummingMergeTree('/p', 'r') ORDER BY a", ("v",), 0, True, True),
        # The tables behind remember the token: a repeat adds nothing there.
        (EXPIRING, ("v",), 1, False, False),
        ("ReplicatedSummingMergeTree('/p', 'r') ORDER BY a", ("v",), 1, False, False),
        ("SummingMergeTree ORDER BY a", ("v",), 1, True, False),
        # What expires again does so once more.
        (EXPIRING, (), 0, False, False),
        # What rows of another block took away would stand without these.
        ("CollapsingMergeTree(s) ORDER BY a", (), 50, True, False),
        ("SummingMergeTree ORDER BY a", (), 50, True, False),
        ("ReplacingMergeTree(n, d) ORDER BY a", (), 50, False, False),
        (f"ReplacingMergeTree(n, d) ORDER BY a SETTINGS {CLEANS_UP} = 1", (), 50, True, False),
        (f"MergeTree ORDER BY a SETTINGS {PATCHED}", (), 50, True, False),
        # No entry of a replication log goes.
        ("ReplicatedCollapsingMergeTree('/p', 'r', s) ORDER BY a", (), 50, False, False),
        (f"{EXPIRING} TO DISK 'cold'", ("v",), 0, False, False),
        ("MergeTree ORDER BY a", ("v",), 0, False, False),
        ("AggregatingMergeTree ORDER BY a", ("v",), 0, False, False),
        ("ReplacingMergeTree(n) ORDER BY a", ("v",), 0, False, False),
    ],
)
def test_a_table_without_an_insert_may_have_had_one(
    full: str, views: tuple[str, ...], margin: int, *, hides: bool, though_logged: bool
) -> None:
    """An emptied part goes, and the counter goes back with it; or there was no part."""
    found = nature(re.split(r"[ (]", full)[0], full, DEFAULTS, views=views)
    assert found.hides_an_insert(margin, logged=False) is hides
    assert found.hides_an_insert(margin, logged=True) is though_logged


@pytest.mark.parametrize(
    ("full", "unlogged", "emptied"),
    [
        ("MergeTree ORDER BY a", False, True),  # a person deleted its rows
        (EXPIRING, False, False),
        ("AggregatingMergeTree ORDER BY a", False, True),
        ("CollapsingMergeTree(s) ORDER BY a", True, True),
        ("SummingMergeTree ORDER BY a", True, True),
        ("SummingMergeTree ORDER BY a TTL day + toIntervalDay(1)", True, True),
        (f"MergeTree ORDER BY a SETTINGS {PATCHED}", True, True),
    ],
)
def test_tokens_that_went_with_their_part(full: str, *, unlogged: bool, emptied: bool) -> None:
    """A part log tells of merges of which nothing was left; else any may have been one."""
    found = nature(re.split(r"[ (]", full)[0], full, DEFAULTS)
    assert found.forgets(None) is unlogged
    assert not found.forgets(0)
    assert found.forgets(1) is emptied


OLD, NEW = "m:f@old", "m:f@new"


def versions(
    counted: int | None, *earlier: plan.Entry, newest: int = 3, repeatable: bool = False
) -> plan.Effect:
    """What version NEW, of 6 rows, does after these claims."""
    stamped = counted is not None
    run, _ = plan.start("me", 10, stamped=stamped)
    run, _ = plan.step(run, earlier)
    run, _ = plan.step(run, plan.Made(6, NEW))
    mine = plan.Entry(plan.PREPARED, 9, "me", 3, stamped, rows=6, transform=NEW, sent=plan.ALONE)
    run, _ = plan.step(run, (*earlier, mine))
    inserted = None if stamped else newest - 2
    facts = plan.InsertFacts(
        inserted=inserted, margin=50, newest=newest, counted=counted, repeatable=repeatable
    )
    run, effect = plan.step(run, facts)
    return plan.step(run, plan.ServerRecord("unclear"))[1] if effect == plan.AskRecord() else effect


def claimed(rows: int, transform: str, claim: str = "other", *, stamped: bool = True) -> plan.Entry:
    return plan.Entry(plan.PREPARED, 1, claim, 2, stamped, "", rows, transform, sent=plan.ALONE)


def test_the_count_tells_which_version_made_the_rows() -> None:
    """None there: the new one inserts; all of the old one's: they stay; else it is parked."""
    assert versions(0, claimed(9, OLD)) == plan.Insert(None)
    assert versions(9, claimed(9, OLD)) == plan.Settle(2, made_by="other")
    assert versions(6, claimed(6, NEW)) == plan.Settle(2, made_by="other")
    # Six rows: all of the new one's, or a part of the old one's.
    both = claimed(9, OLD), claimed(6, NEW, "again")
    parked = versions(6, *both)
    assert isinstance(parked, plan.Park)
    assert "6 of its 6 or 9 rows" in parked.reason
    assert "versions of the transform" in parked.reason
    # Nine cannot be six.
    assert versions(9, *both) == plan.Settle(2, made_by="other")
    # Six of either: which of them, nobody can say.
    assert isinstance(versions(6, claimed(6, OLD), claimed(6, NEW, "again")), plan.Park)
    # A claim of a person's command made none of them.
    assert versions(9, claimed(9, OLD), claimed(10, plan.NOTHING_MADE, "human")) == plan.Settle(
        2, made_by="other"
    )


def test_without_counting_another_version_is_never_repeated_under_the_token() -> None:
    """The window vouches for rows of the same version only."""
    same, other = claimed(6, NEW, stamped=False), claimed(6, OLD, stamped=False)
    assert versions(None, same) == plan.Insert(52)
    parked = versions(None, other)
    assert isinstance(parked, plan.Park)
    assert "the transform has changed" in parked.reason
    # Nothing at all was inserted since the old claim.
    assert versions(None, other, newest=2) == plan.Insert(2)


def test_rows_of_another_version_do_not_replace_each_other() -> None:
    """A version column makes a repeat of the same rows harmless; these may have other keys."""
    same, other = claimed(6, NEW, stamped=False), claimed(6, OLD, stamped=False)
    assert versions(None, same, newest=99, repeatable=True) == plan.Insert(None)
    parked = versions(None, other, newest=99, repeatable=True)
    assert isinstance(parked, plan.Park)
    assert "the transform has changed" in parked.reason
    assert isinstance(versions(4, claimed(9, OLD), repeatable=True), plan.Park)


@pytest.mark.parametrize("table", [STAMPED, replace(BARE, window=2)])
@pytest.mark.parametrize(("loaders", "rounds", "faults"), [(2, 1, 0), (1, 2, 2)])
def test_a_block_set_aside_in_any_moment(
    table: Table, loaders: int, rounds: int, faults: int
) -> None:
    """A driver may set it aside beside claims and INSERTs under way, and tries it again: it is
    never doubled, and where its rows can be counted it is loaded in the end."""
    start = begin(table, loaders=loaders, rounds=rounds, faults=faults, others=1, asides=1)
    states, endings = search(start, table, Guards())
    print(f"{table}: {states} states, endings {endings}")
    assert "loaded" in endings
    if table.stamped:
        assert endings == {"loaded"}


def test_a_block_set_aside_without_the_condition_doubles() -> None:
    """Negative control: an INSERT that does not ask the ledger goes in after the second try."""
    start = begin(STAMPED, loaders=2, rounds=1, faults=1, others=1, asides=1)
    with pytest.raises(Violation):
        search(start, STAMPED, Guards(condition=False))


def test_who_sets_it_aside_never_overrules() -> None:
    """What is loaded, given up or parked stays so; nothing else is written of it."""
    for state in (plan.LOADED, plan.DISCARDED, plan.PARKED, plan.ASIDE):
        assert set_aside_plan.entry((plan.Entry(state, 3, "x"),), "y", 10, "why") is None
    new = set_aside_plan.entry((plan.Entry(plan.PREPARED, 3, "x"),), "y", 10, "why")
    assert new == plan.Entry(plan.ASIDE, 4, "y", reason="why", rows=10)
    assert plan.settled((plan.Entry(plan.PREPARED, 4, "z"), new)) == new
    assert plan.settled((plan.Entry(plan.PREPARED, 5, "z"), new)) is None
