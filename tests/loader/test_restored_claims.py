"""ClickHouse is set back to a moment at which blocks were claimed and not settled: FAULTS C3.

Each search of tests/loader/test_restored_plan.py that found a hole stands here on the real server.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from tests.broker.pipeline import wait_until
from tests.loader.blocks import Journal, batch
from tests.loader.restored import Backup
from tests.loader.test_evidence import number, summed
from tests.loader.test_set_back import ledger_of, loaded
from tests.loader.test_work import copies, killed, make
from tests.loader.unsparked import Run, Unsparked


@pytest.fixture
def loader(journal: Journal) -> Unsparked:
    return Unsparked(journal)


@pytest.fixture(params=["stamped", "bare", "viewed"])
def table(request: pytest.FixtureRequest, client: Client, database: str) -> str:
    """With a window that remembers all tokens, until the table is made anew."""
    stamped = request.param != "bare"
    made = make(client, f"{database}.{request.param}", stamped=stamped, window=100)
    if request.param == "viewed":
        summed(client, made)
    return made


def with_view(table: str) -> tuple[str, ...]:
    """What has to be backed up together."""
    return (table, f"{table}_sums") if table.endswith("viewed") else (table,)


def next_second(client: Client) -> None:
    """A backup is restored later than it was made."""
    (before,) = client.query("SELECT toUnixTimestamp(now())").result_rows[0]
    wait_until(
        lambda: client.query("SELECT toUnixTimestamp(now())").result_rows[0][0] > before,
        "the next second",
    )


WAYS = ["restore", "replace", pytest.param("make_anew", marks=pytest.mark.long)]
"""A backup comes back as tables of the same identity, or, by default in one test, of a new one."""


@pytest.mark.parametrize("how", WAYS)
def test_a_block_that_was_claimed_then_and_loaded_since(
    loader: Unsparked, client: Client, table: str, how: str
) -> None:
    """Tables and ledger of one moment, the loader stopped; no checkpoint, as with a pod."""
    loaded(loader, table, 0)
    (block,) = loader.journal.seal(table, batch(100, 100))
    killed(loader.journal, [block], "after_prepare")
    backup = Backup(client, *with_view(table), ledger_of(loader.journal))
    loader.run()
    assert copies(client, table) == (200, 200)
    next_second(client)
    getattr(backup, how)()
    shutil.rmtree(loader.journal.directory / "checkpoint")
    said = loader.run()
    assert rows(client, table) in ({200}, {100}), said
    if rows(client, table) == {100}:
        assert "parked" in "\n".join(said)


def rows(client: Client, table: str) -> set[int]:
    """Of the table, and of the view behind it; none twice."""
    total, different = copies(client, table)
    assert total == different
    views = with_view(table)[1:]
    return {total, *(number(client, f"{view} WHERE id >= 0") for view in views)}


@pytest.mark.parametrize("how", WAYS)
def test_a_block_that_was_claimed_then_and_has_its_rows(
    loader: Unsparked, client: Client, table: str, how: str
) -> None:
    """The ledger's backup first, the tables' after it, under a loader; no checkpoint."""
    loaded(loader, table, 0)
    (block,) = loader.journal.seal(table, batch(100, 100))
    killed(loader.journal, [block], "after_prepare")
    ledger = Backup(client, ledger_of(loader.journal))
    loader.run()
    of_table = Backup(client, *with_view(table))
    next_second(client)
    for one in (ledger, of_table):
        getattr(one, how)()
    shutil.rmtree(loader.journal.directory / "checkpoint")
    loader.run()
    assert rows(client, table) == {200}


@pytest.mark.parametrize("table", ["stamped", "viewed"], indirect=True)
@pytest.mark.parametrize("how", WAYS)
def test_a_checkpoint_that_stands_where_the_restored_ledger_does(
    loader: Unsparked,
    client: Client,
    table: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed in the first micro-batch since the backup: only its plan shows how far it came.

    Not without the column: such a table may not be backed up under a loader (document `backup`).
    """
    loaded(loader, table, 0)
    loader.journal.seal(table, batch(100, 100))
    ledger = Backup(client, ledger_of(loader.journal))
    run = Run(loader.journal.settings())
    write = run._write

    def dies(log: str, text: str) -> Any:
        if log == "commits":
            raise OSError("killed")
        write(log, text)

    monkeypatch.setattr(run, "_write", dies)
    with pytest.raises(OSError, match="killed"):
        run.batch()
    run.close()
    of_table = Backup(client, *with_view(table))
    next_second(client)
    for one in (ledger, of_table):
        getattr(one, how)()
    loader.run()
    assert rows(client, table) == {200}
