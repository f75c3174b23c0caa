from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks.worker import Worker
from loader.clickhouse import client as clickhouse_client
from loader.clickhouse import server_records
from loader.clickhouse.ledger import Ledger
from relay.config.server_settings import ClickHouse
from tests.loader.blocks import Journal


@pytest.fixture
def journal(bootstrap: str, clickhouse: ClickHouse, app: str, tmp_path: Path) -> Journal:
    return Journal(bootstrap, clickhouse, app, tmp_path)


@pytest.fixture
def ledger(journal: Journal, client: Client) -> Iterator[Ledger]:
    settings = journal.settings()
    connected = clickhouse_client.connect(settings.clickhouse, 60)
    ledger = Ledger(connected, settings.loader.database, journal.app)
    ledger.ensure()
    yield ledger
    connected.close()
    client.command(f"DROP DATABASE {settings.loader.database}")


@pytest.fixture
def without_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the loader the server has neither query log nor part log, as many have not."""
    for name in (
        "_STATEMENTS",
        "PARTS",
        "_MADE_PARTS",
        "_COMPLETE",
        "_RECORDED",
        "STAYS",
        "REMOVING",
    ):
        sql = getattr(server_records, name)
        without = re.sub(r"system\.(query_log|part_log|LOG)\b", r"system.no_\1", sql)
        monkeypatch.setattr(server_records, name, without)


@pytest.fixture
def without_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader finds no INSERT of a block in the query log, as where another server ran it."""
    no_log = server_records._STATEMENTS.replace("query_log", "no_query_log")
    monkeypatch.setattr(server_records, "_STATEMENTS", no_log)


@pytest.fixture
def worker(journal: Journal, ledger: Ledger) -> Iterator[Worker]:
    worker = Worker(journal.settings())
    assert worker._ledger.name == ledger.name
    yield worker
    worker.close()
