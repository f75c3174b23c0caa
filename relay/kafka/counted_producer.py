"""Messages to one topic, each counted until the brokers acknowledge it.

Receives values with their table, gives them to librdkafka's idempotent producer, and keeps
what failed. Never sends a message a second time by itself: after a failure nothing more is
taken until `abort`, because rows behind a hole would arrive without those in it.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from relay import names
from relay.config import kafka_clients
from relay.core.events import Failure
from relay.errors import ErrorPage, Fenced, Refused, RelayError, Unavailable
from relay.kafka.errors import NOWHERE, TRANSPORT, classify, describe
from relay.kafka.transaction_evidence import TransactionEvidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relay.config.settings import Brokers

CALL_SECONDS = 5.0  # one try of a transactional call; repeated until the timeout
QUEUE_FULL_SECONDS = 0.05  # poll this long for room
_LONGEST_TRANSACTION_MS = 900_000  # brokers' default transaction.max.timeout.ms


class Delivery:
    """A producer of one topic.

    Args:
        kafka: how to reach the brokers.
        topic: to write.
        transactional_id: None for a producer without transactions.
        timeout_seconds: after which an unacknowledged message counts as failed.

    Raises (every method):
        Unavailable: the brokers did not answer in time.
        Refused: they said no.
        Fenced: another producer runs under this transactional id.
    """

    def __init__(
        self, kafka: Brokers, topic: str, transactional_id: str | None, timeout_seconds: float
    ) -> None:
        self.topic = topic
        self.delivered: Counter[str] = Counter()
        """Rows acknowledged, by table."""
        self._timeout = timeout_seconds
        self._failed: list[tuple[str, int, KafkaError]] = []
        client = kafka_clients.plain_producer(kafka)
        client["delivery.timeout.ms"] = round(timeout_seconds * 1000)
        if transactional_id is not None:
            client["transactional.id"] = transactional_id
            client["transaction.timeout.ms"] = min(
                client["delivery.timeout.ms"], _LONGEST_TRANSACTION_MS
            )
        self._unknown = False  # whether the last commit went through
        self._evidence = TransactionEvidence(client)  # of how the last transaction ended
        self._client = client if transactional_id is None else self._evidence.config
        self._producer = self._connect()

    def _connect(self) -> Producer:
        self._evidence.forget()
        producer = Producer(self._client)
        if "transactional.id" in self._client:
            self.call("init_transactions", producer.init_transactions)
        return producer

    def send(self, table: str, value: bytes, rows: int) -> None:
        """Send one message; wait while librdkafka's queue is full."""
        failed = self._failed  # of this transaction, however late the report comes

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None and message.offset() is not None:
                self.delivered[table] += rows
            else:
                failed.append((table, rows, error or NOWHERE))

        header: Any = [(names.TABLE_HEADER, table.encode())]
        with self._errors_of("produce"):
            while True:
                try:
                    self._producer.produce(self.topic, value, headers=header, on_delivery=report)
                except BufferError:
                    self._producer.poll(QUEUE_FULL_SECONDS)
                    self.check()
                else:
                    break
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until every message has its report."""
        with self._errors_of("flush"):
            left = self._producer.flush(self._timeout + CALL_SECONDS)
        self.check()
        if left:
            raise Unavailable(
                f"{left} messages to {self.topic} were not acknowledged within {self._timeout:g} s",
                "check kafka.bootstrap and that the brokers are up",
            )

    def check(self) -> None:
        """Raise if a delivery failed."""
        if self._failed:
            table, rows, error = self._failed[0]
            lost = sum(count for _, count, _ in self._failed)
            raise self._mapped(
                f"{len(self._failed)} messages ({lost} rows) were not delivered to {self.topic}; "
                f"the first: {rows} rows of {table}",
                error,
            )

    def close(self) -> None:
        """Let go of the client; what was not flushed is dropped."""
        with self._errors_of("close"):
            self._producer.purge()
            self._producer.close()

    def begin(self) -> None:
        """Begin a transaction; by a new client where a copy of the last one's end may end it."""
        with self._errors_of("begin_transaction"):
            self._producer.poll(0)
        if self._evidence.doubt:
            self._producer = self._connect()
        self._evidence.begun()
        self.call("begin_transaction", lambda _: self._producer.begin_transaction())

    def commit(self) -> None:
        """Commit, after `flush`."""
        try:
            self.call("commit_transaction", self._producer.commit_transaction)
        except Unavailable:
            self._unknown = True
            raise

    def abort(self) -> None:
        """Abort; the messages in it are never seen, and failures among them forgiven."""
        with self._errors_of("abort_transaction"):
            self._producer.poll(0)  # what failed meanwhile
        if self._failed or self._unknown:
            # A client that lost messages may purge those of its next transaction too (seen after
            # MSG_SIZE_TOO_LARGE), and one whose commit has no answer takes no abort. A new one
            # under the same id ends what the old one left open.
            self._producer = self._connect()
            self._unknown = False
        else:
            self.call("abort_transaction", self._producer.abort_transaction)
            with self._errors_of("abort_transaction"):
                self._producer.flush(CALL_SECONDS)  # the reports of what was dropped
        self._failed = []

    def call(self, name: str, call: Callable[[float], Any]) -> None:
        """Make a transactional call, again with the same arguments while librdkafka says so."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                call(CALL_SECONDS)
            except KafkaException as error:
                cause = error.args[0]
                if classify(cause) is None and time.monotonic() < deadline:
                    continue
                raise self._mapped(name, cause) from error
            return

    @contextlib.contextmanager
    def _errors_of(self, what: str) -> Iterator[None]:
        """Any call of a client may raise its fatal error."""
        try:
            yield
        except KafkaException as error:
            raise self._mapped(what, error.args[0]) from error

    def _mapped(self, what: str, error: KafkaError) -> RelayError:
        failure = classify(error)
        text = describe(what, error)
        if failure is Failure.FENCED:
            step = "give each running producer a transactional id of its own"
            return Fenced(text, step, page=ErrorPage.PRODUCER)
        if failure is Failure.ABORT:
            return Unavailable(text, "abort the transaction and write its rows again")
        if error.code() in TRANSPORT or error.retriable():
            unknown = what == "commit_transaction"
            return Unavailable(
                f"{text}; the outcome of the transaction is unknown" if unknown else text,
                "find out which rows the topic holds before you write the rows again"
                if unknown
                else "check kafka.bootstrap and that the brokers are up",
            )
        return Refused(text, "see the broker's reason above: rights, topic, or message size")
