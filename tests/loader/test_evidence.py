"""What the loader concludes where rows do not tell: each line of the document `evidence`.

A loader is killed, or ClickHouse refuses in the middle, and another one has to decide. Nothing
here believes what the loader counts: rows are counted in tables and views by the test.
"""

from __future__ import annotations

import dataclasses
import re
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.blocks import insert_groups
from loader.blocks.insert_statement import send
from loader.blocks.worker import Worker
from loader.clickhouse import server_records, tables
from loader.core import plan
from relay.clickhouse.quoting import quoted, table_parameters
from relay.errors import Unavailable
from relay.operate.rewind.tables import WAIT
from tests.broker.pipeline import wait_until
from tests.loader.blocks import await_next_second, batch, clock_passes
from tests.loader.test_work import copies, killed, others_insert, outcomes
from tests.reach import elsewhere

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.clickhouse.ledger import Ledger
    from relay.config.settings import ClickHouse
    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal

OLD = "toDate('2020-01-01')"


@pytest.fixture(params=["logs", "no logs"])
def logs(request: pytest.FixtureRequest) -> bool:
    """Whether the server has a query log and a part log that the loader may read."""
    if request.param == "no logs":
        request.getfixturevalue("without_logs")
    return bool(request.param == "logs")


CLEANS_SOON = (
    "cleanup_delay_period = 1, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 1"
)
"""Settings of a table whose server forgets mutations, and emptied parts, within some seconds."""


def create(
    client: Client, name: str, columns: str = "", engine: str = "MergeTree", more: str = ""
) -> str:
    """A table of the columns that `batch` has, and more."""
    client.command(
        f"CREATE TABLE {name} (id Int64, name LowCardinality(String){columns}) ENGINE = {engine} "
        f"ORDER BY id {more}"
    )
    return name


def window(parts: int) -> str:
    return f"SETTINGS non_replicated_deduplication_window = {parts}"


def summed(client: Client, table: str, *, check: str = "", tokens: int = 100) -> str:
    """A view that counts what comes into the table, and its name; `check` may refuse rows.

    It remembers so many tokens.
    """
    view = f"{table}_sums"
    client.command(
        f"CREATE TABLE {view} (n UInt64, id Int64{check}) ENGINE = MergeTree ORDER BY id "
        f"{window(tokens)}"
    )
    client.command(
        f"CREATE MATERIALIZED VIEW {view}_mv TO {view} AS SELECT 1 AS n, id FROM {table}"
    )
    return view


def number(client: Client, of: str) -> int:
    return int(client.query(f"SELECT count() FROM {of}").result_rows[0][0])


def until_settled(worker: Worker, blocks: list[Block], rounds: int = 5) -> list[str]:
    """How attempts ended, one after the other; as a loader makes them."""
    for _ in range(rounds):
        found = outcomes(worker.load(blocks))
        if "retry" not in found:
            return found
    return found


def claims(ledger: Ledger, block: Block) -> int:
    return sum(one.state == plan.PREPARED for one in ledger.entries([block])[block.id])


@pytest.mark.parametrize("vanish", ["ttl", "replacing", "collapsing"])
def test_the_answer_counts_and_not_the_rows(
    journal: Journal,
    worker: Worker,
    ledger: Ledger,
    client: Client,
    database: str,
    vanish: str,
) -> None:
    """A1: rows that are gone once they are written, or once parts are merged, are inserted once."""
    engine = {"replacing": "ReplacingMergeTree", "collapsing": "CollapsingMergeTree(sign)"}
    columns = f", _block String, day Date DEFAULT {OLD}, sign Int8 DEFAULT 1"
    ttl = "TTL day + INTERVAL 30 DAY " if vanish == "ttl" else ""
    name = f"{database}.{vanish}"
    table = create(client, name, columns, engine.get(vanish, "MergeTree"), ttl + window(0))
    view = summed(client, table)
    blocks = journal.seal(table, *(batch(i * 50, 100) for i in range(5)))
    assert outcomes(worker.load(blocks)) == ["loaded"] * 5
    assert number(client, view) == 500
    assert [claims(ledger, block) for block in blocks] == [1] * 5
    client.command(f"OPTIMIZE TABLE {table} FINAL")
    assert number(client, table) == (0 if vanish == "ttl" else 300)


