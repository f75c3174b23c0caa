"""A column is dropped and added again under a relay that has not looked at ClickHouse since."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from relay.config import settings_file
from relay.produce import RowProducer

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


def test_a_column_that_is_back_has_its_values_at_once(pipeline: Pipeline, client: Client) -> None:
    """A producer that knows of it writes at once, an old one all the time. What the old one sent
    while the column was away is left out; nothing is a dead letter."""
    file = pipeline.config(schema_refresh_seconds=600.0)
    settings = settings_file.load(file)

    def producer() -> RowProducer:
        made = RowProducer.from_settings(settings)
        made.codec(pipeline.table)
        return made

    def written(by: RowProducer, **row: int) -> None:
        by.write(pipeline.table, row)
        by.flush()
        pipeline.until(lambda: row["id"] in found(pipeline), f"row {row['id']}")

    add = f"ALTER TABLE {pipeline.table} ADD COLUMN c UInt64 DEFAULT 99"
    with contextlib.ExitStack() as stack:
        relay = pipeline.start("a", file)
        pipeline.send([0])
        pipeline.until(lambda: 0 in found(pipeline), "the first row")
        client.command(add)
        old = stack.enter_context(contextlib.closing(producer()))
        client.command(f"ALTER TABLE {pipeline.table} DROP COLUMN c")
        stack.enter_context(contextlib.closing(producer()))
        written(old, id=1, c=6)
        assert found(pipeline)[1] == {"id": 1, "v": None}
        client.command(add)
        new = stack.enter_context(contextlib.closing(producer()))
        written(new, id=2, c=7)
        written(old, id=3, c=8)
    assert found(pipeline)[2] == {"id": 2, "v": None, "c": 7}
    assert found(pipeline)[3] == {"id": 3, "v": None, "c": 8}
    assert pipeline.dead() == []
    assert relay.poll() is None


def found(pipeline: Pipeline) -> dict[int, dict[str, Any]]:
    """Rows of all blocks, by id."""
    topics: dict[str, Any] = {}
    blocks = (b for commits in pipeline.journal().values() for c in commits for b in c.blocks)
    rows = (row for block in blocks for row in pipeline.rows_of(block, topics).to_pylist())
    return {row["id"]: row for row in rows}
