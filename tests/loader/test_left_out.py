"""Messages that the table refuses: they alone are parked, the rest of their block is loaded."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.blocks import insert_statement, scratch_table
from loader.blocks.worker import Worker
from loader.core.plan import LOADED, PARKED
from loader.operate.resolve import resolve
from loader.operate.supersede import supersede
from relay.names import LEFT_OUT
from tests.broker.pipeline import wait_until
from tests.loader.blocks import await_next_second, batch, stands
from tests.loader.test_work import copies, killed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

    from loader.clickhouse.ledger import Ledger
    from tests.loader.blocks import Journal

CHECK = "CONSTRAINT small CHECK id NOT IN (17, 42)"
WAYS = {
    "check": CHECK,
    "materialized": "m UInt8 MATERIALIZED throwIf(id IN (17, 42), 'no such id')",
    "default": "d Int64 DEFAULT intDiv(100, (id - 17) * (id - 42))",
    "pattern": "m UInt8 MATERIALIZED match(name, if(id IN (17, 42), '(', 'x'))",
    "interval": "m Float64 MATERIALIZED parseTimeDelta(if(id IN (17, 42), '?', '1h'))",
    "date": "d Date MATERIALIZED toDate(if(id IN (17, 42), concat(name, '?'), '2020-01-02'))",
    "empty": "n UInt32 MATERIALIZED toUInt32(if(id IN (17, 42), '', '1'))",
    "two codes": "n UInt32 MATERIALIZED toUInt32(multiIf(id = 17, 'x', id = 42, '', '1'))",
    "short time": "t DateTime MATERIALIZED "
    "parseDateTime(if(id IN (17, 42), '2024', '2024-01-02'), '%Y-%m-%d')",
    "type of a value": "n UInt64 MATERIALIZED "
    "length(if(id IN (17, 42), id::Dynamic, name::String::Dynamic))",
    "code that is not listed": "n UInt64 MATERIALIZED "
    "parseReadableSize(if(id IN (17, 42), '1 B leftovers', '1 B'))",
}
"""Of a table that refuses the rows 17 and 42, whatever is asked of it."""
AS_MEANT = {
    f"allow_suspicious_{what}": 1
    for what in (
        "low_cardinality_types",
        "fixed_string_types",
        "variant_types",
        "ttl_expressions",
        "primary_key",
    )
}


def make(
    client: Client, table: str, rule: str, more: str = "ORDER BY id", window: int = 100
) -> str:
    client.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), _block String, {rule}) "
        f"ENGINE = MergeTree {more} SETTINGS non_replicated_deduplication_window = {window}"
    )
    return table


PICKY = """
def picky(rows):
    if 3 in rows.column("id").to_pylist():
        raise ValueError("three")
    return rows
