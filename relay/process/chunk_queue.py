"""Chunks on their way to the client, many handed over at a time.

Receives what buffers became, gives records to a producer. Each record that comes alone wakes
librdkafka's thread, which then looks at every partition that it knows of: 3 ms of processor time
with 16,000 of them (1,000 tables, 16 partitions), for each of the 40 small chunks of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import TopicPartition

from relay.blocks import message_rows
from relay.blocks.form_block import Formed
from relay.core.state import Seal
from relay.kafka.record_limits import Header
from relay.kafka.transactional_producer import TransactionalProducer

HELD_BYTES = 1 << 20
"""Of values that are held: the client has room for many times more."""
_Record = tuple[TopicPartition, bytes, bytes, list[Header], "Callable[[int], None]"]


class ChunkQueue:
    """Hold the chunks of one transaction for a moment; whoever makes it releases it.

    Raises (every method): TransactionFailed, as TransactionalProducer.produce does, perhaps of a
    record before this one.
    """

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._held: list[_Record] = []
        self._bytes = 0

    def add(self, place: TopicPartition, seal: Seal, formed: Formed) -> list[int]:
        """Queue a block's own chunks; the list gets their offsets, by the producer's flush."""
        offsets: list[int] = []
        elsewhere = None if place.partition == seal.partition else seal.partition
        for sequence, (value, rows) in enumerate(formed.chunks):
            headers = _headers(sequence, rows, formed)
            if not sequence and formed.message_rows:
                headers.append((message_rows.header(elsewhere), formed.message_rows))
            self._add(place, value, seal, headers, offsets)
        return offsets

    def add_shared(
        self, place: TopicPartition, seals: Sequence[Seal], formed: Sequence[Formed]
    ) -> list[int]:
        """Queue the chunk that these share; the list gets its offset, as `add`'s."""
        offsets: list[int] = []
        first, (value, rows) = seals[0], formed[0].chunks[0]
        headers = _headers(0, rows, formed[0])
        for seal, block in zip(seals, formed, strict=True):
            headers.append((message_rows.header(seal.partition), block.message_rows))
        self._add(place, value, first, headers, offsets)
        return offsets

    def _add(
        self,
        place: TopicPartition,
        value: bytes,
        seal: Seal,
        headers: list[Header],
        offsets: list[int],
    ) -> None:
        self._held.append((place, value, seal.block_id.encode(), headers, offsets.append))
        self._bytes += len(value)
        if self._bytes >= HELD_BYTES:
            self.release()

    def release(self) -> None:
        """Hand over what is held."""
        records, self._held, self._bytes = self._held, [], 0
        for record in records:
            self._producer.produce(*record)


def _headers(sequence: int, rows: int, formed: Formed) -> list[Header]:
    return [
        ("seq", str(sequence).encode()),
        ("rows", str(rows).encode()),
        ("schema", str(formed.facts.schema_version).encode()),
    ]
