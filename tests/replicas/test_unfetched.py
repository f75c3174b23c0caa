"""A replica that has not fetched the rows of an INSERT into another one: that it shows none of them
proves nothing, as its table has forgotten the block's token."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from loader.blocks.worker import Worker
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
    from tests.replicas.journal import Replicated
    from tests.replicas.rig import Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, half a minute

ROWS = 100
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