"""
KINDS = {
    "plain": ("ORDER BY id", 100),
    "no window": ("ORDER BY id", 0),
    "partitions": ("PARTITION BY intDiv(id, 30) ORDER BY id", 100),
    "partitions without a window": ("PARTITION BY intDiv(id, 30) ORDER BY id", 0),
    "versions": ("ORDER BY id", 100),
}
STEPS = (
    "before_prepare:kill",
    "after_prepare:kill",
    "after_insert:kill",
    "scratch_made:kill",
    "messages_isolated:kill",
    "before_prepare:kill:2",
    "after_prepare:kill:2",
    "after_insert:kill:2",
    "after_loaded:kill",
)
LONG_STEPS = {*STEPS[:2], STEPS[3], STEPS[5], STEPS[8]}


@pytest.fixture
def isolating(journal: Journal, ledger: Ledger) -> Iterator[Worker]:
    worker = Worker(journal.settings(), isolates=True)
    assert worker._ledger.name == ledger.name
    yield worker
    worker.close()


@pytest.mark.parametrize("rule", WAYS.values(), ids=WAYS)
def test_the_rest_is_loaded(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str, rule: str
) -> None:
    table = make(client, f"{database}.t", rule)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = isolating.load([block])
    assert (one.outcome, one.rows, one.left_out) == (LOADED, 98, 2), one.reason
    assert copies(client, table) == (98, 98)
    assert ledger.counts() == [(table, LOADED, 1, 98), (table, PARKED, 1, 2)]
    (rest,) = ledger.waiting()
    assert rest.block.id == f"{block.id}{LEFT_OUT}"
    assert [one.offset for one in rest.block.left_out] == [17, 42]
    assert rest.reason.startswith("2 messages that the table refuses: offset 17: Code: ")
    (again,) = isolating.load([block])
    assert again.outcome == LOADED
    assert copies(client, table) == (98, 98)
    left = f"SHOW TABLES FROM {journal.settings().loader.database} LIKE 'scratch%'"
    assert not client.query(left).result_rows


@pytest.mark.parametrize("rule", [WAYS["materialized"], WAYS["check"]], ids=["throwIf", "check"])
def test_an_attempt_that_was_refused_before_hides_no_message(
    journal: Journal,
    worker: Worker,
    isolating: Worker,
    client: Client,
    database: str,
    rule: str,
) -> None:
    """As in a loader: the micro-batch sets the block aside, and a limit guards the next INSERT,
    which throws as the table's own rule does."""
    table = make(client, f"{database}.t", rule)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = worker.load([block])
    assert (one.outcome, one.about) == ("retry", "block"), one.reason
    (one,) = isolating.load([block])
    assert (one.outcome, one.rows, one.left_out) == (LOADED, 98, 2), one.reason
    assert copies(client, table) == (98, 98)


@pytest.mark.parametrize(
    "clauses",
    [
        "PARTITION BY intDiv(100, (id - 17) * (id - 42)) ORDER BY id",
        "ORDER BY intDiv(100, (id - 17) * (id - 42))",
        "ORDER BY id TTL toDateTime(2000000000 + intDiv(100, (id - 17) * (id - 42)))",
    ],
    ids=["partition", "order", "ttl"],
)
def test_a_clause_of_the_table_that_raises(
    journal: Journal, isolating: Worker, client: Client, database: str, clauses: str
) -> None:
    table = make(client, f"{database}.t", "d UInt8", clauses)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = isolating.load([block])
    assert (one.outcome, one.rows, one.left_out) == (LOADED, 98, 2), one.reason
    assert copies(client, table) == (98, 98)


def test_they_are_loaded_once_the_table_takes_them(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    table = make(client, f"{database}.t", WAYS["check"])
    (block,) = journal.seal(table, batch(0, 100), each=3)
    isolating.load([block])
    assert copies(client, table) == (94, 94), "a message goes as a whole"
    rest = f"{block.id}{LEFT_OUT}"
    ((_, state, reason),) = resolve(journal.settings(), ledger, [rest], "retry")
    assert (state, "violated" in reason) == (PARKED, True)
    client.command(f"ALTER TABLE {table} DROP CONSTRAINT small")
    ((_, state, reason),) = resolve(journal.settings(), ledger, ["all"], "retry")
    assert state == LOADED, reason
    assert copies(client, table) == (100, 100)
    ids = client.query(f"SELECT _block, count() FROM {table} GROUP BY 1 ORDER BY 1").result_rows
    assert ids == [(block.id, 94), (rest, 6)]


@pytest.mark.parametrize(
    "step",
    [pytest.param(one, marks=[pytest.mark.long] * (one in LONG_STEPS)) for one in STEPS],
)
@pytest.mark.parametrize(
    "kind", ["plain", pytest.param("partitions without a window", marks=pytest.mark.long)]
)
def test_a_loader_dies(
    journal: Journal,
    isolating: Worker,
    ledger: Ledger,
    client: Client,
    database: str,
    kind: str,
    step: str,
) -> None:
    """Wherever: the next one leaves out the same messages, and the rest is there once."""
    table = make(client, f"{database}.t", WAYS["check"], *KINDS[kind])
    (block,) = journal.seal(table, batch(0, 100), each=1)
    killed(journal, [block], step)
    (one,) = isolating.load([block])
    assert one.outcome == LOADED, one.reason
    assert copies(client, table) == (98, 98)
    assert ledger.counts() == [(table, LOADED, 1, 98), (table, PARKED, 1, 2)]
    (rest,) = ledger.waiting()
    assert [message.offset for message in rest.block.left_out] == [17, 42]


@pytest.mark.parametrize("kind", KINDS)
def test_what_kind_of_table(
    journal: Journal, isolating: Worker, client: Client, database: str, kind: str
) -> None:
    more, window = KINDS[kind]
    table = make(client, f"{database}.t", WAYS["materialized"], more, window)
    await_next_second(client)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 2), one.reason
    assert copies(client, table) == (98, 98)


