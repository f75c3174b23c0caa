"""What a client of the brokers says beside its answers: why it has no connection.

Without one a request only times out, and does not say why; librdkafka tells its error_cb.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

CREDENTIALS: frozenset[int] = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}  # noqa: SLF001
)
"""The connection itself is refused: said to error_cb only, while calls time out."""


class Heard:
    """What error_cb said last; apart from its user, so that no cycle holds the client.

    The garbage collector could end it in its own thread, where librdkafka aborts the process.

    Attributes:
        error: of the connections, since it was last set to None.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def listen(self, error: KafkaError) -> None:
        """As error_cb; called by the binding while the client is polled."""
        if error.code() in CREDENTIALS:
            self.error = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self.error = self.error or error

    def refused(self) -> KafkaError | None:
        """The error, if it says that the credentials are wrong."""
        wrong = self.error is not None and self.error.code() in CREDENTIALS
        return self.error if wrong else None
