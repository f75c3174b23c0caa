"""The transactional producer: one call per method, errors answered as failures.

Receives records, gives what the brokers acknowledged. It never decides what to do about
an error: relay.kafka.errors classifies, relay.core.step decides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from relay.core.events import Failure
from relay.core.offsets import Epochs, Offsets
from relay.kafka import group_offsets
from relay.kafka.connection_errors import CREDENTIALS
from relay.kafka.errors import (
    NOWHERE,
    OF_TOPIC,
    TOO_LARGE,
    TRANSPORT,
    Lost,
    TransactionFailed,
    classify,
    describe,
    drop_frames,
    root_cause,
)
from relay.kafka.hang_guard import armed, call_within
from relay.kafka.partition_ends import LeastInSync, Place, dark_places, dark_text, listed_places
from relay.kafka.reconnect import Renewal
from relay.kafka.record_limits import RecordLimits, SentTogether, record_bytes
from relay.kafka.transaction_evidence import TransactionEvidence

SLICE_SECONDS = 5.0
"""One wait inside a call. Finite waits in a loop under our own deadline: an endless one was
found not to be capped by the transaction's time (Materialize #30508, librdkafka#5511)."""
HANGING_SECONDS = 30.0
"""A call that takes so much longer than it was told to will not return."""
QUEUE_FULL_SECONDS = 0.1
"""One wait for room in librdkafka's queue."""
BATCH_BYTES = 1_000_000  # librdkafka's default of batch.size


