"""Ways into the ClickHouse of a stack, for tests and campaigns: settings give clients.

And settings of an app none of whose servers is there.
"""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import clickhouse_connect

from relay.config.settings import Settings

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from relay.config.server_settings import ClickHouse


def client(reached: ClickHouse, **options: Any) -> Client:
    """Return a client with the user and password of the settings."""
    url = urlsplit(reached.url)
    return clickhouse_connect.get_client(
        host=url.hostname or "",
        port=url.port or 0,
        username=reached.user,
        password=reached.secret(),
        **options,
    )


def headers(reached: ClickHouse) -> dict[str, str]:
    """Return the headers that say who asks."""
    return {"X-ClickHouse-User": reached.user, "X-ClickHouse-Key": reached.secret()}


def sql(reached: ClickHouse, statement: str) -> str:
    """Send one statement without a client's library; return the answer's text."""
    request = urllib.request.Request(reached.url, statement.encode(), headers(reached))
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode().strip())


def elsewhere(reached: ClickHouse, url: str) -> ClickHouse:
    """Return the same settings with another address, as of a proxy before the server."""
    return reached.model_copy(update={"url": url})


def nobody(replication: int | None = 1) -> Settings:
    """Return settings of an app at whose addresses nobody listens."""
    return Settings.model_validate(
        {
            "app": "shop",
            "kafka": {"bootstrap": "127.0.0.1:1", "replication": replication},
            "source": {"topic": "rows"},
            "clickhouse": {"url": "http://127.0.0.1:1"},
            "loader": {"checkpoint": "checkpoint"},
        }
    )