def test_another_rule_comes_while_a_loader_is_dead(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """It leaves out more; what was left out before stays so, though it would be taken now."""
    table = make(client, f"{database}.t", WAYS["check"])
    (block,) = journal.seal(table, batch(0, 100), each=1)
    killed(journal, [block], "after_prepare:kill:2")
    client.command(f"ALTER TABLE {table} DROP CONSTRAINT small, ADD CONSTRAINT low CHECK id < 90")
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 12), one.reason
    assert copies(client, table) == (88, 88)
    (rest,) = ledger.waiting()
    assert [one.offset for one in rest.block.left_out] == [17, 42, *range(90, 100)]


def test_the_rule_goes_while_a_loader_is_dead(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """Whoever reads the ledger between is told who is left out, and that holds."""
    table = make(client, f"{database}.t", WAYS["check"])
    (block,) = journal.seal(table, batch(0, 100), each=1)
    killed(journal, [block], "after_insert:kill:2")
    client.command(f"ALTER TABLE {table} DROP CONSTRAINT small")
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 2), one.reason
    ((_, state, reason),) = resolve(journal.settings(), ledger, ["all"], "retry")
    assert state == LOADED, reason
    assert copies(client, table) == (100, 100)


@pytest.mark.parametrize("rejected", ["park", "dead"])
@pytest.mark.parametrize("each", [0, 1], ids=["one message", "a hundred"])
def test_what_may_be_the_tables_is_the_tables(
    journal: Journal,
    isolating: Worker,
    client: Client,
    database: str,
    rejected: str,
    each: int,
) -> None:
    """Where BAD_ARGUMENTS meets all of them, the block waits for the table: nothing is parked."""
    isolating._isolator._dead = isolating._inserter._dead = rejected == "dead"
    rule = "m Float64 MATERIALIZED parseTimeDelta(concat('?', name))"
    table = make(client, f"{database}.t", rule)
    (block,) = journal.seal(table, batch(0, 100), each=each)
    (one,) = isolating.load([block])
    assert (one.outcome, one.about, "BAD_ARGUMENTS" in one.reason) == ("retry", "unknown", True)
    client.command(f"ALTER TABLE {table} DROP COLUMN m")
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 0), one.reason
    assert copies(client, table) == (100, 100)


NEVER = {
    "of the table": ("length(id::Dynamic)", "table"),
    "not listed": ("parseReadableSize(concat('1 B left', name::String))", "unknown"),
}


@pytest.mark.parametrize(("expression", "about"), NEVER.values(), ids=NEVER)
def test_an_error_that_each_message_meets_parks_nothing(
    journal: Journal,
    isolating: Worker,
    ledger: Ledger,
    client: Client,
    database: str,
    expression: str,
    about: str,
) -> None:
    """Where the code does not say that it is about values, the block waits for the table."""
    isolating._isolator._dead = isolating._inserter._dead = True
    table = make(client, f"{database}.t", f"m UInt64 MATERIALIZED {expression}")
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = isolating.load([block])
    assert (one.outcome, one.about) == ("retry", about), one.reason
    assert not ledger.waiting()
    client.command(f"ALTER TABLE {table} DROP COLUMN m")
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 0), one.reason
    assert copies(client, table) == (100, 100)


