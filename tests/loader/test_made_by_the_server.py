"""Key and version columns that a message left out: a repeat's rows have others than the first's.

A ReplacingMergeTree takes the same rows again without a change; these are not the same. Nothing
here believes what the loader counts: rows are read from the tables by the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.loader.blocks import batch, clock_passes
from tests.loader.test_changed_meanwhile import answer_lost
from tests.loader.test_evidence import number, until_settled, window
from tests.loader.test_work import others_insert, outcomes

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from tests.loader.blocks import Journal

pytestmark = pytest.mark.usefixtures("without_logs")

VERSION = "ver UInt8 DEFAULT 1"
INSERTED = f"{VERSION}, at DateTime64(6) DEFAULT now64(6)"


def replacing(client: Client, name: str, columns: str, more: str = "ORDER BY id") -> str:
    """A table of the columns that `batch` has, and more, of which a merge keeps the last `ver`."""
    client.command(
        f"CREATE TABLE {name} (id Int64, name LowCardinality(String), {columns}) "
        f"ENGINE = ReplacingMergeTree(ver) {more} {window(0)}"
    )
    return name


@pytest.mark.parametrize(
    ("columns", "more", "ends"),
    [
        (INSERTED, "ORDER BY (id, at)", "parked"),
        (f"{VERSION}, key UUID MATERIALIZED generateUUIDv4()", "ORDER BY (id, key)", "parked"),
        (
            f"{INSERTED}, k Int64 DEFAULT toUnixTimestamp64Micro(at)",
            "ORDER BY (id, k)",
            "parked",
        ),
        (
            INSERTED,
            "PARTITION BY toUnixTimestamp64Micro(at) ORDER BY id",
            "parked",
        ),
        (INSERTED, "ORDER BY id", "loaded"),
        (
            f"{VERSION}, day Date DEFAULT toDate('2020-01-01'), k String MATERIALIZED lower(name)",
            "PARTITION BY toYYYYMM(day) ORDER BY (id, k, cityHash64(name))",
            "loaded",
        ),
    ],
    ids=["now", "random", "of another", "partition", "not in the key", "fixed"],
)
def test_a_repeat_has_the_same_keys_or_is_left_to_a_person(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    columns: str,
    more: str,
    ends: str,
) -> None:
    table = replacing(client, f"{database}.t", columns, more)
    blocks = journal.seal(table, batch(0, 100))
    answer_lost(worker, blocks)
    others_insert(client, table)
    found = until_settled(worker, blocks)
    assert number(client, f"{table} FINAL WHERE id >= 0") == 100
    assert found == [ends]


def test_an_older_row_gets_no_later_version(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """Its version is when it was inserted: a repeat would win over what came in between."""
    table = replacing(client, f"{database}.t", "ver DateTime DEFAULT now()")
    later, names = batch(1, 99), pa.array(["new"] * 99, pa.string())
    later = later.set_column(1, later.schema.field(1), names)
    first, second = journal.seal(table, batch(0, 100), later)
    answer_lost(worker, [first])
    clock_passes(client, 1)
    assert outcomes(worker.load([second])) == ["loaded"]
    clock_passes(client, 1)
    found = until_settled(worker, [first])
    assert number(client, f"{table} FINAL WHERE name = 'new'") == 99
    assert found == ["parked"]
