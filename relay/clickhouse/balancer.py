"""Finds out whether one ClickHouse URL is several servers, as behind a balancer.

Receives the connection settings, gives the names of the servers that answered: each question goes
over a connection of its own, because a balancer chooses a server for each connection. A balancer
that keeps to one server for one client is not noticed so.
"""

from __future__ import annotations

import time

from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.clickhouse.replicas import connected, own_pool
from relay.config.server_settings import ClickHouse

CONNECTIONS = 8
"""With two servers drawn at random, all of them reach the same one in 1 of 128 cases."""
SECONDS = 10.0
"""For all of them together."""
ANSWER_SECONDS = 3
_WHO = "SELECT hostName(), displayName(), toString(serverUUID()), tcpPort()"


def servers(clickhouse: ClickHouse) -> tuple[str, ...]:
    """Return the names of the servers that answered at the first URL, at most two, sorted.

    Never raises for a server's sake: who gave no answer has no name.
    """
    alone = clickhouse.model_copy(update={"url": clickhouse.urls[0], "insert_quorum": None})
    pool, until = own_pool(alone), time.monotonic() + SECONDS
    met: dict[tuple[str, ...], str] = {}
    try:
        client = connected(
            alone,
            alone.secret(),
            lambda _: True,
            pool,
            connect_timeout=ANSWER_SECONDS,
            send_receive_timeout=ANSWER_SECONDS,
            query_retries=0,
            compress=False,
        )
        for _ in range(CONNECTIONS):
            pool.clear()
            who = tuple(map(str, client.query(_WHO).result_rows[0]))
            host, display, *_ = who
            met[who] = host if display in {"", host} else f"{display} on {host}"
            if len(met) > 1 or time.monotonic() > until:
                break
        client.close()
    except (ClickHouseError, OSError):
        pass  # whoever needs the server says what is wrong with it
    finally:
        pool.clear()
    return tuple(sorted(met.values()))
