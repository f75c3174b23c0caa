from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from loader import clickhouse
from loader.ledger import Ledger
from loader.work import Worker
from relay.server_settings import ClickHouse
from tests.loader.blocks import Journal


@pytest.fixture
def journal(bootstrap: str, clickhouse: ClickHouse, app: str, tmp_path: Path) -> Journal:
    return Journal(bootstrap, clickhouse, app, tmp_path)


@pytest.fixture
def ledger(journal: Journal, client: Client) -> Iterator[Ledger]:
    settings = journal.settings()
    connected = clickhouse.connect(settings.clickhouse, 60)
    ledger = Ledger(connected, settings.loader.database, journal.app)
    ledger.ensure(settings.loader.database)
    yield ledger
    connected.close()
    client.command(f"DROP DATABASE {settings.loader.database}")


@pytest.fixture
def worker(journal: Journal, ledger: Ledger) -> Iterator[Worker]:
    worker = Worker(journal.settings())
    assert worker._ledger.name == ledger.name
    yield worker
    worker.close()