@pytest.mark.parametrize("size", [0, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("point", ["after_prepare", "after_insert"])
def test_expiring_rows_after_a_kill(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    point: str,
    size: int,
    *,
    logs: bool,
) -> None:
    """A1: inside the window by the token, outside it by the server's record; else parked."""
    columns = f", _block String, day Date DEFAULT {OLD}"
    more = f"TTL day + INTERVAL 30 DAY {window(size)}"
    table = create(client, f"{database}.ttl", columns, more=more)
    view = summed(client, table)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, point)
    others_insert(client, table)
    before = number(client, f"{view} WHERE id >= 0")
    found = until_settled(worker, blocks)
    if size or logs:
        assert found == ["loaded"]
        assert number(client, f"{view} WHERE id >= 0") == 100
    else:
        assert found == ["parked"]
        assert number(client, f"{view} WHERE id >= 0") == before


CANCELLING = {
    "collapsing": ("sign Int8 DEFAULT 1 - 2 * (id % 2)", "CollapsingMergeTree(sign)"),
    "summing": ("n Int64 DEFAULT 0", "SummingMergeTree"),
}
"""Of a block's rows nothing is left: a column, and an engine ordered by pairs of ids."""


@pytest.mark.parametrize("kind", list(CANCELLING))
@pytest.mark.parametrize("point", ["after_prepare", "after_insert"])
def test_rows_that_cancel_each_other_reach_a_view_once(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    point: str,
    kind: str,
    *,
    logs: bool,
) -> None:
    """Their INSERT makes no part, so counter and part log are as if there had been none."""
    column, engine = CANCELLING[kind]
    table = f"{database}.{kind}"
    client.command(
        f"CREATE TABLE {table} (id Int64, name String, {column}) ENGINE = {engine} "
        "ORDER BY intDiv(id, 2)"
    )
    view = summed(client, table, tokens=0)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, point)
    before = number(client, view)
    assert (number(client, table), before) == (0, 100 * (point == "after_insert"))
    assert until_settled(worker, blocks) == ["loaded" if logs else "parked"]
    assert number(client, view) == (100 if logs else before)


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("refusal", ["check", "cast", "partitions"])
def test_a_view_that_failed_gets_its_rows(
    journal: Journal, worker: Worker, client: Client, database: str, refusal: str, *, stamped: bool
) -> None:
    """A3: the table had its part, the view refused; once it is mended, both have all rows."""
    stamp = ", _block String" if stamped else ""
    table = create(client, f"{database}.viewed", stamp, more=window(100))
    view = f"{table}_rows"
    column = {"check": "id Int64, CONSTRAINT small CHECK id < 50", "cast": "id UInt8"}.get(
        refusal, "id Int64"
    )
    by = "PARTITION BY id % 200 " if refusal == "partitions" else ""
    client.command(
        f"CREATE TABLE {view} ({column}) ENGINE = MergeTree {by}ORDER BY tuple() {window(500)}"
    )
    value = "accurateCast(id, 'UInt8')" if refusal == "cast" else "id"
    select = f"SELECT {value} AS id FROM {table}"
    client.command(f"CREATE MATERIALIZED VIEW {view}_mv TO {view} AS {select}")
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 300))
    first = outcomes(worker.load(blocks))
    if refusal == "partitions":  # any number of partitions is let in
        assert first == ["loaded"]
    else:
        assert first == ["parked"]
        assert (number(client, table), number(client, view)) == (300, 0)
        if refusal == "check":
            client.command(f"ALTER TABLE {view} DROP CONSTRAINT small")
        else:
            client.command(f"ALTER TABLE {view} MODIFY COLUMN id Int64")
            client.command(f"ALTER TABLE {view}_mv MODIFY QUERY SELECT id FROM {table}")
        assert outcomes(worker.load(blocks, human="retry")) == ["loaded"]
    assert (number(client, table), number(client, view)) == (300, 300)


def removed(client: Client, table: str, how: str) -> None:
    """A person removes what is in the table, or puts an empty one in its place."""
    made = client.query(f"SHOW CREATE TABLE {table}").result_rows[0][0]
    for statement in {
        "delete": [f"ALTER TABLE {table} DELETE WHERE id >= 0 SETTINGS mutations_sync = 2"],
        "lightweight": [f"DELETE FROM {table} WHERE id >= 0"],
        "truncate": [f"TRUNCATE TABLE {table}"],
        "partition": [f"ALTER TABLE {table} DROP PARTITION tuple()"],
        "moved": [
            f"CREATE TABLE {table}_old AS {table}",
            f"ALTER TABLE {table} MOVE PARTITION tuple() TO TABLE {table}_old",
        ],
        "remade": [f"DROP TABLE {table}", made],
        "replaced": [f"CREATE OR REPLACE TABLE {made.removeprefix('CREATE TABLE ')}"],
        "renamed": [f"RENAME TABLE {table} TO {table}_old", made],
        "exchanged": [
            made.replace(table, f"{table}_new", 1),
            f"EXCHANGE TABLES {table} AND {table}_new",
            f"DROP TABLE {table}_new",
        ],
    }[how]:
        client.command(statement)


