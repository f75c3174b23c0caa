"""`spark.read.format("relay")` over real Kafka and real Spark; one start for all of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relay import names
from tests.loader.blocks import DEADLINE, SCHEMA, Journal, batch
from tests.loader.test_work import ROOT

pytestmark = pytest.mark.timeout(2 * DEADLINE)
TABLE = "shop.items"
ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={b"clickhouse": b"Int64"}),
        pa.field("customer", pa.string(), metadata={b"clickhouse": b"String"}),
        pa.field("price", pa.decimal128(9, 2), metadata={b"clickhouse": b"Decimal(9, 2)"}),
    ]
)
"""Of shop.orders, which the document's example reads."""


def read(directory: Path, *options: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """What a program of its own finds: the document's example, and for each set of options."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.loader.frame", directory, *map(json.dumps, options)],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return "\n".join(line for line in lines if not line.startswith("{")), found


def test_a_tables_blocks_are_a_dataframe(journal: Journal) -> None:
    """Committed ones alone, with the newest columns, by table, block and group."""
    first, second = journal.seal(TABLE, batch(0, 3), batch(10, 2))
    prices = [Decimal("9.50"), Decimal("2.25"), Decimal("0.99")]
    bought = [
        pa.array([0, 1, 2]),
        pa.array(["Ada", "Ada", "Grace"]),
        pa.array(prices, ORDERS[2].type),
    ]
    journal.seal("shop.orders", pa.RecordBatch.from_arrays(bought, schema=ORDERS))
    wider = pa.schema([*SCHEMA, pa.field("n", pa.uint64(), metadata={b"clickhouse": b"UInt64"})])
    columns = [*batch(20, 1).columns, pa.array([2**64 - 1], pa.uint64())]
    (third,) = journal.seal(TABLE, pa.RecordBatch.from_arrays(columns, schema=wider))
    # The table's column was altered between its blocks.
    times = [journal.seal("shop.times", time_of(scale))[0] for scale in (3, 6)]
    journal.producer.begin_transaction()  # and left open
    journal.producer.produce(names.blocks_topic(journal.app, TABLE), b"not committed")
    journal.producer.flush()

    connected = {
        "app": journal.app,
        "bootstrap": journal.settings().kafka.bootstrap,
        "table": TABLE,
    }
    journal.configured()
    of_times = connected | {"table": "shop.times"}
    example, (whole, one, newer, mixed) = read(
        journal.directory,
        connected | {"partition_bytes": "1", "metadata": "true"},
        connected | {"block": second.id},
        of_times | {"block": times[1].id},
        of_times,
    )
    assert (
        whole["columns"]
        == "struct<id:bigint,name:string,n:decimal(20,0),_block:string,_partition:int>"
    )
    ids = [row[0] for row in whole["rows"]]
    assert ids == [0, 1, 2, 10, 11, 20]
    assert [row[3] for row in whole["rows"]] == [first.id] * 3 + [second.id] * 2 + [third.id]
    assert whole["rows"][0][1:3] == ["name 0", None]
    assert whole["rows"][-1][2] == str(2**64 - 1)
    assert one["columns"] == "struct<id:bigint,name:string>"
    assert re.search(r"\|\s*Ada\s*\|\s*11\.75\s*\|", example), example
    assert re.search(r"\|\s*Grace\s*\|\s*0\.99\s*\|", example), example
    assert one["rows"] == [[10, "name 0"], [11, "name 1"]]
    assert newer.get("rows") == [[3_600 + 6]], newer
    was = f"block {times[0].id}: column t was Time64(3) when it was sealed"
    assert f"{was}, and cannot be read as Time64(6)" in mixed["error"]


def time_of(scale: int) -> pa.RecordBatch:
    """One row, of a Time64 of so many digits; its number makes the block's id."""
    field = pa.field("t", pa.int64(), metadata={b"clickhouse": b"Time64(%d)" % scale})
    return pa.RecordBatch.from_arrays([pa.array([3_600 + scale])], schema=pa.schema([field]))
