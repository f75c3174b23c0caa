"""What a worker remembers of tables, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loader.blocks.worker import Worker
from loader.clickhouse.table_cache import LOOK_SECONDS, TableCache
from loader.clickhouse.tables import Target
from loader.core.table_rules import Nature, Window
from relay.records_pb2 import Block
from tests.loader.blocks import batch
from tests.loader.test_work import copies, make, outcomes

if TYPE_CHECKING:
    from collections.abc import Collection

    from clickhouse_connect.driver.client import Client

    from tests.loader.blocks import Journal

MERGE_TREE = Nature(Window(0, None, "parts"))
STAMPED = {"id": "Int64", "_block": "String"}


class Asked:
    """In the place of Tables: what there is, and which were asked for."""

    def __init__(self, **there: Target) -> None:
        self.there = there
        self.tables: list[set[str]] = []

    def look(self, tables: Collection[str]) -> dict[str, Target]:
        self.tables.append(set(tables))
        return {table: self.there[table] for table in tables if table in self.there}


def looks(asked: Any, times: list[float]) -> TableCache:
    return TableCache(asked, "_block", lambda: times[0])


def blocks(*tables: str) -> list[Block]:
    return [Block(id=f"of {table}", table=table) for table in tables]


NEW = {"of a", "of b"}


def test_a_look_lasts_for_new_blocks() -> None:
    """Until it is too old, or a block was attempted before."""
    table, times = Target(STAMPED, 1, MERGE_TREE, 0), [100.0]
    asked = Asked(a=table, b=table)
    of = looks(asked, times)
    assert of.look(blocks("a"), NEW) == {"a": table}
    times[0] += LOOK_SECONDS - 1
    assert of.look(blocks("a", "b"), NEW) == {"a": table, "b": table}
    assert asked.tables == [{"a"}, {"b"}]
    assert of.look(blocks("a", "b"), {"of b"}) == {"a": table, "b": table}
    assert asked.tables[2:] == [{"a", "b"}]
    times[0] += LOOK_SECONDS
    assert of.look(blocks("a"), NEW) == {"a": table}
    assert asked.tables[3:] == [{"a"}]


@pytest.mark.parametrize(
    ("columns", "nature"),
    [
        ({"id": "Int64"}, MERGE_TREE),
        (STAMPED, Nature(Window(100, None, "log"))),
        (STAMPED, Nature(Window(100, None, "parts"), vanish="rows expire")),
        (None, MERGE_TREE),
    ],
)
def test_what_a_window_or_a_counter_decides_is_asked_for_each_time(
    columns: dict[str, str] | None, nature: Nature
) -> None:
    """So is a table that is not there."""
    asked = Asked() if columns is None else Asked(a=Target(columns, 1, nature, 0))
    of = looks(asked, [0.0])
    assert of.look(blocks("a"), NEW) == of.look(blocks("a"), NEW) == asked.there
    assert len(asked.tables) == 2


@pytest.mark.parametrize("change", ["DROP COLUMN name", "ADD COLUMN more Int8", "made anew"])
def test_a_table_altered_since_the_look_is_looked_at_again(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """An INSERT on an old look inserts nothing, and the next attempt everything; where another
    table of the same columns has taken its place, its rows are there once."""
    monkeypatch.setattr("loader.clickhouse.table_cache.LOOK_SECONDS", 3_600.0)
    table = make(client, f"{database}.stamped", stamped=True)
    sealed = journal.seal(table, *(batch(at * 10, 10) for at in range(4)))
    new = {block.id for block in sealed}
    assert outcomes(worker.load(sealed[:2], new)) == ["loaded"] * 2
    left = sealed[2:]
    if change == "made anew":
        client.command(f"DROP TABLE {table} SYNC")
        make(client, table, stamped=True)
    else:
        client.command(f"ALTER TABLE {table} {change}")
    first = worker.load(left, new)
    if change != "made anew":
        assert outcomes(first) == ["retry"] * 2
        assert "altered meanwhile" in first[0].reason
    again = [block for block, one in zip(left, first, strict=True) if one.outcome == "retry"]
    assert not again or outcomes(worker.load(again)) == ["loaded"] * len(again)
    rows = 20 if change == "made anew" else 40
    assert copies(client, table) == (rows, rows)
