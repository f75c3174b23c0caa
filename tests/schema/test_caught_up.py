"""Whether a replica has made every ALTER: what the relay makes of its answers. Without servers.

tests/replicas/test_lagging_columns.py has three real replicas, of which one lags.
"""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from relay.clickhouse.replica_log import SEES_LOGS
from relay.config.settings import ClickHouse
from relay.schema.catalogue import Catalogue

UNREAD, READ, EMPTY_OR_UNREAD = (0, 0), (1, 0), (0, 1)
"""What system.replicas may say: the last, where it has the numbers of an empty log."""
DENIED = DatabaseError("Code: 497. x: Not enough privileges. (ACCESS_DENIED)", code=497)
AWAY = DatabaseError("Code: 999. Session expired. (KEEPER_EXCEPTION)", code=999)


class Server:
    """In the place of a client.

    Attributes:
        replicas: what it says of each table.
        altering: tables with an ALTER in the queue.
        empty: tables with an empty log; or why nobody may ask.
        asked: the system tables that were asked, in their order.
    """

    def __init__(self, **replicas: tuple[int, int]) -> None:
        self.replicas = replicas
        self.altering: set[str] = set()
        self.empty: set[str] | DatabaseError = set()
        self.asked: list[str] = []

    def query(self, sql: str, parameters: dict[str, Any]) -> Any:
        (asked,) = re.findall(r"FROM (system\.\w+)", sql)
        self.asked.append(asked)
        rows: list[tuple[object, ...]]
        match asked:
            case "system.replicas":
                rows = [("d", t, *said, "default", f"/{t}") for t, said in self.replicas.items()]
            case "system.replication_queue":
                rows = [("d", table) for table in self.altering]
            case _:
                if isinstance(self.empty, DatabaseError):
                    raise self.empty
                rows = [(path,) for path in parameters["paths"] if path[1:] in self.empty]
        return SimpleNamespace(result_rows=rows)

    def close(self) -> None:
        """Nothing to close."""


def asking(server: Server) -> Catalogue:
    """A relay's catalogue, connected to it."""
    made = Catalogue(ClickHouse(url="http://nobody:1"))
    made._client = server  # type: ignore[assignment] # asked for no more than it has
    return made


def test_only_a_replica_that_has_read_all_and_made_it_has_caught_up() -> None:
    """One whose numbers are those of an empty log: where Keeper has no entry of it."""
    server = Server(
        read=READ, unread=UNREAD, altering=READ, empty=EMPTY_OR_UNREAD, first=EMPTY_OR_UNREAD
    )
    server.altering, server.empty = {"altering"}, {"empty", "unread"}
    tables = [f"d.{name}" for name in server.replicas]
    assert asking(server).caught_up(tables) == {"d.read", "d.empty"}
    assert server.asked[-1] == "system.zookeeper", "behind all else"


def test_keeper_is_not_asked_about_logs_that_have_entries() -> None:
    server = Server(read=READ, unread=UNREAD)
    assert asking(server).caught_up(["d.read", "d.unread"]) == {"d.read"}
    assert "system.zookeeper" not in server.asked


@pytest.mark.parametrize("error", [DENIED, AWAY])
def test_without_a_look_into_keeper_no_log_is_called_empty(
    error: DatabaseError, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have caught up all the same; the line that names the right comes once, and the
    right counts without another start."""
    server = Server(read=READ, first=EMPTY_OR_UNREAD)
    server.empty = error
    monkeypatch.setattr("relay.schema.catalogue.connect", lambda _: server)
    catalogue = asking(server)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert catalogue.caught_up(["d.read", "d.first"]) == {"d.read"}
    (line,) = caplog.records
    assert f"GRANT {SEES_LOGS} ON system.zookeeper" in line.getMessage()
    server.empty = {"first"}
    assert catalogue.caught_up(["d.read", "d.first"]) == {"d.read", "d.first"}