def test_a_trouble_that_passes_blames_no_message(
    journal: Journal,
    isolating: Worker,
    ledger: Ledger,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever has one of the messages meets an error that is not listed, until that is blamed."""
    table = make(client, f"{database}.t", "m UInt8")
    (block,) = journal.seal(table, batch(0, 100), each=1)
    real, blamed = scratch_table.send, list[int]()

    def at_times(*given: Any) -> object:
        rows = given[2].column("id").to_pylist()
        if 57 in rows and not blamed:
            blamed.extend(rows if len(rows) == 1 else [])
            raise DatabaseError("Code: 9999. DB::Exception: of a release to come")
        return real(*given)

    def once(*_: Any) -> object:
        monkeypatch.setattr(insert_statement, "send", real)
        raise DatabaseError("Code: 9999. DB::Exception: of a release to come")

    monkeypatch.setattr(scratch_table, "send", at_times)
    monkeypatch.setattr(insert_statement, "send", once)
    (one,) = isolating.load([block])
    assert (one.outcome, one.about, "at one trial" in one.reason) == ("retry", "unknown", True)
    assert blamed == [57]
    assert not ledger.waiting()
    monkeypatch.setattr(scratch_table, "send", real)
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 0), one.reason


def test_no_good_message_is_blamed_beside_a_bad_one(
    journal: Journal,
    isolating: Worker,
    ledger: Ledger,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The INSERT says what is surely a value's; alone, all others meet an error of something else.

    Red before: all of them became dead letters.
    """
    isolating._isolator._dead = isolating._inserter._dead = True
    table = make(client, f"{database}.t", "m UInt8 MATERIALIZED toUInt8(if(id = 57, 'x', '1'))")
    (block,) = journal.seal(table, batch(0, 100), each=1)
    real = scratch_table.send

    def away(*given: Any) -> object:
        if given[2].column("id").to_pylist() != [57]:
            raise DatabaseError("Code: 9999. DB::Exception: of a release to come")
        return real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(scratch_table, "send", away)
        (one,) = isolating.load([block])
    assert (one.outcome, one.about) == ("retry", "unknown"), one.reason
    assert not ledger.waiting()
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 1), one.reason
    assert copies(client, table) == (99, 99)


def test_a_table_as_its_maker_alone_may_make_it(
    journal: Journal, isolating: Worker, client: Client, database: str
) -> None:
    """What ClickHouse makes only for who says that it is meant: each setting is needed."""
    table = f"{database}.t"
    client.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), _block String, {CHECK}, "
        "few LowCardinality(UInt32), long FixedString(300), either Variant(UInt8, UInt16), "
        "sum SimpleAggregateFunction(sum, UInt64)) "
        "ENGINE = MergeTree ORDER BY (id, sum) TTL toDate('2100-01-01')",
        settings=AS_MEANT,
    )
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = isolating.load([block])
    assert (one.outcome, one.rows, one.left_out) == (LOADED, 98, 2), one.reason
    assert copies(client, table) == (98, 98)


