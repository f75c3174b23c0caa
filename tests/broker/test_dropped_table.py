"""A table that is dropped under a relay is a warning, one that is changed is not."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.broker.pipeline import Pipeline, row_batch, wait_until

if TYPE_CHECKING:
    import subprocess

    from clickhouse_connect.driver.client import Client


ALSO = {"renamed": "RENAME TABLE {0} TO {0}_before", "detached": "DETACH TABLE {0}"}
"""Other ways in which a table goes, each by the name of a table that goes so."""


def test_a_dropped_table_is_a_warning(pipeline: Pipeline, client: Client) -> None:
    """And one that is renamed, or detached."""
    process = pipeline.start("a", pipeline.config(schema_refresh_seconds=0.5))
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    others = {f"{pipeline.database}.{name}": sql for name, sql in ALSO.items()}
    for table in others:
        client.command(f"CREATE TABLE {table} AS {pipeline.table}")
        pipeline.produce(producer, row_batch([1]), 0, [("table", table.encode())])
    assert producer.flush(30) == 0
    pipeline.send([1, 2])
    pipeline.until(lambda: pipeline.floor(0) == 2 + len(others), "all rows in blocks")
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN more Int64")
    wait_until(lambda: "the row messages of tables changed" in pipeline.log(process), "the change")
    client.command(f"DROP TABLE {pipeline.table} SYNC")
    wait_until(lambda: "tables were dropped" in pipeline.log(process), "the drop")
    told = drops(pipeline, process)
    assert len(told) == 1
    assert "WARNING" in told[0]
    assert re.search(rf"tables={re.escape(pipeline.table)}\b", told[0])
    assert "dead letters" in told[0]
    changed = [
        line for line in pipeline.log(process).splitlines() if "messages of tables changed" in line
    ]
    assert all("INFO" in line for line in changed)
    assert len(changed) == 1
    for number, (table, sql) in enumerate(others.items(), start=2):
        client.command(sql.format(table))
        wait_until(lambda n=number: len(drops(pipeline, process)) == n, sql)
        assert f"tables={table}" in drops(pipeline, process)[-1]
    process.send_signal(signal.SIGTERM)
    assert pipeline.end_of(process) == 0


def drops(pipeline: Pipeline, process: subprocess.Popen[bytes]) -> list[str]:
    """Lines of the log."""
    return [line for line in pipeline.log(process).splitlines() if "tables were dropped" in line]
