"""A table that is dropped under a relay is a warning, one that is changed is not."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from tests.broker.pipeline import Pipeline, wait_until

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


def test_a_dropped_table_is_a_warning(pipeline: Pipeline, client: Client) -> None:
    process = pipeline.start("a", pipeline.config(schema_refresh_seconds=0.5))
    pipeline.send([1, 2])
    pipeline.exactly_once()
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN more Int64")
    wait_until(lambda: "the row messages of tables changed" in pipeline.log(process), "the change")
    client.command(f"DROP TABLE {pipeline.table} SYNC")
    wait_until(lambda: "tables were dropped" in pipeline.log(process), "the drop")
    told = [line for line in pipeline.log(process).splitlines() if "tables were dropped" in line]
    assert len(told) == 1
    assert "WARNING" in told[0]
    assert re.search(rf"tables={re.escape(pipeline.table)}\b", told[0])
    assert "dead letters" in told[0]
    changed = [
        line for line in pipeline.log(process).splitlines() if "messages of tables changed" in line
    ]
    assert all("INFO" in line for line in changed)
    assert len(changed) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
