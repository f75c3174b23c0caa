"""Asks a server for its settings again once it turns out to be another server.

Receives statements. Where the server says that it does not know a setting which it knew when the
connection was made, it was replaced, as in a roll-back, and the client asks for the settings again.
It then repeats a query; the sender of any other statement gets the error of a server without an
answer, and sends it again as after any outage. Nothing was carried out: a server reads settings
before the statement.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError
from clickhouse_connect.driver.httpclient import HttpClient
from clickhouse_connect.driver.query import QueryResult

from relay.clickhouse.errors import About, about

_NAMED = re.compile(r"Unknown setting '?(\w+)|Setting '?(\w+)'? is neither")


class ServerReplacedError(OperationalError):
    """The server is another one than before; what it knows was asked again."""


class RenewingClient(HttpClient):
    """A client that adopts what the client which `again` makes has learnt from the server."""

    again: Callable[[], HttpClient] | None = None
    _forgotten: frozenset[str] = frozenset()

    def query(self, query: str | None = None, *more: Any, **named: Any) -> QueryResult:
        """Query as HttpClient does; raise ServerReplacedError where the server changes twice."""
        try:
            return super().query(query, *more, **self._known(named))
        except ClickHouseError as error:
            if not self._renewed(error):
                raise
        try:
            return super().query(query, *more, **self._known(named))
        except ClickHouseError as error:
            if self._renewed(error):
                raise self._replaced(error) from error
            raise

    def command(self, cmd: str, *more: Any, **named: Any) -> Any:
        """Run a command as HttpClient does.

        Raises ServerReplacedError where the server is another one; nothing was carried out.
        """
        try:
            return super().command(cmd, *more, **self._known(named))
        except ClickHouseError as error:
            if self._renewed(error):
                raise self._replaced(error) from error
            raise

    def _renewed(self, error: ClickHouseError) -> bool:
        """Read the server's settings again if it does not know one any more; return whether."""
        name = unknown_setting(str(error))
        if self.again is None or not (name in self.server_settings or name in self.params):
            return False
        fresh = self.again()
        try:
            with _ADOPTING:
                self._adopt(fresh)
        finally:
            fresh.close()
        return True

    def _adopt(self, fresh: HttpClient) -> None:
        """Go on with what the other has learnt; statements may be under way meanwhile."""
        gone = self.server_settings.keys() - fresh.server_settings.keys()
        self._forgotten = (self._forgotten | gone) - fresh.server_settings.keys()
        for name in self.params.keys() - fresh.params.keys():
            self.params.pop(name, None)
        self.params.update(fresh.params)
        self.server_settings, self.server_version = fresh.server_settings, fresh.server_version
        self.server_tz, self.protocol_version = fresh.server_tz, fresh.protocol_version
        self.compression = fresh.compression

    def _known(self, named: dict[str, Any]) -> dict[str, Any]:
        """The arguments without settings that the server has forgotten since somebody looked."""
        settings = named.get("settings")
        if not settings or self._forgotten.isdisjoint(settings):
            return named
        known = {name: value for name, value in settings.items() if name not in self._forgotten}
        return {**named, "settings": known}

    def _replaced(self, error: ClickHouseError) -> ServerReplacedError:
        name = unknown_setting(str(error))
        return ServerReplacedError(
            f"ClickHouse {self.url} was replaced by a server that does not know the setting "
            f"{name}; the client has now read that server's settings (version "
            f"{self.server_version})"
        )


_ADOPTING = threading.Lock()


def unknown_setting(text: str) -> str:
    """Return the setting that a server says it does not know; empty: it says something else."""
    if about(text) is not About.CONNECTION:
        return ""
    match = _NAMED.search(text)
    return (match[1] or match[2]) if match else ""


def renewing(client: HttpClient, again: Callable[[], HttpClient]) -> RenewingClient:
    """Make a client renew itself by others of the same server, which `again` makes."""
    client.__class__ = RenewingClient
    assert isinstance(client, RenewingClient)
    client.again = again
    return client
