"""The broker and the ClickHouse endpoint of one bench, ended with it.

Receives a directory, gives servers that `relay.dev` starts there with its own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from relay.dev import stack as dev
from relay.dev.stack import Stack


@contextmanager
def started(directory: Path, progress: Callable[[str], None]) -> Iterator[Stack]:
    """One broker and one endpoint on free ports."""
    place = directory / "servers"
    try:
        yield dev.up(place, progress=progress)
    finally:
        dev.down(place)


def client(stack: Stack) -> Client:
    """A ClickHouse client, without compression: server and client share a machine."""
    url = urlsplit(stack.clickhouse_url)
    return clickhouse_connect.get_client(
        host=url.hostname or "127.0.0.1", port=url.port or 8123, compress=False
    )
