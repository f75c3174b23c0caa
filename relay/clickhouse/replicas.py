"""Several replicas of one ClickHouse shard behind one client: one is asked; if it fails, the next.

Receives addresses, gives a clickhouse-connect client, and the pool that it is made with. Sends no
statement a second time: the sender gets the failure, and the next statement goes to the next
replica. All clients of a process move on together.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httpclient import HttpClient
from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError

from relay.clickhouse.errors import OF_ONE_REPLICA
from relay.clickhouse.http_pool import Trust, new_pool, pool
from relay.clickhouse.reconfigure import renewing
from relay.clickhouse.statement_settings import send_always
from relay.config.server_settings import Address, ClickHouse

# The client logs a stack trace beside each exception that it raises, its connections each try; the
# exception says it all, and whoever gets it says where.
logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())
logging.getLogger("clickhouse_connect").propagate = False
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

_CODE = "X-ClickHouse-Exception-Code"
_SERVER = "X-ClickHouse-Server-Display-Name"


class ReplicaPool(PoolManager):
    """A pool of each replica; what is asked of any address goes to the one in use.

    A single address is a balancer's: a replica that does not answer is left by leaving its
    connections.
    """

    def __init__(self, urls: tuple[str, ...], trust: Trust) -> None:
        super().__init__()
        self._netlocs = [urlsplit(url)[:2] for url in urls]
        self._pools = [pool(*Address.of(url), trust) for url in urls]
        self._moving = threading.Lock()
        self._at = 0

    def urlopen(self, method: str, url: str, *more: Any, **named: Any) -> BaseHTTPResponse:
        """Send the request as PoolManager does."""
        index = self._at
        scheme, netloc = self._netlocs[index]
        address = urlsplit(url)._replace(scheme=scheme, netloc=netloc).geturl()
        try:
            answer = self._pools[index].urlopen(method, address, *more, **named)
        except HTTPError:
            self._leave(index)
            raise
        if int(answer.headers.get(_CODE, 0)) in OF_ONE_REPLICA:
            self._leave(index)
        return answer

    def _leave(self, index: int) -> None:
        """On to the next, unless another thread has gone there already."""
        if len(self._pools) == 1:  # a balancer, that chooses for each connection: so make new ones
            self._pools[index].clear()
            return
        with self._moving:
            if self._at == index:
                self._at = (index + 1) % len(self._pools)


class OneServer(PoolManager):
    """A pool that notices when another server answers than before, as behind a balancer.

    Attributes:
        pinned: whether that is an error: another server may not have yet what one confirmed.
    """

    def __init__(self, url: str, trust: Trust) -> None:
        super().__init__()
        self._pool = pool(*Address.of(url), trust)
        self._server = ""
        self.pinned = False

    def urlopen(self, method: str, url: str, *more: Any, **named: Any) -> BaseHTTPResponse:
        """Send the request as PoolManager does; HTTPError also says that another one answered."""
        answer = self._pool.urlopen(method, url, *more, **named)
        server = answer.headers.get(_SERVER, "")
        if not self._server or not self.pinned:
            self._server = server
        elif server != self._server:
            answer.close()
            raise HTTPError(
                f"several servers answer at clickhouse.url: {self._server} until now, now "
                f'{server}. Set clickhouse.insert_quorum = "auto"'
            )
        return answer


def pool_of(clickhouse: ClickHouse) -> PoolManager:
    """Return the process's connections to the server, or to the replicas of a shard."""
    trust = Trust(clickhouse.ca_file, clickhouse.certificate_file, clickhouse.key_file)
    is_shard = len(clickhouse.urls) > 1 or clickhouse.insert_quorum is not None
    return _shared_pool(os.getpid(), clickhouse.urls, trust, is_shard)


def pin(clickhouse: ClickHouse) -> None:
    """Take an answer of another server than the one of now for an error, from now on."""
    connections = pool_of(clickhouse)
    if isinstance(connections, OneServer):
        connections.pinned = True


def own_pool(clickhouse: ClickHouse) -> PoolManager:
    """Return connections to the one server that is named, shared with nobody."""
    trust = Trust(clickhouse.ca_file, clickhouse.certificate_file, clickhouse.key_file)
    return new_pool(*Address.of(clickhouse.url), trust)


def connected(
    clickhouse: ClickHouse,
    password: str,
    is_answer: Callable[[ClickHouseError], bool],
    own: PoolManager | None = None,
    **options: Any,
) -> HttpClient:
    """Return a client of the server; of several replicas, of the first that accepts it.

    If a server with other settings replaces it, the client reads the settings again
    (relay.clickhouse.reconfigure).

    Args:
        clickhouse: addresses, user and pool.
        password: as `clickhouse.secret` gives it.
        is_answer: whether an error is a server's own, which no other is asked to repeat.
        own: connections for this client alone; else those of the process.
        options: of clickhouse_connect.get_client, beside these.

    Raises:
        ClickHouseError: an answer, or of the last one that was asked.
        Refused: the user's profile fixes a setting so that no answer could be believed.
    """
    first = Address.of(clickhouse.urls[0])

    def connect() -> HttpClient:
        for others in reversed(range(len(clickhouse.urls))):
            try:
                client = clickhouse_connect.get_client(
                    interface=first.scheme,
                    host=first.host,
                    port=first.port,
                    # Else a lost connection could read as no rows, or as "all tables were dropped".
                    pool_mgr=own or pool_of(clickhouse),
                    username=clickhouse.user,
                    password=password,
                    # Statements of one process may overlap, which a session would not let them.
                    autogenerate_session_id=False,
                    **options,
                )
            except ClickHouseError as error:
                if is_answer(error) or not others:  # else the pool asks the next replica now
                    raise
            else:
                assert isinstance(client, HttpClient)
                send_always(client, clickhouse.user)
                return client
        raise AssertionError("a configuration names at least one server")

    return renewing(connect(), connect)


@cache
def _shared_pool(
    _: int,
    urls: tuple[str, ...],
    trust: Trust,
    is_shard: bool,  # noqa: FBT001
) -> PoolManager:
    """Return one pool for each process, as in relay.clickhouse.http_pool."""
    return ReplicaPool(urls, trust) if is_shard else OneServer(urls[0], trust)


def is_shared(engine: str) -> bool:
    """Return whether a table of this engine holds the same on each replica."""
    return engine.startswith(("Replicated", "Shared"))


def reading(clickhouse: ClickHouse) -> dict[str, Any]:
    """Return settings for reading: a replica that lags says so instead of answering.

    Without a quorum there are none: one server knows all that it was told.
    """
    return {} if clickhouse.insert_quorum is None else {"select_sequential_consistency": 1}


def writing(clickhouse: ClickHouse, seconds: float) -> dict[str, Any]:
    """Return settings of a client that writes, which waits so many seconds for a quorum."""
    if clickhouse.insert_quorum is None:
        return {}
    return {
        "insert_quorum": clickhouse.insert_quorum,
        "insert_quorum_timeout": int(seconds * 1000),
        # Quorums that overlap leave no order in which a replica could say that it has all.
        "insert_quorum_parallel": 0,
        **reading(clickhouse),
    }
