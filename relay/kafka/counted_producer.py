"""Messages to one topic, each counted until the brokers acknowledge it.

Receives values with their table, gives them to librdkafka's idempotent producer, and keeps
what failed. Never sends a message a second time by itself: after a failure nothing more is
taken until `abort`, because rows behind a hole would arrive without those in it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Brokers
from relay.core.events import Failure
from relay.errors import ErrorPage, Fenced, Refused, RelayError, Unavailable
from relay.kafka.errors import FENCED, NOWHERE, TRANSPORT, classify, describe, timeout_refused
from relay.kafka.transaction_evidence import TransactionEvidence

CALL_SECONDS = 5.0  # one try of a transactional call; repeated until the timeout
QUEUE_FULL_SECONDS = 0.05  # poll this long for room
_LONGEST_SECONDS = 900.0  # of a transaction; brokers' default transaction.max.timeout.ms
_READ_FIRST = "find out which rows the topic holds before you write the rows again"
_AFTER_TIMEOUT = {*FENCED, KafkaError.INVALID_TXN_STATE}
"""What the coordinator answers where it has ended the transaction itself."""


class OpenTooLong(Unavailable):
    """The coordinator has probably ended the transaction: it was open for longer than it may be."""


class Delivery:
    """A producer of one topic.

    Args:
        kafka: how to reach the brokers.
        topic: to write.
        transactional_id: None for a producer without transactions.
        timeout_seconds: after which an unacknowledged message counts as failed, and, up to 900, a
            transaction may be open no longer.

    Raises (every method):
        Unavailable: the brokers did not answer in time, or have probably ended the transaction, as
            it was open for too long.
        Refused: they said no.
        Fenced: another producer runs under this transactional id.
    """

    def __init__(
        self, kafka: Brokers, topic: str, transactional_id: str | None, timeout_seconds: float
    ) -> None:
        self.topic = topic
        self.delivered: Counter[str] = Counter()
        """Rows acknowledged, by table."""
        self._kafka, self._timeout = kafka, timeout_seconds
        self._longest = math.inf  # seconds that a transaction may be open
        self._first_row_at: float | None = None  # of the open transaction
        self._failed: list[tuple[str, int, KafkaError]] = []
        self._fatal: tuple[KafkaError, float] | None = None  # of this client, and when
        client = kafka_clients.plain_producer(kafka)
        client["delivery.timeout.ms"] = round(timeout_seconds * 1000)
        if transactional_id is not None:
            self._longest = min(timeout_seconds, _LONGEST_SECONDS)
            client["transactional.id"] = transactional_id
            client["transaction.timeout.ms"] = round(self._longest * 1000)
        self._unknown = False  # whether the last commit went through
        self._evidence = TransactionEvidence(client)  # of how the last transaction ended
        self._client = client if transactional_id is None else self._evidence.config
        self._producer = self._connect()

    def _connect(self) -> Producer:
        self._evidence.forget()
        self._first_row_at = self._fatal = None
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

        if self._first_row_at is None:
            self._first_row_at = time.monotonic()
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
        except Unavailable as error:
            self._unknown = not isinstance(error, OpenTooLong)
            raise
        self._first_row_at = None

    def abort(self) -> None:
        """Abort; the messages in it are never seen, and failures among them forgiven."""
        with self._errors_of("abort_transaction"):
            self._producer.poll(0)  # what failed meanwhile
        if self._fatal is not None and (error := self._fatal[0]).code() in FENCED:
            # Another may hold the id by now, and a new client would fence it.
            raise self._mapped("abort_transaction", error)
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
        self._failed, self._first_row_at = [], None

    def call(self, name: str, call: Callable[[float], Any]) -> None:
        """Make a transactional call, again with the same arguments while librdkafka says so."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                call(CALL_SECONDS)
            except (KafkaException, SystemError) as error:
                cause = self._heard(error)
                if classify(cause) is None and time.monotonic() < deadline:
                    continue
                raise self._mapped(name, cause) from error
            return

    @contextlib.contextmanager
    def _errors_of(self, what: str) -> Iterator[None]:
        """Any call of a client may raise its fatal error."""
        try:
            yield
        except (KafkaException, SystemError) as error:
            raise self._mapped(what, self._heard(error)) from error

    def _open_seconds(self) -> float:
        """How long the transaction has had rows; its coordinator hears of it no earlier."""
        return 0.0 if self._first_row_at is None else time.monotonic() - self._first_row_at

    def _open_too_long(self, what: str, error: KafkaError, seconds: float) -> OpenTooLong:
        longer = self._longest < _LONGEST_SECONDS
        step = f"commit more often{', or raise delivery_timeout_seconds' if longer else ''}"
        again = _READ_FIRST if what == "commit_transaction" else "write its rows again"
        return OpenTooLong(
            f"{what}: {error.name()}: the transaction was open for {seconds:.0f} s of the "
            f"{self._longest:g} s that it may be, so the brokers have probably ended it",
            f"{step}; {again}, with a new producer",
            page=ErrorPage.PRODUCER,
        )

    def _heard(self, error: KafkaException | SystemError) -> KafkaError:
        """Return what a client raised; the binding (2.16) raises its fatal error only once.

        It is the cause of a SystemError where a line of the log comes right behind it.
        """
        raised = error.__cause__ if isinstance(error, SystemError) else error
        if not isinstance(raised, KafkaException):
            raise error
        found: KafkaError = raised.args[0]
        if found.fatal() and self._fatal is None:
            self._fatal = found, self._open_seconds()
        return found

    def _mapped(self, what: str, error: KafkaError) -> RelayError:
        # What fails after a fatal error, as each record does, fails of that.
        error, open_seconds = self._fatal or (error, self._open_seconds())
        failure = classify(error)
        text = describe(what, error)
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            text, asked_ms = f"{what}: {error.name()}", round(self._timeout * 1000)
            return timeout_refused(text, "delivery_timeout_seconds", asked_ms, self._kafka)
        if open_seconds > self._longest and error.code() in _AFTER_TIMEOUT:
            return self._open_too_long(what, error, open_seconds)
        if failure is Failure.FENCED:
            step = "give each running producer a transactional id of its own"
            return Fenced(text, step, page=ErrorPage.PRODUCER)
        if failure is Failure.ABORT:
            return Unavailable(text, "abort the transaction and write its rows again")
        if error.code() in TRANSPORT or error.retriable():
            unknown = what == "commit_transaction"
            return Unavailable(
                f"{text}; the outcome of the transaction is unknown" if unknown else text,
                _READ_FIRST if unknown else "check kafka.bootstrap and that the brokers are up",
            )
        return Refused(text, "see the broker's reason above: rights, topic, or message size")
