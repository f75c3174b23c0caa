"""Connections to ClickHouse on which an answer that was cut short is an error.

Receives a server's address, gives the pool that a clickhouse-connect client is made with; and
how much of a long list fits into one request.
Python's HTTP takes the end of a connection for the end of the head, and a head that lost
the lines about its body for one without: a lost connection would read as an empty table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from clickhouse_connect.driver.httputil import check_env_proxy, get_pool_manager
from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, ProtocolError

from relay.clickhouse.error_text import note_server

T = TypeVar("T")
URL_BYTES = 20_000
"""Of the values of one question. Servers bound the URL, and each value of a form, in which the
client sends parameters that would make the URL long (http_max_field_value_size, 131,072)."""


class _Whole(HTTPConnectionPool):
    """A pool whose answers say where they end; urllib3 then sees whether they got there."""

    def urlopen(self, *arguments: Any, **named: Any) -> BaseHTTPResponse:
        """As urllib3's.

        Raises:
            ProtocolError: the head of the answer was cut short.
            HTTPError: there was no answer; relay.clickhouse.error_text tells why.
        """
        try:
            return self._whole(super().urlopen(*arguments, **named))
        except HTTPError as error:
            note_server(error, self.scheme or "http", self.host, self.port)
            raise

    @staticmethod
    def _whole(answer: BaseHTTPResponse) -> BaseHTTPResponse:
        chunked = answer.headers.get("Transfer-Encoding", "").lower() == "chunked"
        if not (chunked or answer.headers.get("Content-Length", "").isdecimal()):
            answer.close()
            raise ProtocolError("the connection ended within the head of the answer")
        return answer


class _WholeOverTls(_Whole, HTTPSConnectionPool):
    """The same over TLS."""


class Trust(NamedTuple):
    """Files (PEM) for TLS; None where nothing was set."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def pool(scheme: str, host: str, port: int, trust: Trust = Trust()) -> PoolManager:  # noqa: B008 - immutable
    """Return the process's connections to this server, over the proxy that the environment names.

    Over https its certificate is checked, always.
    """
    return _shared_pool(os.getpid(), scheme, check_env_proxy(scheme, host, port), trust)


def new_pool(scheme: str, host: str, port: int, trust: Trust) -> PoolManager:
    """Return such connections, shared with nobody."""
    return _make_pool(scheme, check_env_proxy(scheme, host, port), trust)


@cache
def _shared_pool(_: int, scheme: str, over: str | None, trust: Trust) -> PoolManager:
    """One pool for each process: a child must not use its parent's connections."""
    return _make_pool(scheme, over, trust)


def _make_pool(scheme: str, over: str | None, trust: Trust) -> PoolManager:
    files = {name: None if path is None else str(path) for name, path in trust._asdict().items()}
    manager: PoolManager = get_pool_manager(
        ca_cert=files["ca"],
        client_cert=files["certificate"],
        client_cert_key=files["key"],
        http_proxy=over if scheme == "http" else None,
        https_proxy=over if scheme == "https" else None,
    )
    manager.pool_classes_by_scheme = {"http": _Whole, "https": _WholeOverTls}
    return manager


def in_urls(values: Iterable[T], length: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the values in lists that fit into one question each, by the bytes that each takes."""
    return in_lists(values, length, URL_BYTES)


def in_lists(values: Iterable[T], length: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield the values in lists of so many bytes at most; one that takes more is alone."""
    batch: list[T] = []
    size = 0
    for value in values:
        if batch and size + length(value) > most:
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += length(value)
    if batch:
        yield batch
