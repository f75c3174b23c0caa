"""Loaders over three real replicas: partitions under a quorum, and one URL that is all of them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from loader.blocks import insert_groups
from loader.blocks.worker import Worker
from loader.clickhouse import servers
from loader.clickhouse.ledger import NewEntry
from loader.clickhouse.running_statements import Running, Still
from loader.clickhouse.server_records import ServerRecords
from loader.core import plan
from loader.core.plan import PARKED, Entry, ServerRecord
from loader.journal.startup import ledger_of
from loader.operate.resolve import resolve
from relay.errors import Refused
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.blocks import DEADLINE, batch
from tests.loader.test_changed_meanwhile import answer_lost
from tests.loader.test_evidence import CLEANS_SOON, zero_is_success
from tests.loader.test_work import outcomes
from tests.replicas.front import Front
from tests.replicas.journal import STAMPED, Replicated, spread
from tests.replicas.listener import HOST
from tests.replicas.rig import Replica, Rig

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
    """The loader takes one URL for one server, and an INSERT of no row for a success, as it did."""
    if not really:
        yield
        return
    with (
        mock.patch("loader.blocks.worker.several", return_value=False),
        pytest.MonkeyPatch.context() as patch,
    ):
        zero_is_success(patch)
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


def tried_until_settled(worker: Worker, block: Block) -> None:
    """As a loader tries it again and again."""
    wait_until(lambda: outcomes(worker.load([block])) != ["retry"], "its outcome")


def all_there(rig: Rig, journal: Replicated, table: str) -> None:
    """The one block is loaded, and its rows are on each replica once."""
    assert states(journal) == {"loaded": 1}
    assert copies(rig, table) == [(ROWS, ROWS)] * 3


@pytest.mark.parametrize("human", [False, True])
@pytest.mark.parametrize("stamped", [True, False])
def test_a_quorum_lost_in_the_middle_of_an_insert(
    rig: Rig, journal: Replicated, app: str, *, stamped: bool, human: bool
) -> None:
    """B3: the first of three partitions waits for replicas that do not fetch; the rest came later.

    `human`: a loader of before parked that, and a person says `--retry`.
    """
    table = f"d{app}.t"
    columns = STAMPED if stamped else STAMPED.rpartition(", ")[0]
    rig.make(table, columns, "PARTITION BY name ORDER BY id")
    (block,) = journal.seal(table, spread(0, ROWS))
    settings = journal.settings(insert_timeout_seconds=2)
    for one in rig.replicas[1:]:
        one.command(f"SYSTEM STOP FETCHES {table}")
    with contextlib.closing(Worker(settings)) as worker:
        (first,) = worker.load([block])
        left = sum(one.rows(f"SELECT count() FROM {table}")[0][0] for one in rig.replicas)
        assert (first.outcome, 0 < left < ROWS) == ("retry", True), (first.reason, left)
        rig.everywhere(f"SYSTEM START FETCHES {table}")
        if human:
            ledger = ledger_of(journal.settings())
            ledger.write([NewEntry(block, Entry(PARKED, 9, "x", reason="some of its rows"))])
            ((_, state, reason),) = resolve(journal.settings(), ledger, [block.id], "retry")
            assert state == "loaded", reason
        else:
            tried_until_settled(worker, block)
    all_there(rig, journal, table)


def test_a_replica_killed_in_the_middle_of_an_insert(
    rig: Rig, journal: Replicated, app: str
) -> None:
    """B3: a block of 60 partitions; others go on with what it left, and it comes back."""
    table = f"d{app}.t"
    rig.make(table, STAMPED, "PARTITION BY id % 60 ORDER BY id")
    first = rig.replicas[0]
    (block,) = journal.seal(table, spread(0, ROWS))
    with (
        contextlib.closing(Worker(journal.settings())) as worker,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        attempt = pool.submit(worker.load, [block])
        wait_until(lambda: first.rows(f"SELECT count() FROM {table}")[0][0], "its first rows")
        first.kill()
        attempt.result()
        left = rig.replicas[1].rows(f"SELECT count() FROM {table}")[0][0]
        assert left < ROWS
        first.start()
        rig.await_active()
        tried_until_settled(worker, block)
    all_there(rig, journal, table)


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
    real = insert_groups.insert

    def at_the_one_that_lags(*given: Any, **named: Any) -> plan.Answer:
        balancer.move(addresses[2])
        try:
            return real(*given, **named)
        finally:
            balancer.move(*addresses[:2])

    with unnoticed(quorum is None), pytest.MonkeyPatch.context() as patch:
        if quorum is None:  # by chance, no INSERT would go there in one run of three
            balancer.move(*addresses[:2])
            patch.setattr(insert_groups, "insert", at_the_one_that_lags)
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
        journal.url = rig.urls()
        assert states(journal) == {"loaded": len(blocks)}
        assert rows == [(12_000, 12_000)] * 3


def forgets(replica: Replica, table: str) -> bool:
    """Insert a row under one token again; return whether it came, because that was forgotten."""
    replica.command(
        f"INSERT INTO {table} SETTINGS insert_deduplication_token = 'probe' VALUES (-1, 'probe')"
    )
    return int(replica.rows(f"SELECT count() FROM {table} WHERE id = -1")[0][0]) > 1


@contextlib.contextmanager
def configured(replica: Replica, merge_tree: str) -> Iterator[None]:
    """The replica, started anew with these defaults of its tables, until the end."""
    before = replica.settings
    replica.restart(dataclasses.replace(before, merge_tree=merge_tree))
    try:
        yield
    finally:
        replica.restart(before)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("where", ["table", "server"])
def test_a_window_that_is_smaller_on_another_replica(
    rig: Rig,
    journal: Replicated,
    app: str,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    *,
    known: bool,
) -> None:
    """ALTER TABLE ... MODIFY SETTING is not replicated, nor is a server's configuration, and who
    has the smallest window forgets tokens for all: a repeat under the block's token doubled its
    rows.

    Negative control: a loader that knows the window of its own replica alone.
    """
    table, columns = f"d{app}.t", STAMPED.rpartition(", ")[0]
    window = "replicated_deduplication_window"
    other = rig.replicas[1]
    if not known:
        monkeypatch.setattr(Running, "of", lambda *_: Still(running=False))
    with contextlib.ExitStack() as ends:
        if where == "server":
            ends.enter_context(configured(other, f"<{window}>1</{window}>"))
            rig.make(table, columns, f"ORDER BY id SETTINGS {CLEANS_SOON}")
        else:
            rig.make(table, columns, f"ORDER BY id SETTINGS {window} = 100, {CLEANS_SOON}")
            other.command(f"ALTER TABLE {table} MODIFY SETTING {window} = 1")
            clock = "SELECT toUnixTimestamp(now())"
            altered = other.rows(clock)[0][0]
            wait_until(lambda: rig.replicas[0].rows(clock)[0][0] > altered, "the next second")
        found = tried_when_forgotten(rig, journal, table, monkeypatch)
    assert found == (("parked", ROWS) if known else ("loaded", 2 * ROWS))


def tried_when_forgotten(
    rig: Rig, journal: Replicated, table: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, int]:
    """How a block ends whose INSERT had no answer and whose token is forgotten, and its rows."""
    monkeypatch.setattr(ServerRecords, "record", lambda *_: ServerRecord("unclear"))
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        answer_lost(worker, [block])
        forgets(rig.replicas[0], table)
        for i in range(5):
            rig.replicas[0].command(f"INSERT INTO {table} VALUES ({-i - 2}, 'other')")
        wait_until(lambda: forgets(rig.replicas[0], table), "forgotten tokens", 60)
        (outcome,) = worker.load([block])
    rows = rig.replicas[0].rows(f"SELECT count() FROM {table} WHERE id >= 0")[0][0]
    return outcome.outcome, rows


@pytest.mark.parametrize("where", [0, 1], ids=["here", "on another replica"])
def test_one_entry_of_the_replication_log_brings_many_parts(
    rig: Rig, journal: Replicated, app: str, monkeypatch: pytest.MonkeyPatch, where: int
) -> None:
    """ATTACH PARTITION FROM: by the log alone one part had come, and the block was repeated.

    Each part has a token, which up to 26.6 pushes those of INSERTs out: there the block doubled.
    """
    table, columns = f"d{app}.t", STAMPED.rpartition(", ")[0]
    window = "replicated_deduplication_window = 100"
    rig.make(table, columns, f"ORDER BY id SETTINGS {window}, {CLEANS_SOON}")
    rig.everywhere(f"SYSTEM STOP MERGES {table}")
    attaching, source = rig.replicas[where], f"{table}_source"
    attaching.command(f"CREATE TABLE {source} ({columns}) ENGINE = MergeTree ORDER BY id")
    attaching.command(f"SYSTEM STOP MERGES {source}")
    attaching.command(
        f"INSERT INTO {source} SELECT -number - 1, 'old' FROM numbers(150)",
        max_block_size=1,
        min_insert_block_size_rows=1,
        min_insert_block_size_bytes=1,
    )
    monkeypatch.setattr(ServerRecords, "record", lambda *_: ServerRecord("unclear"))
    (block,) = journal.seal(table, batch(0, ROWS))
    entries = f"SELECT log_max_index FROM system.replicas WHERE zookeeper_path = '/{table}'"
    tokens = f"SELECT count() FROM system.zookeeper WHERE path = '/{table}/blocks'"
    with contextlib.closing(Worker(journal.settings())) as worker:
        answer_lost(worker, [block])
        ((before,),) = attaching.rows(entries)
        attaching.command(f"ALTER TABLE {table} ATTACH PARTITION tuple() FROM {source}")
        assert attaching.rows(entries) == [(before + 1,)]
        assert attaching.rows(tokens)[0][0] >= 100
        rig.replicas[0].command(f"SYSTEM SYNC REPLICA {table}")
        (outcome,) = worker.load([block])
    assert outcome.outcome == "parked"
    count = f"SELECT countIf(id < 0), countIf(id >= 0) FROM {table}"
    assert rig.replicas[0].rows(count) == [(150, ROWS)]


@pytest.mark.parametrize("known", [True, False])
def test_the_record_of_another_replica_is_no_proof(
    rig: Rig, journal: Replicated, app: str, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """clickhouse.url named r1, whose INSERT got no answer; then r2, whose log has none of it.

    Negative control: a loader that takes r2's log for that of all.
    """
    if not known:
        monkeypatch.setattr(ServerRecords, "elsewhere", lambda *_: False)
    table, columns = f"d{app}.t", STAMPED.rpartition(", ")[0]
    window = "replicated_deduplication_window = 1"
    rig.make(table, columns, f"ORDER BY id SETTINGS {window}, {CLEANS_SOON}")
    first, second, _ = rig.replicas
    journal.quorum = None
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings(url=first.front.url))) as worker:
        answer_lost(worker, [block])
    for one in (table, f"{journal.settings().loader.database}.ledger"):
        second.command(f"SYSTEM SYNC REPLICA {one}")
    forgets(second, table)
    for i in range(5):
        second.command(f"INSERT INTO {table} VALUES ({-i - 2}, 'other')")
    wait_until(lambda: forgets(second, table), "forgotten tokens", 60)
    with contextlib.closing(Worker(journal.settings(url=second.front.url))) as worker:
        (outcome,) = worker.load([block])
    rows = second.rows(f"SELECT count() FROM {table} WHERE id >= 0")[0][0]
    found = ("parked", ROWS) if known else ("loaded", 2 * ROWS)
    assert (outcome.outcome, rows) == found, outcome.reason
    assert ("another replica" in outcome.reason) == known


def test_one_address_that_always_leads_to_the_same_replica(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """A block without an answer waits for the others, who are never asked: the start says so, and
    the reason what to do. Nothing is said where all are met, or asked by their own addresses."""
    assert rig.balancer is not None
    journal.seal(table, batch(ROWS, ROWS))
    journal.url = rig.replicas[0].front.url
    done = loaded(journal.configuration())
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"3 active replicas, but every connection to {journal.url} reached r1" in done.stderr
    assert "reached replica r2, r3" in done.stderr  # a first start asks, too
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        answer_lost(worker, [block])
        (outcome,) = worker.load([block])
    assert outcome.outcome == "retry"
    assert "reached replica r2, r3" in outcome.reason
    assert "name each replica in clickhouse.url" in outcome.reason
    journal.url = rig.urls()
    ledger = ledger_of(journal.settings())
    for url in (journal.url, rig.balancer.url):
        assert servers.unmet(journal.reached(url), ledger) == ""
    with contextlib.closing(Worker(journal.settings())) as worker:
        tried_until_settled(worker, block)
    for one in rig.replicas:
        one.command(f"SYSTEM SYNC REPLICA {table}")
        assert one.rows(f"SELECT count() FROM {table} WHERE id < {ROWS}") == [(ROWS,)]
