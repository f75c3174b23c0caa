"""The broker and the ClickHouse server of one bench, ended with it.

Receives a directory, gives servers that `relay.dev` starts there with its own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clickhouse_connect.driver.client import Client

from relay.dev import clickhouse_config
from relay.dev import stack as dev
from relay.dev.stack import Stack
from tests import reach

_FLUSH_MILLISECONDS = 7500
"""ClickHouse's default. `relay dev` writes its logs twice a second, for people and tests that look
at them at once, which takes a twentieth of a core."""


@contextmanager
def started(directory: Path, progress: Callable[[str], None]) -> Iterator[Stack]:
    """One broker and one ClickHouse on free ports."""
    place = directory / "servers"
    _write_logs_as_servers_do(clickhouse_config.server_directory(place) / "config.d")
    try:
        yield dev.up(place, progress=progress)
    finally:
        dev.down(place)


def _write_logs_as_servers_do(overrides: Path) -> None:
    interval = f"<flush_interval_milliseconds>{_FLUSH_MILLISECONDS}</flush_interval_milliseconds>"
    logs = "".join(f"<{log}>{interval}</{log}>" for log in clickhouse_config.LOGS)
    overrides.mkdir(parents=True)
    (overrides / "logs.xml").write_text(f"<clickhouse>{logs}</clickhouse>", encoding="utf-8")


def client(stack: Stack) -> Client:
    """A ClickHouse client, without compression: server and client share a machine."""
    return reach.client(stack.clickhouse, compress=False)
