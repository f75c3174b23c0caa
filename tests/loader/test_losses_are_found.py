"""Negative controls of `relay verify --deep`: a loader without one guard, and what is found then.

The loader is the real one, on the real server; only the guard is taken out. Beside each stands the
loader as it is, after the same fault: nothing is found. A journal whose beginning was deleted (C2)
is in tests/verify/test_beginning.py, with a relay's journal.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from loader.blocks import insert_groups
from loader.blocks.worker import Worker
from loader.clickhouse import tables
from loader.clickhouse.server_records import ServerRecords
from loader.clickhouse.tables import Tables
from loader.core import plan
from loader.core.positions import Unsure
from loader.journal import begin_plan
from loader.spark.known_blocks import KnownBlocks
from relay import names
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.server_records import SKEW_MS
from relay.operate.verify.landing import Landing
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.blocks import Journal, await_next_second, batch
from tests.loader.restored import Backup
from tests.loader.test_evidence import (
    OLD,
    create,
    number,
    removed,
    summed,
    until_settled,
    window,
    zero_is_success,
)
from tests.loader.test_set_back import ledger_of
from tests.loader.test_work import killed
from tests.loader.unsparked import Unsparked

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.clickhouse.ledger import Ledger

Patch = pytest.MonkeyPatch
LOGS = ("query_log", "part_log")


@pytest.fixture(autouse=True)
def old_logs(client: Client) -> None:
    """Logs prove a loss only of blocks that were sealed well after they began."""
    young = " OR ".join(
        f"(SELECT now64(3) - min(event_time_microseconds) FROM system.{log}) < {2 + SKEW_MS / 1e3}"
        for log in LOGS
    )
    wait_until(lambda: client.query(f"SELECT {young}").result_rows == [(0,)], "old logs")


@pytest.fixture(params=["as it is", "without"])
def guarded(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the loader has its guard."""
    return request.param == "as it is"  # type: ignore[no-any-return]


def found(journal: Journal, client: Client, *blocks: Block) -> set[AnomalyKind]:
    """Kinds of the anomalies that `verify --deep` finds of these blocks in ClickHouse."""
    client.command("SYSTEM FLUSH LOGS")
    client.command("SELECT 1 SETTINGS log_comment = 'later'")  # younger than what is judged
    client.command("SYSTEM FLUSH LOGS")
    landing = Landing(journal.settings(), {})
    anomalies = list(landing.judge(blocks))
    print(*anomalies, *landing.not_judged, sep="\n")
    return {one.kind for one in anomalies}


def sealed(
    journal: Journal, client: Client, database: str, more: str = "", columns: str = ""
) -> tuple[str, list[Block]]:
    """A table with the block-id column, and a block of 100 rows; without a window by default."""
    columns = f", _block String{columns}"
    table = create(client, f"{database}.t", columns, more=more or window(0))
    return table, journal.seal(table, batch(0, 100))


def loaded(journal: Journal, client: Client, database: str) -> tuple[Unsparked, str, list[Block]]:
    """A loader, and what it has loaded."""
    table, blocks = sealed(journal, client, database)
    loader = Unsparked(journal)
    loader.run()
    return loader, table, blocks


def without_views(patch: Patch) -> None:
    """That views stand behind the table is not known."""
    facts = Tables.facts
    patch.setattr(Tables, "facts", lambda *given: dataclasses.replace(facts(*given), views=()))


def without_record(patch: Patch) -> None:
    """What the server recorded is not asked, nor why rows may be gone: a count is believed."""
    patch.setattr(ServerRecords, "record", lambda *_: plan.ServerRecord("unclear"))
    patch.setattr(tables, "why_fewer", lambda *_: "")


def counted_instead(patch: Patch, client: Client, table: str) -> None:
    """Rows are counted after each INSERT, and the count is believed, not the server's answer."""
    real = insert_groups.insert

    def overruled(*given: Any, **named: Any) -> plan.Answer:
        answer = real(*given, **named)
        client.command(f"OPTIMIZE TABLE {table} FINAL")  # as merges do it, some time later
        return answer if number(client, table) else plan.NoAnswer("none of its rows is there")

    patch.setattr(insert_groups, "insert", overruled)


