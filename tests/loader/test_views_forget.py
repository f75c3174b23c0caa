"""A table remembers a token, and the table that its view fills has forgotten it.

A loader is killed behind its INSERT, others insert, and another loader has to decide. Nothing here
believes what the loader counts: rows are counted in the tables by the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loader.clickhouse import tables
from tests.loader.blocks import await_next_second, batch
from tests.loader.test_evidence import create, logs, number, until_settled, window
from tests.loader.test_forgotten_tokens import decided
from tests.loader.test_work import killed, outcomes

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from tests.loader.blocks import Journal

__all__ = ["decided", "logs"]
ROWS = 48


def fills(client: Client, source: str, target: str, nth: int = 0) -> None:
    view = f"{target}_{nth}_mv"
    client.command(f"CREATE MATERIALIZED VIEW {view} TO {target} AS SELECT id FROM {source}")


def others(client: Client, table: str, times: int) -> None:
    """Each over 24 partitions of `id % 24`, and under a token of its own, as no SELECT is."""
    for n in range(times):
        values = ", ".join(f"({-24 * n - 24 + at}, 'x')" for at in range(24))
        client.command(f"INSERT INTO {table} (id, name) SETTINGS async_insert = 0 VALUES {values}")


def sums(client: Client, name: str, more: str) -> str:
    client.command(f"CREATE TABLE {name} (id Int64) ENGINE = MergeTree {more}")
    return name


def filled(client: Client, table: str, more: str) -> str:
    """A table that a view fills from this one, and its name."""
    made = sums(client, f"{table}_rows", more)
    fills(client, table, made)
    return made


def partitioned(client: Client, table: str) -> str:
    """Its view's table gets 24 parts of each INSERT."""
    return filled(client, table, f"PARTITION BY id % 24 ORDER BY id {window(100)}")


def shared(client: Client, table: str) -> str:
    """Another table fills its view's table, too."""
    made = filled(client, table, f"ORDER BY id {window(10)}")
    fills(client, create(client, f"{table}_other"), made, 1)
    return made


def smaller(client: Client, table: str) -> str:
    """Its view's table remembers less."""
    return filled(client, table, f"ORDER BY id {window(4)}")


def none(client: Client, table: str) -> str:
    return filled(client, table, f"ORDER BY id {window(0)}")


def behind_another(client: Client, table: str) -> str:
    """The view's table keeps nothing, and has a view of its own."""
    passing = f"{table}_passing"
    client.command(f"CREATE TABLE {passing} (id Int64, name String) ENGINE = Null")
    client.command(f"CREATE MATERIALIZED VIEW {passing}_mv TO {passing} AS SELECT * FROM {table}")
    return smaller(client, passing)


def unlogged(client: Client, table: str) -> str:
    """Its view's table has no tokens."""
    made = f"{table}_rows"
    client.command(f"CREATE TABLE {made} (id Int64) ENGINE = Log")
    fills(client, table, made)
    return made


@pytest.mark.parametrize(
    "build", [partitioned, shared, smaller, none, unlogged, behind_another, "altered"]
)
def test_a_view_whose_table_has_forgotten_gets_no_row_twice(
    journal: Journal, worker: Worker, client: Client, database: str, build: object, *, logs: bool
) -> None:
    """The server's record tells; else a person."""
    table = f"{database}.t"
    client.command(
        f"CREATE TABLE {table} (id Int64, name String) ENGINE = MergeTree ORDER BY id {window(100)}"
    )
    behind = smaller(client, table) if build == "altered" else build(client, table)  # type: ignore[operator]
    (block,) = journal.seal(table, batch(0, ROWS))
    killed(journal, [block], "after_insert")
    others(client, f"{table}_other" if build is shared else table, 12 if build is shared else 6)
    if build == "altered":
        await_next_second(client)
        setting = "non_replicated_deduplication_window = 100"
        client.command(f"ALTER TABLE {behind} MODIFY SETTING {setting}")
    assert until_settled(worker, [block]) == ["loaded" if logs else "parked"]
    assert number(client, f"{table} WHERE id >= 0") == ROWS
    assert number(client, f"{behind} WHERE id >= 0") == ROWS


def alter(client: Client, view: str, how: str = "query") -> None:
    """A person corrects it: its rows have another token than before."""
    ((made, select),) = client.query(
        "SELECT create_table_query, as_select FROM system.tables "
        "WHERE database || '.' || name = {view:String}",
        {"view": view},
    ).result_rows
    if how == "query":
        client.command(f"ALTER TABLE {view} MODIFY QUERY {select} WHERE 1")
    else:
        client.command(f"DROP TABLE {view}")
        client.command(made.replace(view, f"{view}_new", 1))


