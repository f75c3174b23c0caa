"""What people change in a table between an INSERT whose answer was lost, and the next attempt.

Nothing here believes what the loader counts: rows are counted in the tables by the test. Where the
server keeps no logs, only the table itself tells.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from loader.blocks import attempt, insert_groups, insert_statement
from loader.clickhouse.tables import Tables
from loader.core import plan
from tests.loader.blocks import await_next_second, batch, clock_passes
from tests.loader.test_evidence import create, number, until_settled, window
from tests.loader.test_work import others_insert, outcomes

if TYPE_CHECKING:
    from collections.abc import Collection

    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from loader.clickhouse.tables import Target
    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal

STAMP = ", _block String"
OLD = ", day Date DEFAULT '2020-01-01'"
SYNC = "SETTINGS mutations_sync = 2"
PATCHES = ", enable_block_number_column = 1, enable_block_offset_column = 1"


def answer_lost(worker: Worker, blocks: list[Block], *, sent: bool = True) -> None:
    """An attempt whose INSERT is done, or not even sent, and whose loader dies there."""
    real = insert_groups.insert

    def killed(*given: Any, **named: Any) -> plan.Answer:
        assert not sent or isinstance(real(*given, **named), plan.Wrote)
        return plan.NoAnswer("the loader was killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(insert_groups, "insert", killed)
        assert set(outcomes(worker.load(blocks))) == {"retry"}


class Change(NamedTuple):
    """A table, what is done to it, and what has to be there afterwards.

    `rows`: of the block's 100; `unlogged`: how it ends where the server keeps no logs.
    """

    columns: str
    more: str
    statements: tuple[str, ...]
    rows: int = 100
    engine: str = "MergeTree"
    unlogged: str = "parked"


def window_set(parts: int) -> str:
    return f"ALTER TABLE {{t}} MODIFY SETTING non_replicated_deduplication_window = {parts}"


CHANGES = {
    # A5: a token looks younger than it is, as the table has a larger window than it had.
    "a window as doctor advises": Change("", window(0), (window_set(1000),)),
    "a window for a while less": Change("", window(100), (window_set(0), window_set(100))),
    # A1: the id of their block expires, and the rows stay.
    "ids expire": Change(
        OLD + STAMP + " TTL day + INTERVAL 30 DAY", window(0), ("OPTIMIZE TABLE {t} FINAL",)
    ),
    # A2: rows are there and lost their block's id by a person's hand.
    "ids updated": Change(
        STAMP, window(0), (f"ALTER TABLE {{t}} UPDATE _block = '' WHERE 1 {SYNC}",)
    ),
    "ids made anew": Change(
        STAMP,
        window(0),
        ("ALTER TABLE {t} DROP COLUMN _block", "ALTER TABLE {t} ADD COLUMN _block String"),
    ),
    "ids updated in patches": Change(
        STAMP,
        window(0) + PATCHES,
        (
            (
                "UPDATE {t} SET _block = '' WHERE 1 "
                "SETTINGS allow_experimental_lightweight_update = 1"
            ),
        ),
    ),
    # A2: of another type than String they are the same ids.
    "ids of fixed length": Change(", _block FixedString(200)", window(0), (), unlogged="loaded"),
    "ids that are not kept": Change(", _block String EPHEMERAL", window(0), ()),
    # A4: what a person deleted stays deleted.
    "deleted in patches": Change(
        STAMP,
        window(0) + PATCHES,
        (
            "DELETE FROM {t} WHERE 1 SETTINGS lightweight_delete_mode = 'lightweight_update_force'",
            "OPTIMIZE TABLE {t} FINAL",
        ),
        0,
    ),
    # A8: a version column makes a repeat harmless only while nobody removes rows.
    "deleted versions": Change(
        STAMP + ", v UInt8 DEFAULT 1",
        window(0),
        (f"ALTER TABLE {{t}} DELETE WHERE 1 {SYNC}",),
        0,
        "ReplacingMergeTree(v)",
    ),
    "deleted versions without ids": Change(
        ", v UInt8 DEFAULT 1",
        window(0),
        (f"ALTER TABLE {{t}} DELETE WHERE 1 {SYNC}",),
        0,
        "ReplacingMergeTree(v)",
    ),
    "cleaned up versions": Change(
        ", v UInt8 DEFAULT 1, gone UInt8 DEFAULT 0",
        f"{window(0)}, allow_experimental_replacing_merge_with_cleanup = 1",
        (
            "INSERT INTO {t} SELECT id, name, 2, 1 FROM {t} SETTINGS async_insert = 0",
            "OPTIMIZE TABLE {t} FINAL CLEANUP",
        ),
        0,
        "ReplacingMergeTree(v, gone)",
    ),
}


@pytest.mark.parametrize("logs", [True, False], ids=["logs", "no logs"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_rows_are_there_once(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    change: Change,
    request: pytest.FixtureRequest,
    *,
    logs: bool,
) -> None:
    if not logs:
        request.getfixturevalue("without_logs")
    table = create(client, f"{database}.t", change.columns, change.engine, change.more)
    blocks = journal.seal(table, batch(0, 100))
    answer_lost(worker, blocks)
    assert number(client, table) == 100
    for statement in change.statements:
        client.command(statement.format(t=table))
    found = until_settled(worker, blocks)
    assert number(client, table) == change.rows
    assert found == ["loaded" if logs else change.unlogged]


@pytest.mark.usefixtures("without_logs")
def test_without_knowing_of_the_window_rows_are_doubled(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control of A5: the claim does not say that the table had none, nor the table."""
    look = Tables.look

    def unaltered(self: Tables, tables: Collection[str]) -> dict[str, Target]:
        return {t: dataclasses.replace(one, altered=0) for t, one in look(self, tables).items()}

    monkeypatch.setattr(attempt, "_sent", lambda _: plan.ALONE)
    monkeypatch.setattr(Tables, "look", unaltered)
    monkeypatch.setattr(insert_statement, "altered_sql", lambda: "0")
    table = create(client, f"{database}.t", more=window(0))
    blocks = journal.seal(table, batch(0, 100))
    answer_lost(worker, blocks)
    client.command(window_set(1000).format(t=table))
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, table) == 200