class TransactionalProducer:
    """A librdkafka producer under one transactional id, replaced when its state is in doubt.

    Args:
        deadline_seconds: for one call with its repetitions; then its outcome is unknown.
        group: the consumer group whose offsets it sends; for messages to people.
        least_in_sync: of topics; where it gives none, only a missing leader makes one dark.
        limits: what topics take, as refusals taught; each producer learns more of it.

    Raises (every method): TransactionFailed.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        deadline_seconds: float,
        group: str,
        least_in_sync: LeastInSync = lambda _: {},
        limits: RecordLimits | None = None,
    ) -> None:
        self._evidence = TransactionEvidence(config)
        self._config = self._evidence.config
        self._renewal = Renewal(config)
        self._deadline_seconds = deadline_seconds
        self._group_id = group
        self._least_in_sync = least_in_sync
        self._limits = limits or RecordLimits()
        self._batch_bytes = int(self._config.get("batch.size", BATCH_BYTES))
        self._producer: Producer | None = None
        self._group: Any = None
        self._fatal: KafkaError | None = None
        self._unacknowledged = Counter[Place]()
        self._lost: KafkaError | None = None
        self._lost_places: set[Place] = set()
        self._refused: list[Lost] = []
        self._together: dict[Place, SentTogether] = {}

    def replace(self, *, waits: bool = True) -> None:
        """Make a new producer; init_transactions fences the old and ends what it left open.

        Args:
            waits: whether, for as long as for any call, for the end of a transaction that is
                decided: a partition in it may take no record now that says so. Else it raises, with
                CONCURRENT_TRANSACTIONS.
        """
        self.close()
        self._fatal = None
        self._evidence.forget()
        config = {**self._config, **self._renewal.current()}
        self._producer = Producer({**config, "error_cb": self._on_error})
        producer = self._producer
        name = f"init_transactions of {self._config['transactional.id']}"
        final = None if waits else KafkaError.CONCURRENT_TRANSACTIONS
        self._call(name, lambda: producer.init_transactions(SLICE_SECONDS), final)

    def begin(self, group: Any) -> None:
        """Begin under the group metadata of now: a rebalance from then on aborts."""
        if self._evidence.doubt:
            raise _unknown(
                f"the outcome of the last transaction is in doubt: {self._evidence.doubt}"
            )
        self._unacknowledged, self._lost, self._lost_places = Counter(), None, set()
        self._refused, self._together = [], {}
        self._group = group
        if self._group is None:
            raise TransactionFailed(Failure.ABORT, "the group no longer knows this member")
        self.serve()
        if self._fatal is not None:
            raise self._failed("producer", self._fatal)
        self._evidence.begun()
        self._call("begin_transaction", self._open().begin_transaction)

    def produce(
        self,
        place: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, str | bytes | None]],
        acknowledged: Callable[[int], None],
    ) -> None:
        """Queue one record; `acknowledged` gets its offset, by the end of `flush`.

        To a topic that has refused a batch as too large fewer records go together from then on: the
        answer did not tell whether one of them is.
        """
        size = record_bytes(value, key, headers)
        together = self._with((place.topic, place.partition), size)
        on_delivery = self._on_delivery(place, size, acknowledged, together)
        producer = self._open()
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            try:
                with suppress(BufferError):  # the queue is full: the broker is slow, so wait for it
                    producer.produce(
                        place.topic, value, key, place.partition, on_delivery, headers=headers
                    )
                    self._unacknowledged[place.topic, place.partition] += 1
                    break
            except KafkaException as error:
                cause = drop_frames(error).args[0]
                if cause.code() in TOO_LARGE:  # the client's own limit
                    self._refused.append(Lost(place.topic, size, cause))
                known = cause.code() != KafkaError._UNKNOWN_PARTITION  # noqa: SLF001
                if known or time.monotonic() > deadline:
                    raise self._failed(f"produce to {place.topic}", cause) from error
                self._look_again()
            if time.monotonic() > deadline:
                raise _silent("produce: the client's queue stays full", self._dark())
            self.serve(QUEUE_FULL_SECONDS)

    def _with(self, where: Place, size: int) -> SentTogether:
        """Return the records that one of this size may share a batch with; it counts as one.

        Those before it are waited for where all of them together might be refused.
        """
        if where in self._together and not self._together[where].has_room(size):
            self.flush()
        if where not in self._together:
            self._together[where] = SentTogether(self._limits.together(where[0]))
        self._together[where].add(size)
        return self._together[where]

    def _on_delivery(
        self,
        place: TopicPartition,
        size: int,
        acknowledged: Callable[[int], None],
        together: SentTogether,
    ) -> Callable[[KafkaError | None, Message], None]:
        """Return what takes the report about a record, which was sent together with these."""
        where = (place.topic, place.partition)
        # Of this transaction, however late the report comes.
        refused, unacknowledged = self._refused, self._unacknowledged

        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._lost = error or NOWHERE
                if self._lost.code() in TOO_LARGE | OF_TOPIC:
                    # The client puts nothing beside a record of batch.size.
                    alone = together.records == 1 or size >= self._batch_bytes
                    refused.append(Lost(place.topic, size, self._lost, alone))
                    if self._lost.code() in TOO_LARGE and not alone:
                        self._limits.part(place.topic, together.most or self._batch_bytes)
                self._lost_places.add(where)
            else:
                unacknowledged[where] -= 1
                acknowledged(offset)

        return report

    def _look_again(self) -> None:
        """Refresh the client's number of partitions of all topics: where one grew, others did."""
        with suppress(KafkaException):  # asked again, until the record's deadline
            self._open().list_topics(timeout=SLICE_SECONDS)

    def flush(self) -> None:
        """Wait until every record is acknowledged: a commit counts on it, and we count too."""
        producer = self._open()
        deadline = time.monotonic() + self._deadline_seconds
        while len(producer) and self._lost is None:
            if time.monotonic() > deadline:
                left = self._unacknowledged.total()
                raise _silent(f"flush: {left} records were not acknowledged", self._dark())
            self._call("flush", lambda: producer.flush(SLICE_SECONDS))
            # By now somebody would take it who may: to wait on brings nothing.
            if len(producer) and self._lost is None and (dark := self._dark()):
                raise _silent("flush", dark)
        if self._lost is not None:
            raise self._failed(f"delivery to {listed_places(self._lost_places)}", self._lost)
        if left := self._unacknowledged.total():
            raise TransactionFailed(Failure.ABORT, f"{left} records were never acknowledged")
        self._together = {}

    def _dark(self) -> frozenset[Place]:
        """Return partitions that have not acknowledged all, and that take no records now."""
        unacknowledged = [place for place, count in self._unacknowledged.items() if count]
        with suppress(KafkaException):  # then nothing is known of any partition
            return dark_places(self._open(), unacknowledged, SLICE_SECONDS, self._least_in_sync)
        return frozenset()

    def send_offsets(
        self, topic: str, offsets: Offsets, group: Any = None, epochs: Epochs | None = None
    ) -> None:
        """Send floors, with leader epochs where known, under begin's or this `group`."""
        places = group_offsets.places(topic, offsets, epochs or {})
        producer, group = self._open(), self._group if group is None else group
        # With the group's coordinator gone it ignores its own timeout (librdkafka#5511): where
        # three searches within 0.3 s find none, it never returns, so twice its time is enough.
        limit = min(2 * SLICE_SECONDS, self._deadline_seconds)
        call = partial(producer.send_offsets_to_transaction, places, group, SLICE_SECONDS)
        name = f"send_offsets_to_transaction for group {self._group_id} and topic {topic}"
        self._call(name, lambda: call_within(limit, call))

    def commit(self) -> bool:
        """Commit; False where it succeeded amid transport errors or timeouts.

        Then a request may have been sent twice, and its copy could end a later transaction.
        """
        producer = self._open()
        self._call("commit_transaction", lambda: producer.commit_transaction(SLICE_SECONDS))
        self.serve()
        return not self._evidence.doubt

    def abort(self) -> None:
        """End the transaction without effect.

        The records in flight are waited for first: an abort while AddPartitionsToTxn is under
        way can be fatal (librdkafka#4849). What cannot be delivered is purged by the abort.
        """
        if not self._evidence.doubt:
            return  # nothing was begun
        producer = self._open()
        self._call("flush", lambda: producer.flush(SLICE_SECONDS))
        self._call("abort_transaction", lambda: producer.abort_transaction(SLICE_SECONDS))
        self.serve()
        if self._evidence.doubt:
            raise _unknown(f"the outcome of the abort is in doubt: {self._evidence.doubt}")
        if self._lost is not None:
            # librdkafka would purge the next transaction's records as well (seen with
            # MSG_SIZE_TOO_LARGE), so this producer is of no more use.
            raise _silent(describe("delivery", self._lost), self._dark())

    def serve(self, wait_seconds: float = 0.0) -> None:
        """Hear what librdkafka has to say; unheard, its lines would pile up in memory."""
        try:
            self._renewal.look(self._open())
            self._open().poll(wait_seconds)
        except KafkaException as error:  # a fatal one: the next call answers with it
            self._fatal = drop_frames(error).args[0]

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
            raise _unknown("there is no producer yet")
        return self._producer

    def _call(self, name: str, call: Callable[[], Any], final: int | None = None) -> None:
        """Call, and again with the same arguments while that is what the error asks for.

        `final`: code of an error that is passed on at once, though it asks for that.
        """
        deadline = time.monotonic() + self._deadline_seconds
        with armed(self._deadline_seconds + HANGING_SECONDS):
            while True:
                try:
                    call()
                except KafkaException as error:
                    cause = drop_frames(error).args[0]
                    if cause.code() in TRANSPORT:
                        self._evidence.suspect(describe(name, cause))
                    self.serve()  # error_cb gets wrong credentials; calls only time out
                    if classify(cause) is not None or self._fatal is not None:
                        raise self._failed(name, cause) from error
                    if time.monotonic() > deadline or cause.code() == final:
                        why = f"{describe(name, cause)}, for too long"
                        raise TransactionFailed(Failure.UNKNOWN, why, cause.code()) from error
                except TimeoutError as error:
                    raise _unknown(f"{name}: {error}") from error
                except SystemError as error:  # the binding (2.16) lost a fatal error's exception
                    drop_frames(error)
                    unsaid = KafkaError(KafkaError._STATE, "the client library gave no reason")  # noqa: SLF001
                    raise self._failed(name, unsaid) from error
                else:
                    return

    def _failed(self, name: str, cause: KafkaError) -> TransactionFailed:
        # A record's own error does not say that the producer is fenced, nor what purged it.
        cause = root_cause(cause, self._open()) if self._fatal is None else self._fatal
        kind = classify(cause)
        if kind is None:  # retriable, but not by this caller: a record that was not delivered
            kind = Failure.ABORT
        if kind is Failure.REFUSED and cause.code() in TOO_LARGE | OF_TOPIC and not self._refused:
            with suppress(KafkaException):  # which record it was, its report says
                self._open().flush(SLICE_SECONDS)
        dark = self._dark() if cause.code() in TRANSPORT else frozenset[Place]()
        why, lost = _with_dark(describe(name, cause), dark), tuple(self._refused)
        return TransactionFailed(kind, why, cause.code(), lost, dark)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in CREDENTIALS:
            self._fatal = error


def _with_dark(what: str, dark: Collection[Place]) -> str:
    return f"{what}; {dark_text(dark)}" if dark else what


def _silent(what: str, dark: frozenset[Place]) -> TransactionFailed:
    """Records are not acknowledged."""
    return TransactionFailed(Failure.UNKNOWN, _with_dark(what, dark), dark=dark)


def _unknown(why: str) -> TransactionFailed:
    return TransactionFailed(Failure.UNKNOWN, why)