def test_a1_rows_that_expire_at_once(
    journal: Journal, worker: Worker, client: Client, database: str, *, guarded: bool
) -> None:
    """Guard: the server's answer is proof, whatever is counted. No fault at all is needed."""
    day, ttl = f", day Date DEFAULT {OLD}", "TTL day + INTERVAL 30 DAY "
    table, blocks = sealed(journal, client, database, ttl + window(0), day)
    view = summed(client, table, tokens=0)
    with Patch.context() as patch:
        if not guarded:
            without_views(patch)
            without_record(patch)
            counted_instead(patch, client, table)
        assert until_settled(worker, blocks, rounds=3) == ["loaded" if guarded else "retry"]
    assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, view) == (100 if guarded else 300)
    assert found(journal, client, *blocks) == (set() if guarded else {AnomalyKind.OVERLAP})


def test_a3_a_view_without_its_rows(
    journal: Journal, worker: Worker, client: Client, database: str, *, guarded: bool
) -> None:
    """Guard: a count says nothing of the views behind a table."""
    table = create(client, f"{database}.t", ", _block String", more=window(100))
    view = summed(client, table, check=", CONSTRAINT small CHECK id < 50")
    await_next_second(client)
    blocks = journal.seal(table, batch(0, 300))
    real = insert_groups.insert

    def killed_then(*given: Any, **named: Any) -> plan.Answer:
        real(*given, **named)
        return plan.NoAnswer("the loader was killed")

    with Patch.context() as patch:
        patch.setattr(insert_groups, "insert", killed_then)
        worker.load(blocks)
    assert (number(client, table), number(client, view)) == (300, 0)
    with Patch.context() as patch:
        if guarded:
            client.command(f"ALTER TABLE {view} DROP CONSTRAINT small")
        else:
            without_views(patch)
        (done,) = worker.load(blocks)
    assert done.outcome == "loaded"
    assert number(client, view) == (300 if guarded else 0)
    assert found(journal, client, *blocks) == (set() if guarded else {AnomalyKind.GAP})


def test_a4_deleted_rows_come_back(
    journal: Journal, worker: Worker, client: Client, database: str, *, guarded: bool
) -> None:
    """Guard: why none of the rows is there is asked."""
    table, blocks = sealed(journal, client, database)
    killed(journal, blocks, "after_insert")
    removed(client, table, "delete")
    with Patch.context() as patch:
        if not guarded:
            without_record(patch)
        assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, table) == (0 if guarded else 100)
    assert found(journal, client, *blocks) == (set() if guarded else {AnomalyKind.OVERLAP})


def test_a5_a_token_that_looks_young(
    journal: Journal, worker: Worker, client: Client, database: str, *, guarded: bool
) -> None:
    """Guards: a counter that may have gone back bounds nothing; and the record is asked first."""
    table = f"{database}.t"
    client.command(
        f"CREATE TABLE {table} (id Int64, name String) ENGINE = MergeTree "
        f"PARTITION BY intDiv(id, -100) ORDER BY tuple() {window(4)}, old_parts_lifetime = 0"
    )
    client.command(f"SYSTEM STOP MERGES {table}")
    blocks = journal.seal(table, batch(0, 50))
    killed(journal, blocks, "after_insert")
    for at in range(10):
        client.command(f"INSERT INTO {table} (id) SETTINGS async_insert = 0 VALUES ({-700 - at})")
    client.command(f"ALTER TABLE {table} DROP PARTITION 7")
    with Patch.context() as patch:
        if not guarded:
            without_record(patch)
            patch.setattr(tables, "inserted_since", lambda *_: 1)
        assert until_settled(worker, blocks) == ["loaded"]
    assert number(client, f"{table} WHERE id >= 0") == (50 if guarded else 100)
    assert found(journal, client, *blocks) == (set() if guarded else {AnomalyKind.OVERLAP})


