"""Reads a block's chunks from its block topic and checks them against the journal.

Receives a Block, gives its rows as one record batch. One consumer per process, kept
over blocks, since a new one costs about a second; read_committed, at exactly the
block's offsets; commits nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from relay import chunks, kafka_settings
from relay.errors import Unavailable
from relay.failures import answered
from relay.reader import PartitionReader

if TYPE_CHECKING:
    import pyarrow as pa

    from relay.records_pb2 import Block
    from relay.settings import Kafka

READ_SECONDS = 30.0
"""For one block: 10 MB take well under a second; longer means a broker is away."""

_GONE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - how the library names its local errors
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
    }
)


class Damaged(Exception):
    """The chunks are gone, or are not what the journal says; trying again changes nothing."""


class Fetcher:
    """Reads blocks with one consumer."""

    def __init__(self, kafka: Kafka) -> None:
        self._consumer = PartitionReader(kafka_settings.reader(kafka))
        self._at: tuple[str, int, int] | None = None  # topic, partition, next offset

    def fetch(self, block: Block, ahead: Block | None = None) -> pa.RecordBatch:
        """The block's rows; the client reads on in the background, from block `ahead`.

        Raises:
            Damaged: chunks, rows or checksum differ from the journal, or are gone.
            Unavailable: Kafka did not deliver all chunks within READ_SECONDS.
            Refused: the brokers said no.
        """
        try:
            values = self._chunks(block)
            if ahead is not None:
                self._seek(ahead)
        except KafkaException as error:
            self._at = None
            cause = error.args[0]
            if cause.code() in _GONE:
                raise Damaged(f"{block.topic}[{block.partition}]: {cause.str()}") from error
            grant = f"grant Read on topic {block.topic} to the user of kafka.client"
            raise answered(f"read {block.topic}", cause, grant) from error
        except BaseException:
            self._at = None
            raise
        return check(block, values)

    def rest(self) -> None:
        """Reads nothing until the next fetch.

        At a partition's end the client would ask again every few milliseconds.
        """
        self._at = None
        self._consumer.unassign()

    def close(self) -> None:
        """Ends the consumer."""
        self._consumer.close()

    def _chunks(self, block: Block) -> list[bytes]:
        self._seek(block)
        values: list[bytes] = []
        deadline = time.monotonic() + READ_SECONDS
        while len(values) < block.chunks:
            message = self._consumer.poll(0.5)
            if message is None:
                if time.monotonic() > deadline:
                    self._explain(block, len(values))
                continue
            if message.topic() is not None and not _is_of(message, block):
                continue  # read ahead for a block that was not wanted then
            if (error := message.error()) is not None:
                if error.code() in _GONE or not error.retriable():
                    raise KafkaException(error)
                continue
            offset = message.offset() or 0
            if offset < block.first_offset:
                continue  # of an earlier block, in a read that goes on
            if offset >= block.next_offset:
                raise Damaged(f"{len(values)} of {block.chunks} chunks before offset {offset}")
            values.append(_value(message, block, len(values)))
            self._at = (block.topic, block.partition, offset + 1)
        return values

    def _seek(self, block: Block) -> None:
        """Goes on where the last block of the partition ended, if that is near; else assigns."""
        if self._at is not None and self._at[:2] == (block.topic, block.partition):
            ahead = block.first_offset - self._at[2]
            if 0 <= ahead <= 8:  # transaction markers and few chunks; all else is cheaper to skip
                return
        self._at = None
        self._consumer.assign([TopicPartition(block.topic, block.partition, block.first_offset)])
        self._at = (block.topic, block.partition, block.first_offset)

    def _explain(self, block: Block, found: int) -> None:
        where = TopicPartition(block.topic, block.partition)
        low, high = self._consumer.get_watermark_offsets(where, timeout=10.0)
        if low > block.first_offset or high < block.next_offset:
            raise Damaged(
                f"{block.topic}[{block.partition}] holds offsets {low} to {high}, the block is "
                f"at {block.first_offset} to {block.next_offset}: deleted, or the topic is new"
            )
        raise Unavailable(
            f"{found} of {block.chunks} chunks of {block.id} came within {READ_SECONDS:g} s"
        )


def _is_of(message: Message, block: Block) -> bool:
    return (message.topic(), message.partition()) == (block.topic, block.partition)


def _value(message: Message, block: Block, sequence: int) -> bytes:
    """The chunk's bytes, after its key and headers were checked."""
    headers = dict(message.headers() or [])
    key = message.key()
    if key != block.id.encode() or headers.get("seq") != str(sequence).encode():
        raise Damaged(
            f"{block.topic}[{block.partition}]@{message.offset()} is chunk {headers.get('seq')!r} "
            f"of {key!r}, not chunk {sequence} of {block.id}"
        )
    value = message.value()
    if value is None:
        raise Damaged(f"{block.topic}[{block.partition}]@{message.offset()} is empty")
    return bytes(value)


def check(block: Block, values: list[bytes]) -> pa.RecordBatch:
    """The chunks as one record batch.

    Raises:
        Damaged: checksum or rows differ from the journal.
    """
    found = chunks.crc32c(values)
    if found != block.crc32c:
        raise Damaged(f"CRC-32C of the chunks is {found:08x}, the journal says {block.crc32c:08x}")
    try:
        batch = chunks.decode(values)
    except ValueError as error:  # pyarrow's own errors derive from it
        raise Damaged(f"the chunks are no Arrow stream: {error}") from error
    if batch.num_rows != block.rows:
        raise Damaged(f"{batch.num_rows} rows in the chunks, the journal says {block.rows}")
    return batch