@pytest.mark.usefixtures("without_logs")
def test_a_window_that_goes_between_the_look_and_the_repeat(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loader that paused there repeats nothing under a token that the table has forgotten."""
    table = create(client, f"{database}.t", more=window(100))
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 100))
    answer_lost(worker, blocks)
    clock_passes(client, 1)
    real = insert_groups.insert

    def paused(*given: Any, **named: Any) -> plan.Answer:
        assert named["limit"] is not None
        client.command(window_set(0).format(t=table))
        monkeypatch.setattr(insert_groups, "insert", real)
        return real(*given, **named)

    monkeypatch.setattr(insert_groups, "insert", paused)
    assert outcomes(worker.load(blocks)) == ["retry"]
    assert insert_groups.insert is real, "the loader was about to repeat the statement"
    assert until_settled(worker, blocks) == ["parked"]
    assert number(client, table) == 100


@pytest.mark.usefixtures("without_logs")
def test_an_index_of_the_ids_takes_none(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """A block that never came is inserted, though others came and a mutation names the column."""
    table = create(client, f"{database}.t", STAMP, more=window(0))
    blocks = journal.seal(table, batch(0, 100))
    answer_lost(worker, blocks, sent=False)
    others_insert(client, table)
    client.command(f"ALTER TABLE {table} ADD INDEX _block_index _block TYPE bloom_filter")
    client.command(f"ALTER TABLE {table} MATERIALIZE INDEX _block_index {SYNC}")
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, f"{table} WHERE id >= 0") == 100


@pytest.mark.parametrize("engine", ["Null", "Memory", "Log", "Set", "Join(ANY, LEFT, id)"])
def test_engines_without_parts_go_by_the_servers_record(
    journal: Journal, worker: Worker, client: Client, database: str, engine: str
) -> None:
    """What such a table took is counted by a view behind it: once, though an answer was lost."""
    table, view = f"{database}.t", f"{database}.seen"
    client.command(f"CREATE TABLE {table} (id Int64) ENGINE = {engine}")
    client.command(f"CREATE TABLE {view} (id Int64) ENGINE = MergeTree ORDER BY id")
    client.command(f"CREATE MATERIALIZED VIEW {view}_mv TO {view} AS SELECT id FROM {table}")
    first, second = journal.seal(table, batch(0, 100), batch(100, 100))
    assert until_settled(worker, [first]) == ["loaded"]
    answer_lost(worker, [second])
    assert until_settled(worker, [second]) == ["loaded"]
    assert number(client, view) == 200
