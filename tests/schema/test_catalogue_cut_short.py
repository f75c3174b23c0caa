"""The catalogue behind a network that cuts answers short."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from clickhouse_connect.driver.client import Client

from relay.config.settings import ClickHouse
from relay.errors import Unavailable
from relay.schema.catalogue import Catalogue
from tests import reach
from tests.chaos.proxy import Proxy
from tests.chaos.proxy_wire import HTTP

WITHIN_HEAD = 60
"""Bytes: the status and a line more."""


def test_an_answer_cut_within_its_head_is_not_that_all_tables_are_gone(
    clickhouse: ClickHouse, client: Client, database: str
) -> None:
    """Taken for an empty one it would make dead letters of every row."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (id Int64) ENGINE = MergeTree ORDER BY id")
    url = urlsplit(clickhouse.url)
    proxy = Proxy.start((url.hostname or "", url.port or 0), wire=HTTP)
    catalogue = Catalogue(reach.elsewhere(clickhouse, f"http://{proxy.address}"))
    assert catalogue.read([table]).keys() == {table}
    proxy.drop_answers("FROM system.columns", n=10, heard=WITHIN_HEAD)
    with pytest.raises(Unavailable):
        catalogue.read([table])
    proxy.heal()
    assert catalogue.read([table]).keys() == {table}
    catalogue.close()
    proxy.stop()
