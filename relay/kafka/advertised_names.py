"""Names that brokers give for themselves and this machine cannot resolve.

Receives how to reach the brokers, gives the error for people. A client reaches the address of its
configuration, is told there under which names the brokers are to be found, and goes on with those
alone: where one leads nowhere, both kafka.bootstrap and the brokers are right, and nothing works.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from relay.config import kafka_clients
from relay.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from relay.config.settings import Brokers

SECONDS = 15.0
"""For an answer of the address in the configuration, which listens: on a machine with much to do a
new client's connection and its first answer took more than three."""

_CONNECT_SECONDS = 1.0

Address = tuple[str, int]


def unresolved(
    advertised: Iterable[Address], resolve: Callable[[str, int], object] = socket.getaddrinfo
) -> dict[str, str]:
    """Return why, by address, of those whose names lead nowhere."""
    whys = {}
    for host, port in advertised:
        try:
            resolve(host, port)
        except (OSError, UnicodeError) as error:  # UnicodeError: no name at all, as with two dots
            reason = error.strerror if isinstance(error, OSError) else None
            whys[f"{host}:{port}"] = reason or str(error)
    return whys


def _listens(address: str) -> bool:
    """Whether somebody takes connections there."""
    host, _, port = address.strip().rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError):  # ValueError: librdkafka's default port, which is not known here
        return not port.isdecimal()
    return True


def explained(error: Unavailable, brokers: Brokers) -> Unavailable:
    """Return the error, with the names that cannot be resolved if they are the reason."""
    if not any(map(_listens, brokers.bootstrap.split(","))):
        return error  # and nothing is waited for
    client = AdminClient({**kafka_clients.admin(brokers), "log_level": 0})
    try:
        told = client.list_topics(timeout=SECONDS)
    except KafkaException:
        return error  # nobody answered at all
    whys = unresolved((str(one.host), one.port) for one in told.brokers.values())
    if not whys:
        return error
    listed = ", ".join(f"{address} ({why})" for address, why in sorted(whys.items()))
    return Unavailable(
        f"{error.message}: {brokers.bootstrap} answers and advertises brokers whose names cannot "
        f"be resolved from here: {listed}",
        "mend advertised.listeners of these brokers, or make the names known on this machine (DNS, "
        "/etc/hosts); kafka.bootstrap and the brokers themselves are right",
    )
