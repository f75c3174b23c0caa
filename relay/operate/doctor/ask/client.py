"""One client of the brokers, for questions; what got no answer is kept with its reason."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from relay.config import kafka_clients
from relay.config.settings import Brokers
from relay.kafka.connection_errors import Heard, Unconnected
from relay.kafka.errors import PASSING, answered
from relay.operate.doctor.facts import Unasked

SECONDS = 30.0
"""For one request."""
_PAUSE_SECONDS = 0.1
_API = re.compile(r"ApiKey (\w+) \(\d+\) Versions \d+\.\.(\d+)")


class RequestVersions:
    """In the place of a client's logger: hears which requests each broker takes."""

    def __init__(self) -> None:
        self.apis: dict[str, int] = {}

    def log(self, _level: int, _template: str, _facility: str, _client: str, text: str) -> None:
        """Take one line of librdkafka; called by the binding while the client is polled."""
        found = _API.search(text)
        if found is not None:
            version = int(found[2])
            self.apis[found[1]] = min(version, self.apis.get(found[1], version))


class Asker:
    """The client.

    Attributes:
        admin: makes the requests.
        apis: by request name, the highest version that every known broker supports.
        unasked: what got no answer.
        quiet: settings of further clients that are to print nothing.
    """

    def __init__(self, kafka: Brokers) -> None:
        listener = RequestVersions()
        self.apis = listener.apis
        self.unasked: list[Unasked] = []
        self.quiet: dict[str, Any] = {"logger": listener, "debug": "feature", "log_level": 7}
        self._heard = Heard()
        client = {**kafka_clients.admin(kafka), **self.quiet, "error_cb": self._heard.listen}
        self.admin = AdminClient(client)

    def answer(self, what: str, request: Callable[[], Future[Any]]) -> Any:
        """Return what the brokers answer; asked again while leaders and coordinators move.

        Raises:
            KafkaException: an error that concerns this question only.
            Unavailable: no broker answered.
            Refused: the connection was refused, for its credentials.
        """
        self.admin.poll(0)
        self._heard.error = None  # an earlier one; error_cb repeats it if it still holds
        begun = time.monotonic()
        deadline = begun + SECONDS
        future = request()
        while True:
            try:
                found = self._heard.answer(self.admin, future)
            except Unconnected as silence:
                raise answered(what, silence.error, "") from None
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() < 0:
                    heard = self._heard.error or self._heard.explained(cause, begun)
                    raise answered(what, heard, "") from error
                if cause.code() not in PASSING or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)  # nothing tells when it has moved but asking again
                future = request()
            else:
                self.admin.poll(0)
                return found

    def cannot(self, what: str, reason: object, mend: str = "") -> None:
        """Keep a question that got no answer."""
        told = f"{reason.name()} ({reason.str()})" if isinstance(reason, KafkaError) else reason
        self.unasked.append(Unasked(what, str(told), mend))
