"""An AdminClient that says why it gets no answer.

Receives a request under way, gives what the brokers answer, or the error for people.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from relay.config import kafka_clients
from relay.errors import Unavailable
from relay.kafka.connection_errors import Heard, Unconnected, name_unresolved_brokers
from relay.kafka.errors import answered

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Future

    from relay.config.settings import Brokers


class Admin:
    """The client.

    Attributes:
        client: makes the requests.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._heard = Heard()
        config: dict[str, Any] = {**kafka_clients.admin(brokers), "error_cb": self._heard.listen}
        self.client = AdminClient(config)

    def answer(
        self, what: str, future: Future[Any], refusal: str, fine: Collection[int] = ()
    ) -> Any:
        """Return what the brokers answer; None for an error code in `fine`.

        Without a connection a request only times out, and does not say why: error_cb does.

        Args:
            what: the request, as an infinitive with what it concerns.
            future: of the request.
            refusal: the next step where the brokers say no.
            fine: error codes.

        Raises:
            Unavailable: the brokers did not answer.
            Refused: they answered no, or the credentials are wrong.
        """
        try:
            return self._answer(what, future, refusal, fine)
        except Unavailable as error:
            raise name_unresolved_brokers(error, self._brokers) from error

    def _answer(self, what: str, future: Future[Any], refusal: str, fine: Collection[int]) -> Any:
        begun = time.monotonic()
        self.client.poll(0)
        if self._heard.refused():
            self._heard.error = None  # an earlier one; error_cb repeats it if it still holds
        try:
            return self._heard.answer(self.client, future)
        except Unconnected as silence:
            self._heard.error = None
            raise answered(what, silence.error, refusal) from None
        except KafkaException as error:
            if error.args[0].code() in fine:
                return None
            raise answered(what, self._heard.explained(error.args[0], begun), refusal) from error
