"""A ledger that somebody made beforehand: what a start refuses, and that its next step mends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse import ledger_table
from loader.journal.startup import ledger_of
from relay.config.settings import Settings
from relay.errors import ContractBroken
from tests.loader.blocks import Journal


@pytest.fixture
def settings(journal: Journal, client: Client) -> Iterator[Settings]:
    given = journal.settings()
    client.command(f"CREATE DATABASE {given.loader.database}")
    yield given
    client.command(f"DROP DATABASE {given.loader.database}")


def columns(at: str) -> str:
    kinds = {**ledger_table.COLUMNS, "at": at}
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())


@pytest.mark.parametrize("make", [True, False])
@pytest.mark.parametrize("engine", ["Null", "Memory"])
def test_one_that_keeps_no_rows_is_refused(
    settings: Settings, client: Client, engine: str, *, make: bool
) -> None:
    given = columns(ledger_table.COLUMNS["at"])
    client.command(f"CREATE TABLE {settings.loader.database}.ledger ({given}) ENGINE = {engine}")
    with pytest.raises(ContractBroken, match=f"is a {engine}, not a MergeTree"):
        ledger_of(settings, make=make)


def test_one_whose_rows_do_not_know_when_they_were_written_is_refused(
    settings: Settings, client: Client
) -> None:
    """As from `DESCRIBE TABLE` without its column of defaults."""
    client.command(
        f"CREATE TABLE {settings.loader.database}.ledger ({columns('DateTime64(3)')}) "
        "ENGINE = MergeTree ORDER BY (app, table, block)"
    )
    with pytest.raises(ContractBroken, match="column at of the ledger") as refused:
        ledger_of(settings, make=True)
    statement, _, _ = refused.value.next_step.partition(";")
    assert statement.startswith("ALTER TABLE ")
    client.command(statement)
    made = ledger_of(settings, make=True)
    made.save_positions("journal", {0: 5})
    assert made.ask("SELECT count() FROM LEDGER WHERE at > now() - 600") == [(1,)]
