from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clickhouse_connect.driver.client import Client


@pytest.fixture
def pipeline(
    bootstrap: str,
    clickhouse_url: str,
    app: str,
    client: Client,
    database: str,
    tmp_path: Path,
) -> Iterator[Pipeline]:
    """A source topic and a table; relays that a scenario starts are ended with it."""
    client.command(f"CREATE TABLE {database}.t (id Int64, v String) ENGINE = MergeTree ORDER BY id")
    made = Pipeline(bootstrap, clickhouse_url, app, database, tmp_path)
    made.create_source()
    yield made
    made.stop_all()