@pytest.mark.parametrize("how", ["query", "name"])
def test_a_view_that_was_altered_gives_no_row_twice(
    journal: Journal, worker: Worker, client: Client, database: str, how: str, decided: str
) -> None:
    """A repeat of the block would come into its table under a token that this does not know."""
    table = create(client, f"{database}.t", more=window(100))
    behind = filled(client, table, f"ORDER BY id {window(100)}")
    (block,) = journal.seal(table, batch(0, ROWS))
    killed(journal, [block], "after_insert")
    alter(client, f"{behind}_0_mv", how)
    others(client, table, 1)
    (outcome,) = until_settled(worker, [block])
    assert number(client, f"{table} WHERE id >= 0") == ROWS
    assert number(client, f"{behind} WHERE id >= 0") == ROWS
    assert outcome == decided


@pytest.mark.parametrize("both", [True, False])
def test_one_of_two_views_that_was_altered(
    journal: Journal, worker: Worker, client: Client, database: str, *, both: bool
) -> None:
    """A table behind it that has no row of the block gets all; one that has them, none."""
    table = create(client, f"{database}.t", more=window(100))
    first = filled(client, table, f"ORDER BY id {window(100)}")
    second = sums(client, f"{database}.second", f"ORDER BY id {window(100)}")
    client.command(f"ALTER TABLE {second} ADD CONSTRAINT small CHECK id < 10")
    fills(client, first, second)
    await_next_second(client)
    (block,) = journal.seal(table, batch(0, ROWS))
    assert until_settled(worker, [block]) == ["parked"]
    assert [number(client, one) for one in (table, first, second)] == [ROWS, ROWS, 0]
    client.command(f"ALTER TABLE {second} DROP CONSTRAINT small")
    if both:
        alter(client, f"{first}_0_mv")
    alter(client, f"{second}_0_mv")
    (outcome,) = outcomes(worker.load([block], human="retry"))
    came = 0 if both else ROWS
    assert [number(client, one) for one in (table, first, second)] == [ROWS, ROWS, came]
    assert outcome == ("parked" if both else "loaded")


@pytest.mark.usefixtures("without_logs")
def test_what_a_view_surely_remembers_is_repeated(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """Negative control: its table gets one part at most of each that the first one gets."""
    table = f"{database}.t"
    client.command(
        f"CREATE TABLE {table} (id Int64, name String) ENGINE = MergeTree ORDER BY id {window(100)}"
    )
    behind = filled(client, table, f"ORDER BY id {window(20)}")
    (block,) = journal.seal(table, batch(0, ROWS))
    killed(journal, [block], "after_insert")
    others(client, table, 6)
    assert until_settled(worker, [block]) == ["loaded"]
    assert number(client, f"{behind} WHERE id >= 0") == ROWS


@pytest.mark.usefixtures("without_logs")
def test_without_a_look_behind_the_table_rows_double(
    journal: Journal, worker: Worker, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    monkeypatch.setattr(tables, "room_behind", lambda *_: 1 << 62)
    with pytest.raises(AssertionError, match="parked"):
        test_a_view_whose_table_has_forgotten_gets_no_row_twice(
            journal, worker, client, database, partitioned, logs=False
        )
    assert number(client, f"{database}.t_rows WHERE id >= 0") == 2 * ROWS


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize("left", [True, False])
def test_an_insert_that_ended_before_the_table_had_its_part(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    *,
    left: bool,
    size: int,
) -> None:
    """It may have left a part in a partition of a view's table, that does not wait for the end."""
    table = create(client, f"{database}.t", more=window(size))
    behind = filled(client, table, f"PARTITION BY id % 2 ORDER BY id {window(0)}")
    (block,) = journal.seal(table, batch(0, ROWS))
    killed(journal, [block], "after_prepare")
    half = ROWS // 2
    if left:
        select = f"SELECT number * 2 FROM numbers({half}) SETTINGS async_insert = 0"
        client.command(f"INSERT INTO {behind} {select}")
    (outcome,) = until_settled(worker, [block])
    came = (0, half) if left else (ROWS, ROWS)
    assert (number(client, table), number(client, behind)) == came
    assert outcome == ("parked" if left else "loaded")
