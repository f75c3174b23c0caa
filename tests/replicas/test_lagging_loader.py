"""Loaders that meet a replica which has not made the ALTER that a block was sealed behind."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from loader.blocks.worker import Worker
from loader.core.retry_cause import RetryCause
from relay.clickhouse.replica_log import SEES_LOGS
from tests.broker.pipeline import wait_until
from tests.loader.blocks import batch
from tests.loader.test_work import outcomes
from tests.replicas.server import SEEING, UNSEEING

if TYPE_CHECKING:
    from relay.records_pb2 import Block
    from tests.replicas.journal import Replicated
    from tests.replicas.rig import Replica, Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, a minute or more

ROWS = 300


def waits_for(lags: Replica, goes_on: str, worker: Worker, block: Block) -> None:
    """The block stands aside until this statement has the replica make the ALTER."""
    for _ in range(2):
        (found,) = worker.load([block])
        assert (found.outcome, found.cause) == ("retry", RetryCause.REPLICA_BEHIND)
    lags.command(goes_on)
    wait_until(lambda: outcomes(worker.load([block])) == ["loaded"], "its rows")
    values = f"SELECT uniqExact(id), countIf(name LIKE 'name %') FROM {block.table}"
    assert lags.rows(values) == [(ROWS, ROWS)]


@pytest.mark.parametrize(
    ("before", "alter"),
    [
        ("id Int64", "ADD COLUMN name LowCardinality(String)"),
        ("id UInt8, name LowCardinality(String)", "MODIFY COLUMN id Int64"),
        ("id Int64, nick LowCardinality(String)", "RENAME COLUMN nick TO name"),
    ],
)
def test_no_value_is_lost_on_a_replica_that_lags(
    rig: Rig, journal: Replicated, app: str, before: str, alter: str
) -> None:
    """Its columns are older than the block's: the block waits, and is not refused either."""
    table = f"d{app}.lags"
    rig.make(table, f"{before}, _block String", "ORDER BY tuple()")
    first, second, _ = rig.replicas
    second.command(f"SYSTEM STOP REPLICATION QUEUES {table}")
    first.command(f"ALTER TABLE {table} {alter} SETTINGS alter_sync = 1")
    (block,) = journal.seal(table, batch(0, ROWS), each=1)
    journal.quorum = None
    settings = journal.settings(url=second.url, rejected="dead")
    with contextlib.closing(Worker(settings, isolates=True)) as worker:
        waits_for(second, f"SYSTEM START REPLICATION QUEUES {table}", worker, block)


@pytest.mark.parametrize("user", [SEEING, UNSEEING])
def test_no_value_is_lost_where_an_alter_is_the_first_entry(
    rig: Rig, journal: Replicated, app: str, user: str
) -> None:
    """A replica that has not read it shows the numbers of an empty log."""
    table = f"d{app}.first"
    rig.make(table, "id Int64, _block String", "ORDER BY tuple()")
    first, second, _ = rig.replicas
    second.command(f"SYSTEM STOP PULLING REPLICATION LOG {table}")
    first.command(
        f"ALTER TABLE {table} ADD COLUMN name LowCardinality(String) SETTINGS alter_sync = 1"
    )
    (block,) = journal.seal(table, batch(0, ROWS), each=1)
    journal.quorum, journal.user = None, user
    settings = journal.settings(url=second.url)
    with contextlib.closing(Worker(settings)) as worker:
        waits_for(second, f"SYSTEM START PULLING REPLICATION LOG {table}", worker, block)


@pytest.mark.parametrize("user", [SEEING, UNSEEING])
def test_a_table_made_anew_with_fewer_columns(
    rig: Rig, journal: Replicated, app: str, user: str
) -> None:
    """Its log is empty: who may ask knows at once that no ALTER is missing; who may not waits,
    with the right that is missing, until another block, which fits, has made an entry."""
    table = f"d{app}.anew"
    rig.make(table, "id Int64, _block String", "ORDER BY tuple()")
    old, fits = journal.seal(table, batch(0, ROWS), batch(ROWS, ROWS).select(["id"]), each=1)
    journal.quorum, journal.user = None, user
    settings = journal.settings(url=rig.replicas[1].url)
    with contextlib.closing(Worker(settings)) as worker:
        (found,) = worker.load([old])
        if user == UNSEEING:
            assert (found.outcome, found.cause) == ("retry", RetryCause.REPLICA_BEHIND)
            assert f"GRANT {SEES_LOGS} ON system.zookeeper" in found.reason
            assert outcomes(worker.load([fits])) == ["loaded"]
            wait_until(lambda: outcomes(worker.load([old])) == ["loaded"], "its rows")
        else:
            assert found.outcome == "loaded"
            assert outcomes(worker.load([fits])) == ["loaded"]
    assert rig.replicas[1].rows(f"SELECT uniqExact(id) FROM {table}") == [(2 * ROWS,)]
