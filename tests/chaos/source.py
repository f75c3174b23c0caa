"""Fills the source topic with numbered rows of several tables, and keeps what became of them.

Receives a rate and a seed, gives messages in batches and in transactions, a third of which
are aborted on purpose, and the list of what was committed, aborted, or of unknown outcome. It
runs in a thread of its own through every fault of the brokers.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from relay.kafka.errors import TRANSPORT
from tests.chaos import rows
from tests.chaos.rows import TABLES, Range
from tests.chaos.truth import ABORTED, COMMITTED, UNKNOWN, Truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.truth import Shape

SLICE_SECONDS = 2.0
SUSPICIOUS_SECONDS = 1.0
_CALLS = 30
"""Slices until a call is given up and its outcome called unknown."""


class Source(threading.Thread):
    """The producers; begins paused."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, seed: int, shape: Shape
    ) -> None:
        super().__init__(name="source", daemon=True)
        self._brokers, self._topic = bootstrap, topic
        self._partitions = self._grown = partitions
        self._shape = shape
        self._chance = random.Random(f"source {seed}")
        self._next: Counter[tuple[int, int]] = Counter()
        self._go, self._idle, self._end = threading.Event(), threading.Event(), threading.Event()
        self._suspect = False
        self._plain: Producer | None = None
        self._transactional: Producer | None = None
        self.truth = Truth()
        self.error: BaseException | None = None

    def resume(self) -> None:
        self._idle.clear()
        self._go.set()

    def pause(self, seconds: float = 120.0) -> None:
        """No further batch; the one under way has ended when this returns.

        Raises:
            AssertionError: it did not end in time, or the thread died.
        """
        self._go.clear()
        ended = self._idle.wait(seconds)
        if self.error is not None:
            raise AssertionError(f"the source failed: {self.error!r}") from self.error
        assert ended, f"the source did not end its batch within {seconds:g} s"

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions now: the next batch goes into the new ones too."""
        self._grown = partitions

    def finish(self) -> None:
        self._end.set()
        self._go.set()
        self.join(120)

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - pause() raises it where it is seen
            self.error = error
        finally:
            self._idle.set()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            if not self._go.is_set():
                self._idle.set()
                self._go.wait()
                due = time.monotonic()
            if self._end.is_set():
                return
            count = self._batch()
            if self._shape.rows_per_second:
                due = max(due + count / self._shape.rows_per_second, time.monotonic() - 1)
                self._end.wait(max(0.0, due - time.monotonic()))

    def close_partitions(self) -> dict[int, int]:
        """One last row in each partition, as the paused source's owner; their offsets."""
        assert self._idle.is_set(), "pause the source first"
        self._take_up()
        ends: dict[int, int] = {}
        for partition in range(self._partitions):
            while partition not in ends:
                row = self._take(0, partition, 1)
                ended = self._send_plain([(row, rows.PLAIN)])
                if ended[0] is not None:
                    ends[partition] = ended[0]
        return ends

    def _batch(self) -> int:
        """A batch of random messages; how many rows."""
        self._take_up()
        chance, shape = self._chance, self._shape
        transactional = chance.random() < shape.transactional
        abort = transactional and chance.random() < shape.aborted
        meant = (rows.ABORT if abort else rows.COMMIT) if transactional else rows.PLAIN
        batch = []
        for _ in range(chance.randint(1, shape.messages)):
            table = chance.choices(range(len(TABLES)), [t.weight for t in TABLES])[0]
            partition = chance.randrange(self._partitions)
            bad = chance.random() < shape.bad
            # As many large messages as small ones.
            count = 1 if bad else round(shape.rows ** chance.random())
            batch.append((self._take(table, partition, count), rows.BAD if bad else meant))
        if transactional:
            outcome = self._send_transaction(batch, commit=not abort)
            self.truth.told += [(r, m, outcome) for r, m in batch]
            self.truth.transactions[outcome] += 1
        else:
            self._send_plain(batch)
        return sum(r.count for r, _ in batch)

    def _take_up(self) -> None:
        """New producers where the topic has grown: the old ones know its partitions of before."""
        if self._grown != self._partitions:
            self._partitions, self._plain = self._grown, None
            if self._transactional is not None:
                self._drop()

    def _take(self, table: int, partition: int, count: int) -> Range:
        first = self._next[table, partition]
        self._next[table, partition] += count
        return Range(table, partition, first, count)

    def _send_plain(self, batch: list[tuple[Range, str]]) -> list[int | None]:
        """Messages outside transactions; offsets, None where the outcome is unknown."""
        if self._plain is None:
            self._plain = Producer({**self._config(), "enable.idempotence": True})
        ends: list[int | None] = [None] * len(batch)

        def delivered(index: int) -> Callable[[Any, Any], None]:
            def report(error: KafkaError | None, message: Any) -> None:
                ends[index] = None if error is not None else message.offset()

            return report

        for index, (row, meant) in enumerate(batch):
            self._produce(self._plain, row, meant, delivered(index))
        for _ in range(_CALLS):
            if self._plain.flush(SLICE_SECONDS) == 0:
                break
        if None in ends:  # what is still under way must not arrive behind later rows
            self._plain.purge()
            self._plain = None
            self.truth.replaced += 1
        self.truth.told += [
            (row, meant, UNKNOWN if end is None else COMMITTED)
            for (row, meant), end in zip(batch, ends, strict=True)
        ]
        return ends

    def _send_transaction(self, batch: list[tuple[Range, str]], *, commit: bool) -> str:
        producer = self._ready()
        if producer is None:
            return ABORTED  # was never begun
        asked = False
        try:
            producer.begin_transaction()
            for row, meant in batch:
                self._produce(producer, row, meant, None)
            # What the broker never saw would make the abort an easy one.
            self._called(lambda: producer.flush(SLICE_SECONDS))
            if commit:
                asked = True
                self._called(lambda: producer.commit_transaction(SLICE_SECONDS))
            else:
                self._called(lambda: producer.abort_transaction(SLICE_SECONDS))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return self._aborted(producer)
            self._drop()
            return UNKNOWN if asked else ABORTED
        if self._suspect:  # as the relay: a copy of EndTxn may still be under way
            self._drop()
        return COMMITTED if commit else ABORTED

    def _ready(self) -> Producer | None:
        """The transactional producer, made anew where it was dropped; None: not possible now."""
        if self._transactional is None:
            self._suspect = False
            producer = Producer(
                {
                    **self._config(),
                    "transactional.id": f"{self._topic}.writer",
                    "transaction.timeout.ms": 20_000,
                    "error_cb": self._on_error,
                }
            )
            try:
                self._called(lambda: producer.init_transactions(SLICE_SECONDS))
            except KafkaException:
                self.truth.replaced += 1
                return None
            self._transactional = producer
        return self._transactional

    def _aborted(self, producer: Producer) -> str:
        try:
            self._called(lambda: producer.abort_transaction(SLICE_SECONDS))
        except KafkaException:
            self._drop()  # its successor's init_transactions ends it
        return ABORTED

    def _called(self, call: Callable[[], Any]) -> None:
        """The same call again while that is what its error asks for."""
        begun = time.monotonic()
        for attempt in range(_CALLS):
            try:
                call()
            except KafkaException as error:
                cause = error.args[0]
                self._suspect |= cause.code() in TRANSPORT
                if not cause.retriable() or cause.txn_requires_abort() or attempt == _CALLS - 1:
                    raise
            else:
                # librdkafka repeats what was lost without a word; only the time tells.
                self._suspect |= time.monotonic() - begun > SUSPICIOUS_SECONDS
                return

    def _drop(self) -> None:
        assert self._transactional is not None
        self._transactional.purge()
        self._transactional = None
        self.truth.replaced += 1

    def _produce(self, producer: Producer, row: Range, meant: str, report: Any) -> None:
        value = rows.bad_message(row) if meant == rows.BAD else rows.message(row)
        headers: list[tuple[str, str | bytes | None]] = [
            ("table", f"chaos.{TABLES[row.table].name}".encode()),
            (rows.HEADER, row.header(meant)),
        ]
        producer.produce(
            self._topic, value, partition=row.partition, headers=headers, on_delivery=report
        )

    def _config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._brokers, "linger.ms": 2, "log_level": 0}

    def _on_error(self, error: KafkaError) -> None:
        self._suspect |= error.code() in TRANSPORT
