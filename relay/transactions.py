"""The transactional producer: one call per method, errors answered as failures.

Receives records, gives what the brokers acknowledged. It never decides what to do about
an error: relay.failures classifies, relay.core.step decides.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from relay import journal
from relay.core.events import Failure
from relay.failures import TRANSPORT, classify, describe
from relay.watchdog import armed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

    from relay.core.records import CommittedOffset

SLICE_SECONDS = 5.0
"""One wait inside a call. Finite waits in a loop under our own deadline: an endless one was
found not to be capped by the transaction's time (Materialize #30508, librdkafka#5511)."""


class TransactionFailed(Exception):
    """A transactional call did not succeed.

    Args:
        kind: what to do about it.
        why: the call and the error, for people.
    """

    def __init__(self, kind: Failure, why: str) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why


class TransactionalProducer:
    """A librdkafka producer under one transactional id, replaced when its state is in doubt.

    Args:
        config: relay.kafka_settings.producer.
        deadline_seconds: for one call with its repetitions; then its outcome is unknown.

    Raises (every method): TransactionFailed.
    """

    def __init__(self, config: Mapping[str, Any], deadline_seconds: float) -> None:
        self._config = dict(config)
        self._deadline_seconds = deadline_seconds
        self._producer: Producer | None = None
        self._group: Any = None
        self._suspect = False
        self._fatal: KafkaError | None = None
        self._unacknowledged = 0
        self._lost: KafkaError | None = None

    def replace(self) -> None:
        """A new producer; init_transactions fences the old and ends what it left open."""
        self.close()
        self._suspect, self._fatal = False, None
        self._producer = Producer({**self._config, "error_cb": self._on_error})
        producer = self._producer
        self._call("init_transactions", lambda: producer.init_transactions(SLICE_SECONDS))

    def begin(self, group: Any) -> None:
        """Begin under the group metadata of now: a rebalance from then on aborts."""
        if self._fatal is not None:
            raise self._failed("producer", self._fatal)
        if self._suspect:  # heard of after the last commit's answer, which it may concern
            raise TransactionFailed(Failure.UNKNOWN, "transport error since the last transaction")
        self._unacknowledged, self._lost = 0, None
        self._group = group
        if self._group is None:
            raise TransactionFailed(Failure.ABORT, "the group does not know this member any more")
        self._call("begin_transaction", self._open().begin_transaction)

    def produce(
        self,
        place: TopicPartition,
        value: bytes | None,
        key: bytes,
        headers: list[tuple[str, str | bytes | None]],
        acknowledged: Callable[[int], None],
    ) -> None:
        """Queue one record; `acknowledged` gets its offset, by the end of `flush`."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._lost = error
            else:
                self._unacknowledged -= 1
                acknowledged(message.offset() or 0)

        producer = self._open()
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            try:
                producer.produce(
                    place.topic, value, key, place.partition, on_delivery, headers=headers
                )
            except BufferError:  # the queue is full: the broker is slow, so wait for it
                if time.monotonic() > deadline:
                    raise TransactionFailed(Failure.UNKNOWN, "produce: queue stays full") from None
                producer.poll(0.1)
            except KafkaException as error:
                raise self._failed("produce", error.args[0]) from error
            else:
                self._unacknowledged += 1
                return

    def flush(self) -> None:
        """Wait until every record is acknowledged: a commit counts on it, and we count too."""
        producer = self._open()
        deadline = time.monotonic() + self._deadline_seconds
        while len(producer) and self._lost is None:
            if time.monotonic() > deadline:
                raise TransactionFailed(
                    Failure.UNKNOWN, f"flush: {len(producer)} records unacknowledged"
                )
            self._call("flush", lambda: producer.flush(SLICE_SECONDS))
        if self._lost is not None:
            raise self._failed("delivery", self._lost)
        if self._unacknowledged:
            raise TransactionFailed(
                Failure.ABORT, f"{self._unacknowledged} records were never acknowledged"
            )

    def send_offsets(self, topic: str, offsets: Mapping[int, CommittedOffset]) -> None:
        """Floors into the transaction, under the metadata taken at begin."""
        places = [
            TopicPartition(topic, index, offset.floor, journal.metadata(offset))
            for index, offset in offsets.items()
        ]
        producer, group = self._open(), self._group
        self._call(
            "send_offsets_to_transaction",
            lambda: producer.send_offsets_to_transaction(places, group, SLICE_SECONDS),
        )

    def commit(self) -> bool:
        """Commit; False where it succeeded amid transport errors or timeouts."""
        producer = self._open()
        self._call("commit_transaction", lambda: producer.commit_transaction(SLICE_SECONDS))
        producer.poll(0)  # serves error_cb, which may have something to say about this commit
        return not self._suspect

    def abort(self) -> None:
        """End the transaction without effect.

        The records in flight are waited for first: an abort while AddPartitionsToTxn is under
        way can be fatal (librdkafka#4849). What cannot be delivered is purged by the abort.
        """
        producer = self._open()
        self._call("flush", lambda: producer.flush(SLICE_SECONDS))
        self._call("abort_transaction", lambda: producer.abort_transaction(SLICE_SECONDS))
        if self._suspect:
            raise TransactionFailed(
                Failure.UNKNOWN, "transport error inside an aborted transaction"
            )
        if self._lost is not None:
            # librdkafka would purge the next transaction's records as well (seen with
            # MSG_SIZE_TOO_LARGE), so this producer is of no more use.
            raise TransactionFailed(Failure.UNKNOWN, describe("delivery", self._lost))

    def close(self) -> None:
        """Let go of the producer; what it left open is ended by its successor or by timeout.

        `Producer.close` would abort an open transaction first, without a time limit, and raise
        where it is fenced: after an unknown outcome only init_transactions of a new epoch may
        end it. Dropping the last reference destroys the client and sends nothing.
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _open(self) -> Producer:
        if self._producer is None:
            raise TransactionFailed(Failure.UNKNOWN, "there is no producer yet")
        return self._producer

    def _call(self, name: str, call: Callable[[], Any]) -> None:
        """Call, and again with the same arguments while that is what the error asks for."""
        deadline = time.monotonic() + self._deadline_seconds
        with armed(2 * self._deadline_seconds):
            while True:
                try:
                    call()
                except KafkaException as error:
                    cause = error.args[0]
                    self._suspect |= cause.code() in TRANSPORT
                    if classify(cause) is not None:
                        raise self._failed(name, cause) from error
                    if time.monotonic() > deadline:
                        raise TransactionFailed(
                            Failure.UNKNOWN, f"{describe(name, cause)}, for too long"
                        ) from error
                except SystemError as error:
                    raise self._after_lost_exception(name) from error
                else:
                    return

    def _after_lost_exception(self, name: str) -> TransactionFailed:
        """What a call failed of whose exception the binding lost.

        confluent-kafka 2.16 sets the exception of a fatal error, then runs delivery callbacks,
        and ends in a SystemError without it. A fatal producer answers every transactional call
        with its fatal error; one that is not fatal may as well abort what failed.
        """
        try:
            self._open().abort_transaction(SLICE_SECONDS)
        except KafkaException as error:
            return self._failed(name, error.args[0])
        return TransactionFailed(Failure.UNKNOWN, f"{name}: failed without saying why")

    def _failed(self, name: str, cause: KafkaError) -> TransactionFailed:
        if self._fatal is not None:
            cause = self._fatal  # a record's own error does not say that the producer is fenced
        kind = classify(cause)
        if kind is None:  # retriable, but not by this caller: a record that was not delivered
            kind = Failure.ABORT
        return TransactionFailed(kind, describe(name, cause))

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka retries a lost EndTxn silently; this is where we hear of it."""
        self._suspect |= error.code() in TRANSPORT
        if error.fatal():
            self._fatal = error
