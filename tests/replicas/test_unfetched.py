"""A replica that has not fetched the rows of an INSERT into another one: that it shows none of them
proves nothing, as its table has forgotten the block's token."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from loader.blocks.worker import Worker
from loader.clickhouse import unconfirmed_parts
from loader.clickhouse.forgotten_blocks import Forgotten
from loader.clickhouse.tables import Tables
from loader.core.positions import Unsure
from loader.core.retry_cause import RetryCause
from loader.journal.startup import ledger_of
from tests.broker.pipeline import wait_until
from tests.loader.blocks import batch
from tests.loader.test_changed_meanwhile import answer_lost
from tests.loader.test_work import outcomes
from tests.replicas.journal import STAMPED

if TYPE_CHECKING:
    from loader.core.plan import Human
    from relay.records_pb2 import Block
    from tests.replicas.journal import Replicated
    from tests.replicas.rig import Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, half a minute

ROWS = 100
DAYS_MS = 2 * 86_400_000
"""More than by what the dates of a replica's queue may be wrong."""
TO_FETCH = "still to fetch parts"
TRIED = "SELECT count() > 0 FROM system.replication_queue WHERE last_exception != ''"
NO_WINDOW = "SETTINGS replicated_deduplication_window = 0"


@pytest.mark.parametrize("what", ["FETCHES", "PULLING REPLICATION LOG"])
@pytest.mark.parametrize("others", [0, 1])
def test_rows_that_a_replica_has_still_to_fetch_are_waited_for(
    rig: Rig, journal: Replicated, app: str, what: str, others: int
) -> None:
    """The block was inserted once more, and the rows of the first INSERT came beside it.

    `others`: rows of before. Without one the INSERT is the first entry of the table's log.
    """
    table = f"d{app}.t"
    rig.make(table, STAMPED, f"ORDER BY id {NO_WINDOW}")
    first, second, _ = rig.replicas
    if others:
        first.command(f"INSERT INTO {table} VALUES (-1, 'other', '')")
        second.command(f"SYSTEM SYNC REPLICA {table}")
    journal.quorum = None
    (block,) = journal.seal(table, batch(0, ROWS))
    second.command(f"SYSTEM STOP {what} {table}")
    with contextlib.closing(Worker(journal.settings(url=first.url))) as worker:
        answer_lost(worker, [block])
    settings = journal.settings(url=second.url)
    second.command(f"SYSTEM SYNC REPLICA {settings.loader.database}.ledger")
    with contextlib.closing(Worker(settings)) as worker:
        for human in ("nothing", "absent"):
            (found,) = worker.load([block], human=human)
            assert (found.outcome, found.cause) == ("retry", RetryCause.UNCONFIRMED), found
        forgotten = Forgotten(ledger_of(settings), "_block", {0: Unsure(9)})
        assert forgotten.among([(0, 0, block)]) == {block.id}
        second.command(f"SYSTEM START {what} {table}")
        wait_until(lambda: outcomes(worker.load([block])) == ["loaded"], "its rows")
    for one in rig.replicas:
        one.command(f"SYSTEM SYNC REPLICA {table}")
        assert one.rows(f"SELECT count() FROM {table}") == [(ROWS + others,)], one.name


def test_parts_from_before_a_block_was_sealed_are_not_waited_for(
    rig: Rig, journal: Replicated, app: str
) -> None:
    """A replica waited for ever for a part that a dead one has, and each block waited with it."""
    table = f"d{app}.t"
    rig.make(table, STAMPED, f"ORDER BY id {NO_WINDOW}")
    first, second, _ = rig.replicas
    second.command(f"SYSTEM STOP FETCHES {table}")
    first.command(f"INSERT INTO {table} VALUES (-1, 'other', '')")
    journal.quorum = None
    today, later = journal.seal(table, batch(0, ROWS), batch(ROWS, ROWS))
    later.sealed_at_ms += DAYS_MS
    with contextlib.closing(Worker(journal.settings(url=second.url))) as worker:
        answer_lost(worker, [today, later], sent=False)
        second.command(f"INSERT INTO {table} VALUES (-2, 'own', '')")  # the counter tells nothing
        wait_until(lambda: TO_FETCH in worker.load([today])[0].reason, "the log's entry")
        assert outcomes(worker.load([later])) == ["loaded"]
        (found,) = worker.load([today])
    assert (found.outcome, found.cause) == ("retry", RetryCause.UNCONFIRMED), found
    assert re.search(f"{TO_FETCH}, \\S+ since [0-9: -]{{19}} UTC", found.reason), found