def test_a_part_that_was_dropped_before_the_insert_of_now_is_explained(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rows were removed, a person had the block inserted again, and that answer was lost."""
    table = create(client, f"{database}.t", more=window(0))
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    client.command(f"TRUNCATE TABLE {table}")
    assert until_settled(worker, blocks) == ["parked"]

    def lost(failpoint: str) -> None:
        if failpoint == "after_insert":
            raise Unavailable("the connection was lost", "wait")

    with monkeypatch.context() as patched:
        patched.setattr(insert_groups, "reached", lost)
        (done,) = worker.load(blocks, human="absent")
    assert (done.outcome, number(client, table)) == ("retry", 100), done.reason
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, table) == 100


def test_what_is_taken_from_the_target_of_a_view_is_not_the_blocks(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """A table that a view fills and a job empties, as it lands rows for others: it was parked."""
    table = create(client, f"{database}.t", more=window(0))
    client.command(f"CREATE TABLE {database}.landing (id Int64) ENGINE = MergeTree ORDER BY id")
    client.command(
        f"CREATE MATERIALIZED VIEW {database}.v TO {database}.landing AS SELECT id FROM {table}"
    )
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    removed(client, f"{database}.landing", "moved")
    assert until_settled(worker, blocks) == ["loaded"]
    assert (number(client, table), number(client, f"{database}.landing_old")) == (100, 100)


ANOTHER = ("remade", "replaced", "renamed", "exchanged")
"""Ways to have another table under the same name."""


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("size", [0, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", ["delete", "lightweight", "truncate", "partition", "moved"])
def test_what_a_person_deleted_stays_deleted(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    how: str,
    size: int,
    *,
    together: bool,
) -> None:
    """A4: none there is no proof that none was, whatever took the rows away."""
    table = create(client, f"{database}.edited", ", _block String", more=window(size))
    blocks = journal.seal(table, batch(0, 100), *([batch(100, 100)] if together else []))
    killed(journal, blocks, "after_insert")
    assert number(client, table) == 100 * len(blocks)
    removed(client, table, how)
    # With its parts gone, a backup without them may have been restored as well.
    expected = "loaded" if how in {"delete", "lightweight"} else "parked"
    assert set(until_settled(worker, blocks)) == {expected}
    assert number(client, table) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "OPTIMIZE TABLE {table} FINAL",
        "ALTER TABLE {table} UPDATE name = 'x' WHERE 1 SETTINGS mutations_sync = 2",
        "ALTER TABLE {table} DELETE WHERE 1 SETTINGS mutations_sync = 2",
    ],
)
def test_parts_that_became_others_are_none_that_went(
    journal: Journal, worker: Worker, client: Client, database: str, statement: str
) -> None:
    """Nothing but the log tells that the block is loaded; of the deleted rows no part is left."""
    table = create(client, f"{database}.merged", more=f"{window(0)}, {CLEANS_SOON}")
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    others_insert(client, table)
    client.command(statement.format(table=table))
    if "DELETE" in statement:
        parts = f"system.parts WHERE active AND database || '.' || table = '{table}'"
        wait_until(lambda: number(client, parts) == 0, "the server takes empty parts away")
    assert until_settled(worker, blocks) == ["loaded"]


@pytest.mark.parametrize("how", ANOTHER)
def test_what_went_with_its_table_stays_gone(
    journal: Journal, worker: Worker, client: Client, database: str, how: str
) -> None:
    """The tokens of the table before say nothing of the one that has its name now."""
    table = create(client, f"{database}.before", ", _block String", more=window(100))
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    assert number(client, table) == 100
    removed(client, table, how)
    # Where the old table's parts are gone, a backup without them may have been restored as well.
    expected = "loaded" if how == "renamed" else "parked"
    assert until_settled(worker, blocks) == [expected]
    assert number(client, table) == 0


@pytest.mark.parametrize("how", ["truncate", "partition", *ANOTHER])
def test_what_a_view_got_says_nothing_of_the_blocks_own_rows(
    journal: Journal, worker: Worker, client: Client, database: str, how: str
) -> None:
    """They went, and the view's table has its part: the block counted as loaded."""
    table = create(client, f"{database}.t", ", _block String", more=window(100))
    view = summed(client, table)
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    assert (number(client, table), number(client, view)) == (100, 100)
    removed(client, table, how)
    # Its rows have another name since, and a person knows where.
    expected = "loaded" if how == "renamed" else "parked"
    assert until_settled(worker, blocks) == [expected]
    assert (number(client, table), number(client, view)) == (0, 100)


@pytest.mark.parametrize("how", ["truncate", ""])
def test_of_a_table_that_keeps_nothing_the_targets_of_views_tell(
    journal: Journal, worker: Worker, client: Client, database: str, how: str
) -> None:
    """The table has no parts: whether its rows stay is whether those of its view's table do."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (id Int64, name String) ENGINE = Null")
    view = summed(client, table)
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    if how:
        removed(client, view, how)
    assert until_settled(worker, blocks) == ["parked" if how else "loaded"]
    assert number(client, view) == (0 if how else 100)


@pytest.fixture
def ordinary(client: Client, database: str) -> Iterator[str]:
    """A database whose tables have no UUID."""
    name = f"{database}_ordinary"
    allowed = {"allow_deprecated_database_ordinary": 1}
    client.command(f"CREATE DATABASE {name} ENGINE = Ordinary", settings=allowed)
    yield name
    client.command(f"DROP DATABASE {name} SYNC")


@pytest.mark.parametrize("remade", [True, False])
@pytest.mark.parametrize("stamp", ["", ", _block String"])
def test_a_table_without_a_uuid_may_be_another(
    journal: Journal, worker: Worker, client: Client, ordinary: str, stamp: str, *, remade: bool
) -> None:
    """Nothing but the time of its definition tells it from the one that had the rows: the block
    counted as loaded. What happens to a table of another name is not this one's: it was parked."""
    table, other = (create(client, f"{ordinary}.{n}", stamp, more=window(0)) for n in ("a", "b"))
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    if remade:
        removed(client, table, "remade")
    else:
        others_insert(client, other)
        client.command(f"TRUNCATE TABLE {other}")
    assert until_settled(worker, blocks) == ["parked" if remade else "loaded"]
    assert number(client, table) == (0 if remade else 100)


@pytest.mark.parametrize("stamp", ["", ", _block String"])
@pytest.mark.parametrize("size", [0, pytest.param(100, marks=pytest.mark.long)])
def test_what_was_copied_into_another_table_is_not_inserted_again(
    journal: Journal, worker: Worker, client: Client, database: str, stamp: str, size: int
) -> None:
    """A person moves the table: its rows into a new one, which then takes its name."""
    table = create(client, f"{database}.moved", stamp, more=window(size))
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    made = client.query(f"SHOW CREATE TABLE {table}").result_rows[0][0]
    client.command(made.replace(table, f"{table}_new", 1))
    client.command(f"INSERT INTO {table}_new SELECT * FROM {table} SETTINGS async_insert = 0")
    client.command(f"EXCHANGE TABLES {table} AND {table}_new")
    client.command(f"DROP TABLE {table}_new SYNC")
    # The tokens went with the old table, and without block ids nobody can tell rows apart.
    expected = "loaded" if stamp else "parked"
    assert until_settled(worker, blocks) == [expected]
    assert number(client, table) == 100


def test_what_was_not_inserted_before_a_table_was_made_anew_is_inserted(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """Others' rows went with the old table; the block's go into the new one."""
    table = create(client, f"{database}.anew", ", _block String", more=window(100))
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_prepare")
    others_insert(client, table)
    removed(client, table, "remade")
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, f"{table} WHERE id >= 0") == 100


def test_a_rewinds_wait_for_deletions_is_none(client: Client, database: str) -> None:
    """Nor does it lead to another's."""
    table = create(client, f"{database}.waited", ", _block String")
    client.command(f"INSERT INTO {table} (id, _block) VALUES (1, 'a'), (2, 'b')")

    def deletes() -> int | None:
        return server_records.ServerRecords(client, several=False).deletes(
            table_parameters(table), 0, "_block"
        )

    client.command(WAIT.format(table=table))
    assert deletes() == 0
    client.command(f"ALTER TABLE {table} DELETE WHERE id = 10 SETTINGS mutations_sync = 2")
    assert deletes() == 1
    client.command(f"ALTER TABLE {table} DELETE WHERE 0, DELETE WHERE id = 1")
    assert deletes() == 2


@pytest.mark.parametrize("how", ["delete", "lightweight"])
@pytest.mark.usefixtures("without_logs")
def test_without_logs_deletes_are_still_seen(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    how: str,
) -> None:
    """A4: the table's mutations tell of them: parked, and said why."""
    table = create(client, f"{database}.edited", ", _block String", more=window(0))
    blocks = journal.seal(table, batch(0, 100), batch(100, 100))
    killed(journal, blocks, "after_insert")
    removed(client, table, how)
    done = worker.load(blocks)
    assert outcomes(done) == ["parked"] * 2
    assert "rows were deleted since" in done[0].reason
    assert number(client, table) == 0


@pytest.mark.parametrize("before", [False, True], ids=["since the claim", "before it"])
@pytest.mark.usefixtures("without_logs")
def test_without_logs_a_delete_that_the_server_has_forgotten(
    journal: Journal, worker: Worker, client: Client, database: str, *, before: bool
) -> None:
    """A4: a table shows the last of its finished mutations; since their first it shows all."""
    more = f"{window(0)}, finished_mutations_to_keep = 3, {CLEANS_SOON}"
    table = create(client, f"{database}.edited", ", _block String", more=more)

    def mutate(how: str) -> None:
        client.command(f"ALTER TABLE {table} {how} SETTINGS mutations_sync = 2")

    def shown() -> list[str]:
        sql = "SELECT command FROM system.mutations WHERE database || '.' || table = {table:String}"
        return [row[0] for row in client.query(sql, {"table": table}).result_rows]

    (block,) = journal.seal(table, batch(0, 100))
    if before:
        for n in range(5):
            mutate(f"UPDATE name = '' WHERE id = -{n}")
        wait_until(lambda: len(shown()) == 3, "the server forgets the first mutations")
        await_next_second(client)
        await_next_second(client)
        killed(journal, [block], "after_prepare")
    else:
        killed(journal, [block], "after_insert")
        mutate("DELETE WHERE 1")
        for n in range(5):
            mutate(f"UPDATE name = '' WHERE id = -{n}")
        wait_until(lambda: "DELETE" not in str(shown()), "the server forgets the DELETE")
    done = worker.load([block])
    assert outcomes(done) == ["loaded" if before else "parked"]
    assert number(client, table) == (100 if before else 0)
    assert before or "finished_mutations_to_keep" in done[0].reason


@pytest.mark.parametrize("took", [True, False])
@pytest.mark.parametrize("how", ["ALTER TABLE {table} DELETE", "DELETE FROM {table}"])
@pytest.mark.usefixtures("without_statements")
def test_a_delete_that_was_killed_is_still_seen(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    how: str,
    *,
    took: bool,
) -> None:
    """A4: no system table has it, but the log its statement; one that was refused took nothing."""
    more = f"PARTITION BY id >= 150 {window(0)}"
    table = create(client, f"{database}.edited", ", _block String", more=more)
    client.command(f"INSERT INTO {table} (id) VALUES (200)")
    (block,) = journal.seal(table, batch(0, 100))
    killed(journal, [block], "after_insert" if took else "after_prepare")
    which, error = ("throwIf(id = 200) = 0", "UNFINISHED") if took else ("no_such", "UNKNOWN")
    with pytest.raises(ClickHouseError, match=error):
        client.command(f"{how.format(table=table)} WHERE {which}", settings={"mutations_sync": 1})
    wait_until(lambda: number(client, table) == 1, "the rows of the first partition are gone")
    client.command(f"KILL MUTATION WHERE database || '.' || table = '{table}' SYNC")
    (done,) = worker.load([block])
    assert done.outcome == ("parked" if took else "loaded"), done.reason
    assert ("rows were deleted since" in done.reason) == took
    assert number(client, table) == (1 if took else 101)


@pytest.mark.parametrize(
    ("name", "escaped"), [("events", False), ("odd.one", False), ("table", False), ("a`b\\c", True)]
)
def test_statements_about_other_tables_are_not_read(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch, name: str, *, escaped: bool
) -> None:
    """There may be many, each of 100 kB; those of the table itself are found, whatever its name.

    Red before: all that had its name within another's were read, of each block, and none of a table
    whose name has to be escaped.
    """
    table, beside = (f"{database}.{quoted(one)}" for one in (name, f"{name}_staging"))
    for one in (table, beside):
        create(client, one, ", _block String")
    records, read = server_records.ServerRecords(client, several=False), list[Any]()
    ask = records.ask

    def noted(*given: Any, **asked: Any) -> Any:
        rows = ask(*given, **asked)
        read.extend(rows or ())
        return rows

    def told(*statements: str) -> int:
        for statement in statements:
            client.command(statement, settings={"mutations_sync": 1})
        client.command("SYSTEM FLUSH LOGS")
        return records._statements({"database": database, "name": name}, 0, "_block")

    monkeypatch.setattr(records, "ask", noted)
    assert told(f"DELETE FROM {beside} WHERE id = 1") == 0
    assert escaped or read == []
    updates = "UPDATE name = 'is_deleted' WHERE id = 1", "UPDATE _block = '' WHERE id = 1"
    deletes = f"DELETE FROM {table} WHERE id = 1", f"alter table {table} delete where id = 2"
    assert told(*deletes, *(f"ALTER TABLE {table} {one}" for one in updates)) == 3


@pytest.mark.parametrize(("number", "removed"), [(999, False), (1000, True)])
def test_where_there_are_more_statements_than_are_read(
    monkeypatch: pytest.MonkeyPatch, number: int, *, removed: bool
) -> None:
    """Any of the others may have removed rows."""
    records = server_records.ServerRecords(cast("Any", None), several=False)
    statement = "ALTER TABLE d.t UPDATE name = 'delete' WHERE 1", "d"
    monkeypatch.setattr(records, "ask", lambda *_, **__: [statement] * number)
    assert bool(records._statements({"database": "d", "name": "t"}, 0, "_block")) == removed


@pytest.mark.usefixtures("without_statements")
def test_a_migration_that_finds_its_column_there_takes_no_row(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """A4: a deployment kills the loader, and runs its statements once more.

    Red before: the block was parked for a deletion that never was.
    """
    table = create(client, f"{database}.migrated", ", _block String", more=window(0))
    (block,) = journal.seal(table, batch(0, 100))
    killed(journal, [block], "after_prepare")
    client.command(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS _block String")
    others_insert(client, table)
    (done,) = worker.load([block])
    assert done.outcome == "loaded", done.reason
    assert copies(client, table) == (100, 100)


@pytest.mark.parametrize("said", ["", "26.1.2.1"])
@pytest.mark.usefixtures("without_logs")
def test_tokens_of_another_version_are_not_trusted(
    journal: Journal, worker: Worker, client: Client, database: str, said: str
) -> None:
    """A claim that names one that keeps other hashes, or none, as an older loader's does."""
    table = create(client, f"{database}.upgraded", more=window(100))
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    client.command(
        f"ALTER TABLE {worker._ledger.name} UPDATE version = '{said}' WHERE 1 "
        "SETTINGS mutations_sync = 2"
    )
    assert until_settled(worker, blocks) == ["parked"]
    assert number(client, table) == 100


@pytest.mark.usefixtures("without_logs")
def test_a_repeat_asks_which_version_runs_it(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server may be upgraded between the look at the table and the statement."""
    table = create(client, f"{database}.upgraded", more=window(100))
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    real = insert_groups.insert

    def upgraded(*arguments: Any, **named: Any) -> plan.Answer:
        *others, target = arguments
        return real(*others, dataclasses.replace(target, version="26.1.2.1"), **named)

    with monkeypatch.context() as patch:
        patch.setattr(insert_groups, "insert", upgraded)
        (done,) = worker.load(blocks)
    assert done.outcome == "retry"
    assert "not the version of ClickHouse" in done.reason
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, table) == 100


@pytest.mark.parametrize("since", [False, True])
@pytest.mark.usefixtures("without_logs")
def test_rows_that_a_delete_masks(
    journal: Journal, worker: Worker, client: Client, database: str, *, since: bool
) -> None:
    """A2: one since the claim may have taken the block's rows, one of before it has taken none.

    Red before: as long as nothing merged the masked rows away, each such block was parked.
    """
    table = create(client, f"{database}.masked", ", _block String", more=window(0))
    client.command(f"INSERT INTO {table} (id) SETTINGS async_insert = 0 VALUES (-1), (-2)")
    if not since:
        client.command(f"DELETE FROM {table} WHERE id = -1")
        clock_passes(client, 3)  # a claim of the next second would not be told from it
    blocks = journal.seal(table, batch(0, 100), batch(100, 100))
    killed(journal, blocks, "after_prepare")
    if since:
        client.command(f"DELETE FROM {table} WHERE id = -1")
    others_insert(client, table)
    done = worker.load(blocks)
    assert outcomes(done) == ["parked" if since else "loaded"] * 2
    assert not since or "rows were deleted since then" in done[0].reason
    assert copies(client, table) == ((0, 0) if since else (200, 200))


@pytest.mark.usefixtures("without_logs")
def test_rows_that_a_delete_has_masked_before_it_was_killed_stay_deleted(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """The server shows no such mutation any more; the rows are there, and masked."""
    table = create(client, f"{database}.masked", ", _block String", more=window(0))
    client.command(f"INSERT INTO {table} (id) SETTINGS async_insert = 0 VALUES (-1)")
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, "after_insert")
    asynchronous = {"lightweight_deletes_sync": 0}
    client.command(f"DELETE FROM {table} WHERE NOT throwIf(id = -1)", settings=asynchronous)
    wait_until(lambda: copies(client, table) == (0, 0), "that the block's rows are masked")
    name, plain = database, table.partition(".")[2]
    client.command(f"KILL MUTATION WHERE database = '{name}' AND table = '{plain}'")
    assert until_settled(worker, blocks) == ["parked"]
    assert copies(client, table) == (0, 0)


@pytest.mark.parametrize(
    ("drop", "partitioned", "logs"),
    [
        ("PARTITION 7", True, "logs"),
        ("PARTITION 7", True, "no logs"),
        ("PART", True, "logs"),
        ("PART", True, "no logs"),
        # Without a log nothing tells of single parts that were dropped (document `evidence`).
        ("PART", False, "logs"),
    ],
    indirect=["logs"],
)
def test_a_counter_that_went_back_makes_no_token_young(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    drop: str,
    *,
    partitioned: bool,
    logs: bool,
) -> None:
    """A5: ten parts of others, dropped again: the token is forgotten, though nothing shows it."""
    by = "PARTITION BY intDiv(id, -100) " if partitioned else ""
    name = f"{database}.counted"
    client.command(
        f"CREATE TABLE {name} (id Int64, name String) ENGINE = MergeTree {by}ORDER BY tuple() "
        f"{window(4)}, old_parts_lifetime = 0"
    )
    client.command(f"SYSTEM STOP MERGES {name}")
    (block,) = journal.seal(name, batch(0, 50))
    killed(journal, [block], "after_insert")
    for at in range(10):
        client.command(f"INSERT INTO {name} (id) SETTINGS async_insert = 0 VALUES ({-700 - at})")
    if drop == "PART":
        database_, plain = name.split(".")
        asked = "SELECT name FROM system.parts WHERE active AND database = {d:String} AND "
        asked += "table = {t:String} AND min_block_number > 1"
        found = client.query(asked, parameters={"d": database_, "t": plain}).result_rows
        for (part,) in found:
            client.command(f"ALTER TABLE {name} DROP PART '{part}'")
    else:
        client.command(f"ALTER TABLE {name} DROP {drop}")
    (outcome,) = until_settled(worker, [block])
    assert number(client, f"{name} WHERE id >= 0") == 50
    # Of one partition that lost parts, the log does not say whether they were the block's.
    assert outcome == ("loaded" if logs and (partitioned or drop != "PART") else "parked")


def test_a_false_condition_is_no_success(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """A6: the server that answers does not see the claim, and writes nothing."""
    table = create(client, f"{database}.lagging", ", _block String", more=window(0))
    blocks = journal.seal(table, batch(0, 100))
    holds = worker._ledger.holds
    worker._ledger.holds = "0"
    (done,) = worker.load(blocks)
    assert (done.outcome, number(client, table)) == ("retry", 0)
    assert "wrote nothing" in done.reason
    worker._ledger.holds = holds
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, table) == 100


@pytest.mark.parametrize(
    ("engine", "always"),
    [
        ("ReplacingMergeTree", False),
        ("ReplacingMergeTree(ver)", True),
        ("SummingMergeTree", False),
        ("CollapsingMergeTree(sign)", False),
        ("AggregatingMergeTree", False),
        ("VersionedCollapsingMergeTree(sign, ver)", False),
    ],
)
@pytest.mark.parametrize(
    "point", [pytest.param("after_prepare", marks=pytest.mark.long), "after_insert"]
)
def test_merging_engines_outside_the_window(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    engine: str,
    point: str,
    *,
    always: bool,
    logs: bool,
) -> None:
    """A8: by the server's record; a version column makes a repeat harmless; else parked."""
    columns = ", sign Int8 DEFAULT 1, ver UInt8 DEFAULT 1"
    table = create(client, f"{database}.merging", columns, engine, window(0))
    client.command(f"SYSTEM STOP MERGES {table}")  # which could hide rows that came twice
    blocks = journal.seal(table, batch(0, 100))
    killed(journal, blocks, point)
    others_insert(client, table)
    there = number(client, f"{table} WHERE id >= 0")
    found = until_settled(worker, blocks)
    if logs or always:
        assert found == ["loaded"]
        # A repeat of rows that have a version changes nothing but what merges have to do.
        assert number(client, f"{table} {'FINAL ' * always}WHERE id >= 0") == 100
    else:
        assert found == ["parked"]
        assert number(client, f"{table} WHERE id >= 0") == there


@pytest.mark.parametrize(
    ("columns", "name", "blocks"),
    [(1000, 20, 1), (2000, 250, 1), (1000, 20, 3)],
    ids=["many", "long names", "together"],
)
def test_a_thousand_columns_fit(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    columns: int,
    name: int,
    blocks: int,
) -> None:
    """B6: the statement is in the body, whose length nobody bounds."""
    import pyarrow as pa  # noqa: PLC0415

    wide = [f"{'n' * name}_{i}" for i in range(columns)]
    ((limit,),) = client.query(
        "SELECT value FROM system.settings WHERE name = 'http_max_uri_size'"
    ).result_rows
    # Each name is in the statement three times: to fill, to select, and what comes.
    assert name < 250 or 3 * sum(map(len, wide)) > int(limit)
    table = f"{database}.wide"
    definitions = ", ".join(f"{one} Int64" for one in wide)
    client.command(
        f"CREATE TABLE {table} (id Int64, {definitions}, _block String) "
        f"ENGINE = MergeTree ORDER BY id {window(9)}",
        settings={"max_query_size": 10_000_000},
    )
    kind = {b"clickhouse": b"Int64"}
    fields = [pa.field(one, pa.int64(), metadata=kind) for one in ("id", *wide)]
    sealed = journal.seal(
        table,
        *(
            pa.RecordBatch.from_arrays(
                [pa.array(range(10 * n, 10 * n + 10), pa.int64()) for _ in fields],
                schema=pa.schema(fields),
            )
            for n in range(blocks)
        ),
        chunk_bytes=900_000,
    )
    done = worker.load(sealed)
    assert outcomes(done) == ["loaded"] * blocks, {one.reason[:300] for one in done}
    assert number(client, table) == 10 * blocks


def test_a_statement_of_more_elements_than_a_server_takes(
    worker: Worker, client: Client, database: str
) -> None:
    """A column that was altered since is cast, in a dozen elements; 50 000 are taken by default."""
    client.command(f"CREATE TABLE {database}.t (id Int64) ENGINE = MergeTree ORDER BY id")
    cast = " OR ".join(f"(id IN (1, 2, 3) OR id > {n})" for n in range(6000))
    sql = (
        f"INSERT INTO {database}.t (id) SELECT id FROM input('id Int64') WHERE {cast} "
        "FORMAT Arrow\n"
    )
    send(worker._client, sql, batch(0, 10).select(["id"]), {})
    assert number(client, f"{database}.t") == 9


def test_a_block_over_many_partitions_goes_in(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """B2: more partitions than max_partitions_per_insert_block lets in by default."""
    name = f"{database}.by_day"
    client.command(
        f"CREATE TABLE {name} (id Int64, name String) ENGINE = MergeTree PARTITION BY id "
        f"ORDER BY id {window(9)}"
    )
    assert outcomes(worker.load(journal.seal(name, batch(0, 150)))) == ["loaded"]
    assert number(client, name) == 150


@pytest.fixture
def mute(clickhouse: ClickHouse) -> Iterator[str]:
    """A proxy before the server that takes away the header X-ClickHouse-Summary."""
    host, port = clickhouse.url.removeprefix("http://").split(":")
    listening = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, into: socket.socket, *, change: bool) -> None:
        while data := source.recv(1 << 16):
            into.sendall(
                re.sub(rb"X-ClickHouse-Summary", b"X-Nothing-Of-Summary", data) if change else data
            )
        into.shutdown(socket.SHUT_WR)

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return  # closed: the test is over
            server = socket.create_connection((host, int(port)))
            for one, other, change in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=pump, args=(one, other), kwargs={"change": change}, daemon=True
                ).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.close()


def test_a_success_without_the_number_of_rows_is_no_proof(
    journal: Journal, ledger: Ledger, client: Client, database: str, mute: str
) -> None:
    """A6: what the answer lacks is found in the server's record."""
    assert ledger.counts() == []
    table = create(client, f"{database}.mute", more=window(0))
    blocks = journal.seal(table, batch(0, 100))
    settings = journal.settings()
    reached = elsewhere(settings.clickhouse, mute)
    worker = Worker(settings.model_copy(update={"clickhouse": reached}))
    try:
        (first,) = worker.load(blocks)
        assert (first.outcome, "X-ClickHouse-Summary" in first.reason) == ("retry", True)
        assert until_settled(worker, blocks) == ["loaded"]
    finally:
        worker.close()
    assert number(client, table) == 100


def zero_is_success(patch: pytest.MonkeyPatch) -> None:
    """0 written rows are taken for the block's."""
    patch.setattr(plan, "_wrote", lambda run, _: plan._on(run, plan.Settle(run.attempt)))


def loss_is_not_known(patch: pytest.MonkeyPatch) -> None:
    """That rows may be gone is not known."""
    patch.setattr(tables, "why_fewer", lambda *_: "")


def test_without_a_look_at_what_was_written_rows_are_lost(
    journal: Journal, worker: Worker, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of A6."""
    zero_is_success(monkeypatch)
    with pytest.raises(AssertionError, match="loaded"):
        test_a_false_condition_is_no_success(journal, worker, client, database)


@pytest.mark.usefixtures("without_logs")
def test_without_knowing_why_rows_are_fewer_they_come_back(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control of A1 and A4: 0 rows are taken for proof that none was inserted."""
    loss_is_not_known(monkeypatch)
    table = create(client, f"{database}.edited", ", _block String", more=window(0))
    blocks = journal.seal(table, batch(0, 100), batch(100, 100))
    killed(journal, blocks, "after_insert")
    removed(client, table, "delete")
    assert until_settled(worker, blocks) == ["loaded"] * 2
    assert number(client, table) == 200, "deleted rows came back"
