"""A consumer's messages in bulk, as they lie in librdkafka's memory.

Receives a consumer of the Python binding, gives its messages as columns of addresses. The binding
makes some objects for every message, which was most of what taking one in cost; librdkafka's own
functions and relay.intake.message_kernel do the same without one. Partitions, offsets, groups and
errors stay the binding's: here are only the queues of the partitions' messages
(rd_kafka_queue_forward).
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaError

from relay import names
from relay.intake.message_batch import Batch, Headers, TableHeaders
from relay.kafka import librdkafka

log = logging.getLogger(__name__)


class PolledError(NamedTuple):
    """An error that came in the place of a message; without a topic it is the group's."""

    error: KafkaError
    topic: str | None
    partition: int
    offset: int


class WhenFull:
    """A Bulk from the first full poll on: at low rates loading it costs more than it saves.

    What the consumer's own queue has by then is older than what the Bulk gets: whoever polls
    empties that queue first.
    """

    def __init__(self, consumer: Consumer, topic: str, tables: TableHeaders, most: int) -> None:
        self._make = partial(Bulk, consumer, topic, tables, most)
        self._bulk: Bulk | None = None
        self._partitions: Collection[int] = ()
        self._why_never = librdkafka.unsupported()
        if self._why_never:
            log.warning(
                "the relay copies messages one by one, at half the speed",
                extra={"why": self._why_never},
            )

    def own(self, partitions: Collection[int]) -> None:
        """Copy what the poll has, as Bulk.own does."""
        self._partitions = partitions
        if self._bulk is not None:
            self._bulk.own(partitions)

    def begin(self, *, full: bool) -> Bulk | None:
        """Begin a poll; `full`: the last one gave all that it may."""
        if self._bulk is None and full and not self._why_never:
            self._bulk = self._make()
            self._bulk.own(self._partitions)
        if self._bulk is not None:
            self._bulk.begin()
        return self._bulk

    def close(self) -> None:
        """Close it, as Bulk.close does."""
        if self._bulk is not None:
            self._bulk.close()


class Bulk:
    """The messages of a consumer's partitions; from now on only `poll` gives them.

    `most`: messages of one poll.
    """

    def __init__(self, consumer: Consumer, topic: str, tables: TableHeaders, most: int) -> None:
        from relay.intake import message_kernel  # noqa: PLC0415 - compiled code, 0.4 s of imports

        self._kernel = message_kernel
        self._consumer, self._topic, self._tables = consumer, topic, tables
        self._library = librdkafka.library()
        self._headers_of = librdkafka.address(self._library.rd_kafka_message_headers)
        self._header_at = librdkafka.address(self._library.rd_kafka_header_get_all)
        self._destroy = librdkafka.address(self._library.rd_kafka_message_destroy)
        self._handle = librdkafka.handle(consumer)
        self._queue = self._library.rd_kafka_queue_new(self._handle)
        self._partitions: dict[int, int] = {}
        self._owned: list[int] = []
        self._messages = np.zeros(most, np.uint64)
        self._count = 0
        self._room = np.zeros(8, np.uint64)

    def own(self, partitions: Collection[int]) -> None:
        """Get the messages of just these partitions; before the consumer is assigned them."""
        for partition in partitions:
            if partition not in self._partitions:
                self._partitions[partition] = self._library.rd_kafka_queue_get_partition(
                    self._handle, self._topic.encode(), partition
                )
        self._owned = [self._partitions[partition] for partition in partitions]
        self._forward()

    def _forward(self) -> None:
        """Forward the queues of the partitions to this one, with what they hold; before each poll.

        When an assignment ends, librdkafka's thread takes this back, perhaps only after the next
        one has begun. What is fetched then would stay in queues that nobody reads.
        """
        for queue in self._owned:
            self._library.rd_kafka_queue_forward(queue, self._queue)

    def begin(self) -> None:
        """Begin a poll of maybe several batches: give back what the last one got."""
        self._release()
        self._forward()

    def poll(self, most: int, seconds: float) -> tuple[Batch, list[PolledError], int]:
        """Poll up to `most` further messages; return good ones, errors, and their number in all."""
        first = self._count
        most = min(most, len(self._messages) - first)
        got = self._library.rd_kafka_consume_batch_queue(
            self._queue, int(seconds * 1000), self._messages[first:].ctypes.data, most
        )
        count = max(0, got)
        self._count += count
        return (*self._columns(first, count), count)

    def _release(self) -> None:
        """Give back all messages; their memory must not be read any more."""
        count, self._count = self._count, 0
        self._kernel.release(self._messages, count, self._destroy)

    def close(self) -> None:
        """Let go of messages and queues, before the consumer is closed."""
        self._release()
        for queue in self._partitions.values():
            self._library.rd_kafka_queue_forward(queue, None)
            self._library.rd_kafka_queue_destroy(queue)
        self._partitions, self._owned = {}, []
        if self._queue:
            self._library.rd_kafka_queue_destroy(self._queue)
            self._queue = None

    def _columns(self, first: int, count: int) -> tuple[Batch, list[PolledError]]:
        messages = self._messages[first : first + count]
        columns = np.empty((6, count), np.int64)
        numbers = np.empty(count, np.int64)
        self._kernel.look(
            messages, self._headers_of, self._header_at,
            *self._tables.names, self._room, columns, numbers,
        )  # fmt: skip
        failed = []
        if count and int(numbers.min()) < 0:
            failed = self._failures(messages, columns, numbers)
            good = numbers != self._kernel.FAILED
            messages, columns, numbers = messages[good], columns[:, good], numbers[good]
        headers = self._other_headers(messages, numbers)
        partitions, offsets, values, value_sizes, keys, key_sizes = columns
        batch = Batch(
            partitions,
            offsets,
            numbers,
            values,
            value_sizes,
            keys,
            key_sizes,
            headers,
            lambda at: int(self._library.rd_kafka_message_timestamp(int(messages[at]), None)),
            gather=self._kernel.gather,
        )
        return batch, failed

    def _other_headers(self, messages: Any, numbers: Any) -> dict[int, Headers]:
        """Headers of messages that have not just the one of a known table; fills `numbers`."""
        others = {}
        for index in np.flatnonzero(numbers < 0).tolist():
            headers = self._headers(int(messages[index]))
            numbers[index], plain = self._tables.number(headers)
            if not plain:
                others[index] = headers
        return others

    def _headers(self, message: int) -> Headers:
        headers, name, value = (ctypes.c_void_p() for _ in range(3))
        size = ctypes.c_size_t()
        if self._library.rd_kafka_message_headers(message, ctypes.byref(headers)):
            return []
        read: Headers = []
        into = [ctypes.byref(part) for part in (name, value, size)]
        while not self._library.rd_kafka_header_get_all(headers, len(read), *into):
            text = names.header_name(ctypes.string_at(name.value or 0))
            start = value.value
            read.append((text, None if start is None else ctypes.string_at(start, size.value)))
        return read

    def _failures(self, messages: Any, columns: Any, numbers: Any) -> list[PolledError]:
        errors = []
        for index in np.flatnonzero(numbers == self._kernel.FAILED).tolist():
            message = int(messages[index])
            code = ctypes.c_int32.from_address(message).value
            text = (self._library.rd_kafka_message_errstr(message) or b"").decode(errors="replace")
            partition, offset = columns[:2, index].tolist()
            errors.append(PolledError(KafkaError(code, text), self._topic, partition, offset))
        return errors
