"""Explain why a client of the brokers has no connection.

Without a connection a request only times out and does not say why. librdkafka reports the reason
through error_cb: for each broker why it cannot be reached, and then how many are down, without an
address. A client reaches the address of its configuration and learns there under which names the
brokers advertise themselves; where such a name cannot be resolved, both kafka.bootstrap and the
brokers are right, and nothing works.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from relay.config import kafka_clients
from relay.config.settings import Brokers
from relay.errors import Unavailable

CREDENTIALS: frozenset[int] = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}  # noqa: SLF001
)
"""The connection itself is refused: said to error_cb only, while calls time out."""

_LOOK_SECONDS = 0.1
"""Between looks at what the client has to say while a request is under way."""


_OF_ONE = re.compile(r"(?:\w+://)?(?P<where>[^/\s]+)/(?:bootstrap|\d+): (?P<why>.+)", re.DOTALL)
"""What the client says of one broker: `host:port/id: why`."""
_ABOUT_CLIENT = re.compile(r" \(after \d+ms in state .*", re.DOTALL)
_CONNECTING = re.compile(r"(?:Connect to \S+ failed|Failed to resolve '[^']*'): ")


class Unconnected(Exception):
    """A request has no answer yet, and why: error_cb said `error`."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error)
        self.error = error


class Heard:
    """The last error of error_cb, kept outside its user so that no cycle holds the client.

    The garbage collector could end it in its own thread, where librdkafka aborts the process.

    Attributes:
        error: of the connections, since it was last set to None.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self._whys: dict[str, tuple[float, str]] = {}

    def listen(self, error: KafkaError) -> None:
        """Note a client's error, as its error_cb; called while the client is polled."""
        if error.code() in CREDENTIALS:
            self.error = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self.error = self.error or KafkaError(error.code(), nobody(self._since(0.0)))
        elif (of_one := _OF_ONE.fullmatch(error.str())) is not None:
            self._whys[of_one["where"]] = time.monotonic(), short(of_one["why"])

    def explained(self, error: KafkaError, begun: float) -> KafkaError:
        """Return the error of a request; without an answer, with what brokers said since `begun`.

        `begun`: by time.monotonic.
        """
        whys = self._since(begun)
        if error.code() >= 0 or not whys:  # negative: librdkafka's own, nobody answered
            return error
        return KafkaError(error.code(), f"{error.str()}; {listed(whys)}")

    def _since(self, begun: float) -> Mapping[str, str]:
        return {where: why for where, (at, why) in self._whys.items() if at >= begun}

    def refused(self) -> KafkaError | None:
        """Return the error, if it says that the credentials are wrong."""
        wrong = self.error is not None and self.error.code() in CREDENTIALS
        return self.error if wrong else None

    def answer(self, client: AdminClient, future: Future[Any]) -> Any:
        """Return what the brokers answer to a request of a client with `listen` as its error_cb.

        Raises:
            KafkaException: they answered no, or nothing in time.
            Unconnected: there is no answer, and an error of the connections; `error` stays.
        """
        while True:
            try:
                return future.result(_LOOK_SECONDS)
            except TimeoutError:
                client.poll(0)
                if self.error is not None:
                    raise Unconnected(self.error) from None


def short(why: str) -> str:
    """Return why a broker cannot be reached without its address and the client's own states."""
    return _CONNECTING.sub("", _ABOUT_CLIENT.sub("", why)).strip()


def nobody(whys: Mapping[str, str]) -> str:
    """Build the text that no broker answers, with each address and cause.

    librdkafka's own text only counts the brokers.
    """
    return f"no broker answers: {listed(whys)}" if whys else "no broker answers"


def listed(whys: Mapping[str, str]) -> str:
    """Return each address and why it cannot be reached."""
    return "; ".join(f"{where}: {why}" for where, why in sorted(whys.items()))


LIST_SECONDS = 15.0
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


def name_unresolved_brokers(error: Unavailable, brokers: Brokers) -> Unavailable:
    """Return the error, with the advertised names that cannot be resolved from here."""
    if not any(map(_listens, brokers.bootstrap.split(","))):
        return error  # and nothing is waited for
    client = AdminClient({**kafka_clients.admin(brokers), "log_level": 0})
    try:
        cluster = client.list_topics(timeout=LIST_SECONDS)
    except KafkaException:
        return error  # nobody answered at all
    whys = unresolved((str(broker.host), broker.port) for broker in cluster.brokers.values())
    if not whys:
        return error
    names = ", ".join(f"{address} ({why})" for address, why in sorted(whys.items()))
    return Unavailable(
        f"{error.message}: {brokers.bootstrap} answers and advertises brokers whose names cannot "
        f"be resolved from here: {names}",
        "correct advertised.listeners of these brokers, or make the names known on this machine "
        "(DNS, /etc/hosts); kafka.bootstrap is right, and the brokers run",
    )