def test_the_table_takes_nothing(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """Then it is not about single messages: the block is parked as a whole."""
    table = make(client, f"{database}.t", "CONSTRAINT none CHECK id < 0")
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = isolating.load([block])
    assert (
        one.outcome,
        one.reason.endswith("the table also refuses each of its messages one by one"),
    ) == (PARKED, True)
    assert [(one.block.id, one.block.rows) for one in ledger.waiting()] == [(block.id, 100)]


def test_a_transform_refuses_some(
    journal: Journal, ledger: Ledger, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are left out as those that the table refuses are; both may be in one block."""
    (journal.directory / "picky.py").write_text(PICKY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(journal.directory))
    table = make(client, f"{database}.t", WAYS["check"])
    (block,) = journal.seal(table, batch(0, 100), each=1)
    worker = Worker(journal.settings(transform="picky:picky"), isolates=True)
    with contextlib.closing(worker):
        (one,) = worker.load([block])
    assert (one.outcome, one.left_out) == (LOADED, 3), one.reason
    assert copies(client, table) == (97, 97)
    (rest,) = ledger.waiting()
    whys = {m.offset: m.reason for m in rest.block.left_out}
    assert whys.keys() == {3, 17, 42}
    assert "ValueError: three" in whys[3]
    assert "Constraint `small`" in whys[17]


def test_a_block_that_does_not_say_whose_its_rows_are(
    journal: Journal, isolating: Worker, client: Client, database: str
) -> None:
    """One of an earlier version of the relay is parked as a whole, as it was then."""
    table = make(client, f"{database}.t", WAYS["check"])
    (block,) = journal.seal(table, batch(0, 100))
    (one,) = isolating.load([block])
    assert (one.outcome, "is violated at row 18" in one.reason) == (PARKED, True)
    assert copies(client, table) == (0, 0)


def test_a_loader_that_is_asked_to_end_tries_no_more(
    journal: Journal, ledger: Ledger, client: Client, database: str
) -> None:
    """A block may take thousands of trials. Nothing is left behind, and the next loader goes on."""
    table = make(client, f"{database}.t", WAYS["pattern"])
    (block,) = journal.seal(table, batch(0, 100), each=1)
    asked = iter([False, False, False])  # before the block, and before two trials
    with contextlib.closing(
        Worker(journal.settings(), isolates=True, ends=lambda: next(asked, True))
    ) as stopped:
        (one,) = stopped.load([block])
        assert (one.outcome, one.about, "asked to end" in one.reason) == ("retry", "", True), one
        claims = ledger.entries([block])
        (again,) = stopped.load([block])
        assert (again.outcome, ledger.entries([block])) == ("retry", claims), "nor a claim"
    client.command("SYSTEM FLUSH LOGS")
    tried = f"system.query_log WHERE type = 'QueryStart' AND log_comment = 'trial of {block.id}'"
    assert client.query(f"SELECT count() FROM {tried}").result_rows == [(2,)]
    left = f"SHOW TABLES FROM {journal.settings().loader.database} LIKE 'scratch%'"
    assert not client.query(left).result_rows
    with contextlib.closing(Worker(journal.settings(), isolates=True)) as next_one:
        (one,) = next_one.load([block])
    assert (one.outcome, one.left_out, copies(client, table)) == (LOADED, 2, (98, 98)), one


def test_a_table_of_a_killed_loader_goes_a_day_later(
    journal: Journal,
    isolating: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing that is a user's, whatever its name begins with."""
    table = make(client, f"{database}.t", WAYS["check"])
    first, second = journal.seal(table, batch(0, 100), batch(500, 100), each=1)
    killed(journal, [first], "scratch_made:kill")
    within = journal.settings().loader.database
    client.command(f"CREATE TABLE {within}.scratch_of_a_user (id Int64) ENGINE = Memory")
    listed = (
        "SELECT count(), countIf(name = 'scratch_of_a_user') FROM system.tables "
        f"WHERE name LIKE 'scratch%' AND database = '{within}'"
    )
    assert client.query(listed).result_rows == [(2, 1)]
    isolating.load([first])
    assert client.query(listed).result_rows == [(2, 1)], "not a day old"
    monkeypatch.setattr(scratch_table, "_LEFT_BEHIND_SECONDS", 0)
    older = (
        "SELECT max(metadata_modification_time) < now() FROM system.tables "
        f"WHERE name LIKE 'scratch%' AND database = '{within}'"
    )
    wait_until(lambda: bool(client.query(older).result_rows[0][0]), "a table of a second before")
    client.command(f"ALTER TABLE {table} ADD CONSTRAINT more CHECK id != 501")
    (one,) = isolating.load([second])
    assert one.left_out == 1, one.reason
    assert client.query(listed).result_rows == [(1, 1)]


def test_a_micro_batch_does_not_wait_for_the_search(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """It sets the block aside; who tries those again has the time."""
    table = make(client, f"{database}.t", WAYS["check"])
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = worker.load([block])
    assert (one.outcome, one.about) == ("retry", "block"), one.reason


def test_a_view_refuses_what_the_table_takes(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """The table has all rows by then, so no message can be left out of it: the block is parked.

    The reason names the view and what to do, and that is enough: each has all rows, once.
    """
    table = make(client, f"{database}.t", "CONSTRAINT fine CHECK id >= 0")
    client.command(
        f"CREATE TABLE {database}.behind (id Int64, CONSTRAINT small CHECK id != 17) "
        "ENGINE = MergeTree ORDER BY id"
    )
    client.command(
        f"CREATE MATERIALIZED VIEW {database}.v TO {database}.behind AS SELECT id FROM {table}"
    )
    await_next_second(client)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    (one,) = isolating.load([block])
    assert one.outcome == PARKED
    assert copies(client, table) == (100, 100)
    assert f"but a view behind it refuses ({database}.v): correct the view" in one.reason
    client.command(f"ALTER TABLE {database}.behind DROP CONSTRAINT small")
    ((_, state, reason),) = resolve(journal.settings(), ledger, [block.id], "retry")
    assert state == LOADED, reason
    assert (copies(client, table), copies(client, f"{database}.behind")) == ((100, 100),) * 2


def test_a_rewind_takes_them_along(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """What is superseded goes with all of its messages, whatever became of each."""
    table = make(client, f"{database}.t", WAYS["check"])
    loaded, waits = journal.seal(table, batch(0, 100), batch(100, 100), each=1)
    client.command(f"ALTER TABLE {table} ADD CONSTRAINT more CHECK id != 117")
    isolating.load([loaded, waits])  # in one INSERT, of which nobody knows whose rows are refused
    isolating.load([loaded, waits])
    client.command(f"ALTER TABLE {table} DROP CONSTRAINT small")
    rest = f"{loaded.id}{LEFT_OUT}"
    assert [s for _, s, _ in resolve(journal.settings(), ledger, [rest], "retry")] == [LOADED]
    assert copies(client, table) == (199, 199)
    done = supersede(
        journal.settings(), ledger, [loaded, waits], keep=False, why="wrong", check=stands
    )
    assert (done.blocks, done.rows) == (4, 199)
    assert copies(client, table) == (0, 0)
    assert ledger.waiting() == []


@pytest.mark.parametrize("bad", [1, 10, pytest.param(1000, marks=pytest.mark.long)])
def test_many_messages(
    journal: Journal, isolating: Worker, ledger: Ledger, client: Client, database: str, bad: int
) -> None:
    """Of 10 000; a violated CHECK names its row, so each bad one costs two statements."""
    table = make(client, f"{database}.t", rare(bad))
    (block,) = journal.seal(table, batch(0, 10_000), each=1, chunk_bytes=1_000_000)
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, bad), one.reason
    assert copies(client, table) == (10_000 - bad, 10_000 - bad)
    (rest,) = ledger.waiting()
    assert [m.offset for m in rest.block.left_out] == list(range(7, 10_000, 10_000 // bad))
    client.command("SYSTEM FLUSH LOGS")
    ((trials,),) = client.query(
        "SELECT count() FROM system.query_log WHERE type = 'QueryStart' "
        f"AND log_comment = 'trial of {block.id}'"
    ).result_rows
    assert bad < trials <= 2 * bad + 2


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("bad", [1, 10, 1000])
def test_many_messages_and_a_loader_that_dies(
    journal: Journal,
    isolating: Worker,
    ledger: Ledger,
    client: Client,
    database: str,
    bad: int,
    step: str,
) -> None:
    table = make(client, f"{database}.t", rare(bad))
    (block,) = journal.seal(table, batch(0, 10_000), each=1, chunk_bytes=1_000_000)
    killed(journal, [block], step, seconds=240)
    (one,) = isolating.load([block])
    assert (one.outcome, one.left_out) == (LOADED, bad), one.reason
    assert copies(client, table) == (10_000 - bad, 10_000 - bad)
    (rest,) = ledger.waiting()
    assert [m.offset for m in rest.block.left_out] == list(range(7, 10_000, 10_000 // bad))


def rare(bad: int) -> str:
    """A rule that so many of 10 000 rows violate."""
    return f"CONSTRAINT rare CHECK id % {10_000 // bad} != 7"