def test_a6_an_insert_that_wrote_nothing(
    journal: Journal, worker: Worker, client: Client, database: str, *, guarded: bool
) -> None:
    """Guard: 0 written rows are no success."""
    table, blocks = sealed(journal, client, database)
    holds = worker._ledger.holds
    worker._ledger.holds = "0"
    with Patch.context() as patch:
        if not guarded:
            zero_is_success(patch)
        worker.load(blocks)
    worker._ledger.holds = holds
    worker.load(blocks)
    assert number(client, table) == (100 if guarded else 0)
    assert found(journal, client, *blocks) == (set() if guarded else {AnomalyKind.GAP})


def later(blocks: list[Block]) -> list[Block]:
    """As the same blocks are judged an hour later."""
    old = [Block.FromString(block.SerializeToString()) for block in blocks]
    for block in old:
        block.sealed_at_ms -= 3_600_000
    return old


def from_the_checkpoint(patch: Patch) -> None:
    """A loader begins where Spark's checkpoint stands, and compares nothing."""
    decide = begin_plan.decide

    def believing(facts: begin_plan.StartFacts) -> begin_plan.StartPlan:
        begun = decide(facts)
        assert facts.checkpoint is not None
        return dataclasses.replace(begun, positions=facts.checkpoint.offsets, aside=False, ends={})

    patch.setattr(begin_plan, "decide", believing)
    patch.setattr(KnownBlocks, "check", lambda _: None)


def test_c3_blocks_that_a_restored_clickhouse_lacks(
    journal: Journal, ledger: Ledger, client: Client, database: str, *, guarded: bool
) -> None:
    """Guard: the ledger's position counts, and not the checkpoint's."""
    loader, table, blocks = loaded(journal, client, database)
    backup = Backup(client, table, ledger_of(journal))
    blocks += journal.seal(table, batch(100, 100))
    loader.run()
    backup.restore()
    with Patch.context() as patch:
        if not guarded:
            from_the_checkpoint(patch)
        loader.run()
    assert number(client, table) == (200 if guarded else 100)
    assert found(journal, client, *later(blocks)) == (set() if guarded else {AnomalyKind.LATE})
    assert ledger.app == journal.app


def made_anew(journal: Journal, bootstrap: str) -> None:
    """All topics of the app are deleted, and begin again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [one for one in admin.list_topics(timeout=30).topics if one.startswith(journal.app)]
    for future in admin.delete_topics(topics).values():
        future.result(30)
    wait_until(lambda: not set(topics) & set(admin.list_topics(timeout=30).topics), "topics to go")
    for topic in topics:
        journal.forget(topic)
        journal.topic(topic)


def test_c4_a_ledger_of_topics_that_are_gone(
    journal: Journal,
    ledger: Ledger,
    client: Client,
    database: str,
    bootstrap: str,
) -> None:
    """Guard: a journal that was made anew stops the loader, and its blocks have other ids."""
    loader, table, _ = loaded(journal, client, database)
    made_anew(journal, bootstrap)
    shutil.rmtree(journal.directory / "checkpoint")
    client.command(f"TRUNCATE TABLE {table}")
    wait_until(lambda: not number(client, table), "an empty table")
    blocks = journal.seal(table, batch(0, 100))  # the relay would give them another epoch
    blocks[0].sealed_at_ms += 2 * SKEW_MS
    with Patch.context() as patch:
        patch.setattr(begin_plan, "check_journal", lambda *_: None)
        loader.run()
    assert number(client, table) == 0
    assert AnomalyKind.FOREIGN in found(journal, client, *blocks)
    assert ledger.app == journal.app == names.BlockId.parse(blocks[0].id).app


def test_c5_an_emptied_ledger(
    journal: Journal, ledger: Ledger, client: Client, database: str, *, guarded: bool
) -> None:
    """Guard: of what the ledger may have lost the tables are asked."""
    loader, table, blocks = loaded(journal, client, database)
    client.command(f"TRUNCATE TABLE {ledger_of(journal)}")
    shutil.rmtree(journal.directory / "checkpoint")
    with Patch.context() as patch:
        if not guarded:
            patch.setattr(Unsure, "asks", lambda *_: False)
        loader.run()
    assert number(client, table) == (100 if guarded else 200)
    assert found(journal, client, *blocks) == (set() if guarded else {AnomalyKind.OVERLAP})
    assert ledger.app == journal.app