def test_a_part_that_cannot_be_fetched_does_not_keep_a_person_from_deciding(
    rig: Rig, journal: Replicated, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No replica that runs has it: the wait for it had no end, whatever a person said."""
    table = f"d{app}.t"
    rig.make(table, STAMPED, f"ORDER BY id {NO_WINDOW}")
    first, second, third = rig.replicas
    for one in (second, third):
        one.command(f"SYSTEM STOP FETCHES {table}")
    first.command(f"INSERT INTO {table} VALUES (-1, 'other', '')")
    journal.quorum = None
    given_up, inserted = journal.seal(table, batch(0, ROWS), batch(ROWS, ROWS))
    with contextlib.closing(Worker(journal.settings(url=second.url))) as worker:
        answer_lost(worker, [given_up, inserted], sent=False)
        second.command(f"INSERT INTO {table} VALUES (-2, 'own', '')")  # the counter tells nothing
        first.kill()
        for one in (second, third):
            one.command(f"SYSTEM START FETCHES {table}")
        failed = f"{TRIED} AND table = 't' AND database = 'd{app}'"
        wait_until(lambda: second.rows(failed) == [(1,)], "a fetch that fails")
        said: dict[Human, Block] = {"discard": given_up, "absent": inserted}
        for human, block in said.items():  # it may pass by itself yet
            (found,) = worker.load([block], human=human)
            assert (found.outcome, found.cause) == ("retry", RetryCause.UNCONFIRMED), found
        monkeypatch.setattr(unconfirmed_parts, "FRUITLESS_SECONDS", 0)
        assert outcomes(worker.load([inserted], human="retry")) == ["retry"]
        ends = [outcomes(worker.load([block], human=h)) for h, block in said.items()]
    assert ends == [["discarded"], ["loaded"]]
    first.start()
    rig.await_active()
    for one in rig.replicas:
        one.command(f"SYSTEM SYNC REPLICA {table}")
        assert one.rows(f"SELECT count() FROM {table}") == [(ROWS + 2,)], one.name


def test_a_replica_that_has_fetched_all_is_believed(
    rig: Rig, journal: Replicated, app: str
) -> None:
    """The INSERT was never sent, into a table that has never had a row: no other one decides."""
    table = f"d{app}.t"
    rig.make(table, STAMPED, f"ORDER BY id {NO_WINDOW}")
    journal.quorum = None
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings(url=rig.replicas[0].url))) as worker:
        answer_lost(worker, [block], sent=False)
        assert outcomes(worker.load([block])) == ["loaded"]


def test_rows_that_come_while_they_are_counted(
    rig: Rig, journal: Replicated, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second count had them: they were taken for masked ones, and the block was parked."""
    table = f"d{app}.t"
    rig.make(table, STAMPED, f"ORDER BY id {NO_WINDOW}")
    first, second, _ = rig.replicas
    journal.quorum = None
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings(url=first.url))) as worker:
        answer_lost(worker, [block])
    settings = journal.settings(url=second.url)
    for one in (table, f"{settings.loader.database}.ledger"):
        second.command(f"SYSTEM SYNC REPLICA {one}")
    count, early = Tables.counted, iter([dict[str, int]()])

    def counted(tables: Tables, *asked: Any) -> dict[str, int]:
        shown = next(early, None)  # before they came
        return count(tables, *asked) if shown is None else shown

    monkeypatch.setattr(Tables, "counted", counted)
    with contextlib.closing(Worker(settings)) as worker:
        (found,) = worker.load([block])
        assert (found.outcome, found.cause) == ("retry", RetryCause.UNCONFIRMED), found
        assert outcomes(worker.load([block])) == ["loaded"]
    assert second.rows(f"SELECT count() FROM {table}") == [(ROWS,)]
