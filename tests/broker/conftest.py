from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.config.server_settings import ClickHouse
from tests.broker.cross_pipeline import CrossPipeline
from tests.broker.pipeline import Pipeline
from tests.broker.proxied_pipeline import ProxiedPipeline
from tests.chaos.proxied import Proxied, proxied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clickhouse_connect.driver.client import Client


@pytest.fixture
def pipeline(
    bootstrap: str,
    clickhouse: ClickHouse,
    app: str,
    client: Client,
    database: str,
    tmp_path: Path,
) -> Iterator[Pipeline]:
    """A source topic and a table; relays that a scenario starts are ended with it."""
    client.command(f"CREATE TABLE {database}.t (id Int64, v String) ENGINE = MergeTree ORDER BY id")
    made = Pipeline(bootstrap, clickhouse, app, database, tmp_path)
    made.create_source()
    yield made
    made.stop_all()


@pytest.fixture
def crossing(
    bootstrap: str,
    clickhouse: ClickHouse,
    app: str,
    client: Client,
    database: str,
    tmp_path: Path,
) -> Iterator[CrossPipeline]:
    """As `pipeline`, with the source in another cluster: a transaction for each partition."""
    client.command(f"CREATE TABLE {database}.t (id Int64, v String) ENGINE = MergeTree ORDER BY id")
    made = CrossPipeline(bootstrap, clickhouse, app, database, tmp_path)
    made.create_source()
    yield made
    made.stop_all()


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A broker of its own that relays reach through a proxy alone.

    It ends with its module: an idle broker and server take a sixteenth of a processor.
    """
    with proxied(tmp_path_factory.mktemp("proxied"), clickhouse=False) as made:
        yield made


@pytest.fixture
def proxied_pipeline(
    behind_proxy: Proxied,
    clickhouse: ClickHouse,
    app: str,
    client: Client,
    database: str,
    tmp_path: Path,
) -> Iterator[ProxiedPipeline]:
    """As `pipeline`, with relays that reach the broker through `pipeline.proxy`."""
    client.command(f"CREATE TABLE {database}.t (id Int64, v String) ENGINE = MergeTree ORDER BY id")
    made = ProxiedPipeline(
        behind_proxy.stack.bootstrap,
        clickhouse,
        app,
        database,
        tmp_path,
        proxy=behind_proxy.proxies[0],
    )
    made.create_source()
    yield made
    made.stop_all()
    behind_proxy.heal()
    print(made.logs())  # seen where the test failed
