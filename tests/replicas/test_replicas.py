"""Loaders over three real replicas: partitions under a quorum, and one URL that is all of them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from loader.blocks.worker import Worker
from loader.journal.startup import ledger_of
from relay.errors import Refused
from tests.loader.blocks import DEADLINE, batch
from tests.replicas.front import HOST, Front
from tests.replicas.journal import STAMPED, Replicated, spread
from tests.replicas.rig import Rig

BLOCKS, ROWS = 135, 200

pytestmark = pytest.mark.long  # three servers and their coordinator, a minute or more


def copies(rig: Rig, table: str) -> list[tuple[int, int]]:
    """(rows, different rows) of each replica, when it has all."""
    found = []
    for one in rig.replicas:
        one.command(f"SYSTEM SYNC REPLICA {table}")
        found.append(tuple(one.rows(f"SELECT count(), uniqExact(id) FROM {table}")[0]))
    return found


@contextlib.contextmanager
def unnoticed(really: bool) -> Iterator[None]:
    """The loader takes one URL for one server, as it did before it looked."""
    if not really:
        yield
        return
    with mock.patch("loader.blocks.worker.several", return_value=False):
        yield


def states(journal: Replicated) -> dict[str, int]:
    """How many blocks are in which state."""
    ledger = ledger_of(journal.settings())
    found: dict[str, int] = {}
    for _, state, blocks, _ in ledger.counts():
        found[state] = found.get(state, 0) + blocks
    return found


def loaded(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What `loader run --once` said."""
    return subprocess.run(
        [sys.executable, "-m", "loader.cli", "run", str(config), "--once", *options],
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize("stamped", [True, False])
def test_three_partitions_and_a_quorum_park_nothing(
    rig: Rig, journal: Replicated, app: str, *, stamped: bool
) -> None:
    """B3: healthy replicas, four tasks side by side; 286 in the middle of an INSERT parked some.

    Each partition of an INSERT is a quorum write of its own, and another task's may come between.
    """
    columns = STAMPED if stamped else STAMPED.rpartition(", ")[0]
    table = f"d{app}.t"
    rig.make(table, columns, "PARTITION BY name ORDER BY id")
    journal.seal(table, *(spread(i * ROWS, ROWS) for i in range(BLOCKS)))
    done = loaded(journal.configuration())
    assert done.returncode == 0, done.stderr[-2000:]
    assert "parked" not in done.stderr.replace(" 0 parked", "")
    assert states(journal) == {"loaded": BLOCKS}
    assert copies(rig, table) == [(BLOCKS * ROWS,) * 2] * 3


def test_one_url_that_is_several_servers_is_refused_without_a_quorum(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """A6: a ledger that lags says yes to an INSERT that another replica's has seen already."""
    assert rig.balancer is not None
    journal.seal(table, batch(0, 100))
    journal.url, journal.quorum = rig.balancer.url, None
    done = loaded(journal.configuration())
    assert done.returncode == Refused.exit_code
    assert "several servers answer at clickhouse.url: r1 on " in done.stderr
    assert 'clickhouse.insert_quorum = "auto"' in done.stderr
    assert copies(rig, table) == [(0, 0)] * 3


def test_one_replica_alone_is_right_without_a_quorum(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """Its own address, and no other server answers there."""
    journal.url, journal.quorum = rig.replicas[1].front.url, None
    worker = Worker(journal.settings())
    try:
        done = worker.load(journal.seal(table, *(batch(i * 10, 10) for i in range(20))))
    finally:
        worker.close()
    assert [one.outcome for one in done] == ["loaded"] * 20
    assert copies(rig, table) == [(200, 200)] * 3


def test_another_server_in_its_place_is_noticed(rig: Rig, journal: Replicated, table: str) -> None:
    """A balancer that keeps to one server and moves to the next when it is lost: at start it looks
    like one. The answer of another is an error, and not what the ledger says."""
    first, second, _ = rig.replicas
    with Front([(HOST, first.settings.http)]) as moving:
        journal.url, journal.quorum = moving.url, None
        blocks = journal.seal(table, batch(0, 10), batch(10, 10))
        worker = Worker(journal.settings())
        try:
            assert [one.outcome for one in worker.load(blocks[:1])] == ["loaded"]
            second.command("SYSTEM STOP FETCHES")
            moving.move((HOST, second.settings.http))
            done = worker.load(blocks)
        finally:
            worker.close()
    assert {one.outcome for one in done} == {"retry"}
    assert "several servers answer at clickhouse.url: r1 until now, now r2" in done[0].reason
    second.command("SYSTEM START FETCHES")
    assert copies(rig, table) == [(10, 10)] * 3


@pytest.mark.parametrize("quorum", ["auto", None])
def test_a_replica_behind_a_balancer_that_lags(
    rig: Rig, journal: Replicated, table: str, quorum: str | None
) -> None:
    """A6: 10 463 of 12 000 rows were there, and the ledger called all loaded.

    Negative control: without the quorum and its check the same is wrong.
    """
    addresses = [(HOST, one.settings.http) for one in rig.replicas]
    balancer = Front(addresses, each_request=True)
    blocks = journal.seal(table, *(batch(i * 400, 400) for i in range(30)))
    journal.url, journal.quorum = balancer.url, quorum
    rig.replicas[2].command("SYSTEM STOP FETCHES")
    rig.replicas[2].command("SYSTEM STOP REPLICATION QUEUES")
    with unnoticed(quorum is None):
        worker = Worker(journal.settings())
        try:
            open_ = list(blocks)
            for number in range(60):
                if number == 20:
                    rig.everywhere("SYSTEM START FETCHES")
                    rig.everywhere("SYSTEM START REPLICATION QUEUES")
                outcomes = {one.block: one.outcome for one in worker.load(open_[:8])}
                open_ = [b for b in open_ if outcomes.get(b.id, "retry") == "retry"]
        finally:
            worker.close()
            balancer.close()
    rows = copies(rig, table)
    if quorum is None:
        assert rows != [(12_000, 12_000)] * 3
    else:
        assert not open_
        assert states(journal) == {"loaded": len(blocks)}
        assert rows == [(12_000, 12_000)] * 3
