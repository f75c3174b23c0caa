"""A client's way back to its brokers where librdkafka forgot them all.

A metadata answer that names no broker makes it forget every one for good, its bootstrap servers
too (librdkafka#5301, seen with 2.16): brokers give such answers while all of them are fenced, as
right after an outage. Receives what error_cb says and failed calls, gives the client the servers
of its configuration again. Those it knows already stay as they are.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from relay.kafka import librdkafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Consumer

    from relay.config.kafka_clients import ClientSettings

PAUSE_SECONDS = 5.0
"""Between two tries. One is not enough: what is given while an answer without brokers may still
come is forgotten again, and nobody says so."""
LOOK_SECONDS = 1.0
"""For the brokers to answer; the client is not polled meanwhile."""


class Bootstrap:
    """Of one client; holds no client, so that no cycle keeps one alive.

    Args:
        config: of the client; its error_cb hears what it would have heard without this.

    Attributes:
        config: the same, with this in the place of error_cb.
    """

    def __init__(self, config: ClientSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = str(config["bootstrap.servers"])
        self._say: Callable[[KafkaError], None] = config.get("error_cb", lambda _: None)
        self._clock = clock
        self._lost = False
        self._next = clock()
        self.config: dict[str, Any] = {**config, "error_cb": self._listen}

    def _listen(self, error: KafkaError) -> None:
        self._lost |= error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
        self._say(error)

    def doubt(self) -> None:
        """Doubt the brokers: a call got no answer, of this client or of another one."""
        self._lost = True

    def look(self, client: Consumer) -> None:
        """See whether brokers that were said to be away are back; else `offer`.

        Costs nothing otherwise, so that every poll can begin with it.
        """
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
        """Give it the servers of its configuration again, if it has been a while."""
        if self._clock() >= self._next:
            self._next = self._clock() + PAUSE_SECONDS
            if not librdkafka.unsupported():
                librdkafka.add_brokers(client, self._servers)
