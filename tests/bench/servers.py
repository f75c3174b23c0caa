"""The broker and the ClickHouse server of one bench, ended with it.

Receives a directory, gives servers that `relay.dev` starts there with its own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clickhouse_connect.driver.client import Client

from relay.dev import stack as dev
from relay.dev.stack import Stack
from tests import reach


@contextmanager
def started(directory: Path, progress: Callable[[str], None]) -> Iterator[Stack]:
    """One broker and one ClickHouse on free ports."""
    place = directory / "servers"
    try:
        yield dev.up(place, progress=progress)
    finally:
        dev.down(place)


def client(stack: Stack) -> Client:
    """A ClickHouse client, without compression: server and client share a machine."""
    return reach.client(stack.clickhouse, compress=False)
