"""Reconnects a client whose librdkafka has forgotten its brokers, and renews its password.

A metadata answer that names no broker makes it forget every one for good, its bootstrap servers
too (librdkafka#5301, seen with 2.16): brokers give such answers while all of them are fenced, as
right after an outage. Receives what error_cb says and failed calls, gives the client the servers
of its configuration again. Those it knows already stay as they are.

A password that is changed matters to connections that come: those that stand stay. A client that
lives long looks at the password's file again, so that it has the new one before it needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from relay.config.kafka_clients import ClientSettings, FromFile
from relay.errors import ConfigError
from relay.kafka import librdkafka

PAUSE_SECONDS = 5.0
"""Between two tries. One is not enough: what is given while an answer without brokers may still
come is forgotten again, and nobody says so."""
LOOK_SECONDS = 1.0
"""For the brokers to answer; the client is not polled meanwhile."""


class Renewal:
    """A client's password, where it came from a file; holds no client, as `Bootstrap`."""

    def __init__(
        self, config: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        password = config.get("sasl.password")
        self._held = password if isinstance(password, FromFile) else None
        self._user = str(config.get("sasl.username", ""))
        self._clock = clock
        self._next = clock() + LOOK_SECONDS

    def look(self, client: Consumer | Producer | AdminClient) -> None:
        """Give the client what the file holds now, where that is another password.

        Costs a read of the file once a second, so that every poll can begin with it.
        """
        if self._held is None or self._clock() < self._next:
            return
        self._next = self._clock() + LOOK_SECONDS
        try:
            now = FromFile.read(self._held.path)
        except ConfigError:
            return  # whoever writes it is not done: the old one holds until the next look
        if now and now != self._held:
            client.set_sasl_credentials(self._user, now)
            self._held = now

    def current(self) -> ClientSettings:
        """Return the password setting for another client of the same configuration."""
        return {} if self._held is None else {"sasl.password": self._held}


class Bootstrap:
    """The servers of one client; holds no client, so that no cycle keeps one alive.

    Attributes:
        config: of the client, with an error_cb that passes every error on to the client's own.
    """

    def __init__(self, config: ClientSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = str(config["bootstrap.servers"])
        self._say: Callable[[KafkaError], None] = config.get("error_cb", lambda _: None)
        self._clock = clock
        self._lost = False
        self._next = clock()
        self._renewal = Renewal(config, clock)
        self.config: dict[str, Any] = {**config, "error_cb": self._listen}

    def _listen(self, error: KafkaError) -> None:
        self._lost |= error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
        self._say(error)

    def doubt(self) -> None:
        """Doubt the brokers: a call got no answer, of this client or of another one."""
        self._lost = True

    def look(self, client: Consumer) -> None:
        """Check whether unreachable brokers are back, else `offer`; take a changed password.

        This costs little, so every poll can begin with it.
        """
        self._renewal.look(client)
        if self._lost and self._clock() >= self._next:
            try:
                self._lost = not client.list_topics(timeout=LOOK_SECONDS).brokers
            except KafkaException:
                self.offer(client)

    @contextmanager
    def offering(self, client: Consumer) -> Iterator[None]:
        """Run a call of the client; `offer` where it gets no answer."""
        try:
            yield
        except KafkaException:
            self.offer(client)
            raise

    def offer(self, client: Consumer) -> None:
        """Give the client its configured servers again, at most once in PAUSE_SECONDS."""
        if self._clock() >= self._next:
            self._next = self._clock() + PAUSE_SECONDS
            if not librdkafka.unsupported():
                librdkafka.add_brokers(client, self._servers)
