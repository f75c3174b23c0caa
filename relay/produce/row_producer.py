"""Writes rows of a Python program into the source topic.

    with RowProducer.from_settings(settings) as producer:
        producer.write("shop.orders", {"id": 7, "placed": datetime.now(UTC)})

Receives rows as dicts or record batches, gives RowBatch messages with the header `table`.
A row is checked when it is handed over; what was accepted is delivered, or `flush`, `commit`
and `close` raise. A closed producer accepts nothing. Never writes a row twice: the producer is
idempotent (acks=all).
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from relay.errors import ConfigError, RelayError
from relay.kafka.counted_producer import Delivery
from relay.produce.codecs import Encoders, table_codecs
from relay.produce.gathering import Batching, Gathered, even_ends, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from relay.config.settings import Brokers, Settings
    from relay.produce.gathering import Integers
    from relay.rows.row_codec import RowCodec


class RowProducer:
    """Writes rows of many tables into one topic; may be used from several threads.

    Args:
        kafka: how to reach the brokers.
        topic: the source topic.
        codecs: table name to its codec, asked once per table; `table_codecs(settings)`.
        batching: of rows written one by one.
        transactional_id: makes the producer transactional; every write is then between
            `begin` and `commit` or `abort`, or inside `transaction()`.
        delivery_timeout_seconds: after which an unacknowledged message counts as failed. As long,
            and 900 s at most, may a transaction be open, from its first row on: then the brokers
            end it.

    Raises (every method):
        Unavailable: the brokers did not answer in time, or the transaction was open for too long.
        Refused: they said no.
        Fenced: another producer runs under this transactional id.
    """

    def __init__(
        self,
        kafka: Brokers,
        topic: str,
        codecs: Callable[[str], RowCodec],
        *,
        batching: Batching | None = None,
        transactional_id: str | None = None,
        delivery_timeout_seconds: float = 120.0,
    ) -> None:
        self._batching = batching or Batching()
        self._delivery = Delivery(kafka, topic, transactional_id, delivery_timeout_seconds)
        self._encoders = Encoders(codecs)
        self._gathered = Gathered(self._batching)
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._transactional = transactional_id is not None
        self._in_transaction = False
        self._problem: Exception | None = None
        self._closed = False
        self._timer = threading.Thread(target=self._send_aged, name="row-producer", daemon=True)
        self._timer.start()

    @classmethod
    def from_settings(cls, settings: Settings, **options: Any) -> Self:
        """Return a producer that writes to the app's source topic; `options` as of the class.

        Raises:
            ConfigError: the app's source is read as one bare row per message.
        """
        return cls(settings.source_kafka, settings.source.topic, table_codecs(settings), **options)

    def codec(self, table: str) -> RowCodec:
        """Return what the rows of a table are written with."""
        return self._encoders.of(table).codec

    def write(self, table: str, row: Mapping[str, object]) -> None:
        """Write one row, by column name. A column left out or None is null, or the DEFAULT.

        Dates and times may be datetime objects (without zone: UTC), those of pandas and numpy
        (NaT is None), ISO 8601 text or the integers of the wire; UUIDs may be uuid.UUID.

        Raises:
            ConfigError: an unknown column, or the producer is closed.
            BadValue: a value that does not fit; nothing of the row is kept.
        """
        data = self._encoders.of(table).encode(row)
        with self._lock:
            self._check()
            if not self._gathered:
                self._wake.notify()
            if self._gathered.add(table, data, time.monotonic()):
                self._send_gathered(table)

    def write_arrow(self, table: str, batch: pa.RecordBatch, ends: Integers | None = None) -> None:
        """Write the rows of a batch by column name, its values as those of a Parquet file.

        Args:
            table: database.table.
            batch: the rows.
            ends: where messages end, in rows from the first on, ascending up to the last row;
                default: `batching.rows` in each.

        Raises:
            ConfigError: an unknown column, other ends, or the producer is closed.
            BadValue: a value that does not fit; nothing of the batch is sent.
        """
        self.write_rows(table, self._encoders.encode_batch(table, batch), ends)

    def write_rows(self, table: str, rows: pa.BinaryArray, ends: Integers | None = None) -> int:
        """Write rows that are serialized with the table's codec already; they are not checked.

        Args:
            table: database.table.
            rows: one protobuf message each.
            ends: as of `write_arrow`.

        Returns:
            How many messages they became.

        Raises:
            ConfigError: other ends, or the producer is closed.
        """
        if ends is None:
            ends = even_ends(len(rows), self._batching.rows)
        _check_ends(ends, len(rows))
        with self._lock:
            self._check()
            self._send_gathered(table)
            return self._send(table, rows, ends)

    def delivered(self) -> dict[str, int]:
        """Return how many rows the brokers acknowledged, by table; also of aborted transactions."""
        return dict(self._delivery.delivered)

    def flush(self) -> None:
        """Wait until everything written is acknowledged.

        Raises:
            ConfigError: the producer is closed.
            Unavailable, Refused: something was not; it stays so for every later call, but for
                `abort`.
        """
        with self._lock:
            self._check()
            self._flush()

    def begin(self) -> None:
        """Begin a transaction."""
        with self._lock:
            self._check_open()
            if not self._transactional or self._in_transaction:
                raise ConfigError(
                    "begin() was called inside a transaction, or on a producer without a "
                    "transactional_id",
                    "give the producer a transactional_id; commit() or abort() first",
                )
            self._delivery.begin()
            self._in_transaction = True

    def commit(self) -> None:
        """Make everything written since `begin` visible, together.

        Raises:
            Unavailable: also where the outcome is unknown; the message says so.
        """
        with self._lock:
            self.flush()
            self._delivery.commit()
            self._in_transaction = False

    def abort(self) -> None:
        """Drop everything written since `begin`; deliveries that failed are forgiven.

        Of a closed producer nothing is left to drop.
        """
        with self._lock:
            if not self._closed:
                self._abort()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction; commit at the end, or abort if the body or the flush raises."""
        self.begin()
        try:
            yield
            self.flush()
        except BaseException:
            self.abort()
            raise
        self.commit()

    def close(self) -> None:
        """Flush and let go of the client; an open transaction is aborted.

        What other threads write meanwhile is refused.

        Raises:
            Unavailable, Refused: as `flush`.
        """
        # In one piece: a row accepted between the flush and the end would be sent by nobody.
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wake.notify()
            try:
                if self._in_transaction:
                    self._abort()
                elif not self._transactional:
                    self._check_delivery()
                    self._flush()
            finally:
                self._delivery.close()
        self._timer.join()

    def __enter__(self) -> Self:
        """The producer; `close` follows."""
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Close; a failure there is raised, or noted on the error that is on its way."""
        try:
            self.close()
        except RelayError as problem:
            if error is None:
                raise
            error.add_note(f"closing the producer failed too: {problem}")

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(
                "the producer is closed", "close it behind the last write, or make a new one"
            )

    def _check(self) -> None:
        self._check_open()
        if self._transactional and not self._in_transaction:
            raise ConfigError("a row was written outside a transaction", "call begin() first")
        self._check_delivery()

    def _check_delivery(self) -> None:
        if self._problem is not None:
            raise self._problem
        self._delivery.check()

    def _flush(self) -> None:
        for table in self._gathered.tables():
            self._send_gathered(table)
        self._delivery.flush()

    def _abort(self) -> None:
        self._gathered.clear()
        self._delivery.abort()
        self._problem = None
        self._in_transaction = False

    def _send_gathered(self, table: str) -> None:
        rows = self._gathered.take(table)
        self._send(table, rows, even_ends(len(rows), self._batching.rows))

    def _send(self, table: str, rows: pa.BinaryArray, ends: Integers) -> int:
        cut = messages(rows, ends, self._batching.bytes)
        for value, count in cut:
            self._delivery.send(table, value, count)
        return len(cut)

    def _send_aged(self) -> None:
        """In a thread of its own: rows of a quiet program do not wait for its next write."""
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                try:
                    for table in self._gathered.aged(now):
                        self._send_gathered(table)
                except Exception as problem:  # noqa: BLE001 - raised by the program's next call
                    self._problem = problem
                    self._gathered.clear()
                due = self._gathered.next_due()
                self._wake.wait(None if due is None else max(due - now, 0))


def _check_ends(ends: Integers, rows: int) -> None:
    """Refuse ends by which rows are in no message, or a message has no rows."""
    if np.any(np.diff(ends, prepend=0) < 1) or (ends[-1] if len(ends) else 0) != rows:
        raise ConfigError(
            f"ends of messages are {ends.tolist()}, of {rows} rows",
            "each is greater than the one before, and the last is the number of rows",
        )
