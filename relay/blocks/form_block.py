"""Turn a sealed buffer into a block's chunks and dead letters.

Receives the messages of one buffer and the table's codec, or why there is none; gives the chunks
to produce, the offsets of dead letters, and facts about both. No client, no clock: what it makes
depends on its input alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.arrow.array_memory import size_of
from relay.blocks import chunks
from relay.blocks.message_rows import HEADER_BYTES, MessageRows, encode
from relay.kafka.record_limits import CHUNK_ROOM, Oversized, oversized
from relay.rows.decode import Decoded, decode
from relay.rows.row_bound import RowBound
from relay.rows.row_codec import RowCodec
from relay.schema.dead_reason import DeadKind, DeadReason


class DeadMessage(NamedTuple):
    """A message that could not become rows: its source offset, and why; the buffer has the rest."""

    offset: int
    reason: DeadReason


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What a buffer became, without a byte of it: small enough to keep until the flush.

    Attributes:
        messages: source messages whose rows are in the chunks.
        row_bytes: of those messages' values.
        chunks: how many there are; 0 where no row was good.
        crc32c: of the chunks, in order.
        schema_version: of the row message that they were read by; 0 where there was none.
        unknown: messages by number of the field that they hold and the table never had.
        dead_groups: messages that could not become rows: the first of each group of reasons, in
            order, and how many they are. One by one, a million are half a gigabyte.
        first_row: of this buffer in the chunk that it shares; None where it shares none.
        decoded_bytes: of the rows as columns, without what texts and lists hold; with it where
            elements of lists are counted.
    """

    messages: int = 0
    rows: int = 0
    row_bytes: int = 0
    chunks: int = 0
    crc32c: int = 0
    schema_version: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)
    dead_groups: Mapping[DeadMessage, int] = field(default_factory=dict)
    first_row: int | None = None
    decoded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Formed:
    """What a buffer became.

    Attributes:
        chunks: value and rows of each chunk, in order. Buffers that were formed as one share a
            chunk, and have all the same one.
        dead: the messages that could not become rows, in order.
        message_rows: which row came from which message, as of relay.blocks.message_rows; empty
            where that does not fit into the first chunk's record.
        passed_over: whether a message has a value of a column that is gone, or one of those that
            it was formed with; it is in no chunk.
        left: how many of the buffer's last messages are neither: the block would be too large.
    """

    facts: BlockFacts
    chunks: Sequence[tuple[bytes, int]] = ()
    dead: Sequence[DeadMessage] = ()
    message_rows: bytes = b""
    passed_over: bool = False
    left: int = 0


class Messages(NamedTuple):
    """The messages of a buffer: their source offsets, ascending, and their values."""

    offsets: Sequence[int]
    values: pa.ChunkedArray[Any]

    def first(self, count: int) -> Messages:
        """Return so many of them."""
        return Messages(self.offsets[:count], self.values.slice(0, count))


def grouped(dead: Sequence[DeadMessage]) -> dict[DeadMessage, int]:
    """Return the first dead message of each group of reasons, in order, and how many they are."""
    firsts = {message.reason.group: message for message in reversed(dead)}
    counts = Counter(message.reason.group for message in dead)
    return {firsts[group]: count for group, count in counts.items()}


def refuse(buffer: Messages, reason: DeadReason) -> Formed:
    """Make every message of the buffer a dead letter: its table has no codec."""
    dead = [DeadMessage(offset, reason) for offset in buffer.offsets]
    return Formed(BlockFacts(dead_groups=grouped(dead)), dead=dead)


@dataclass(frozen=True, slots=True)
class BlockFormer:
    """What the buffers of one table are formed by; see relay.rows.decode.

    Attributes:
        most: that a record of the table's block topic may weigh, where that was learned.
        max_decoded: bytes that a block's rows may take as columns; None: any.
    """

    codec: RowCodec
    framing: str
    encoder: chunks.Encoder
    unknown_fields: str = "dead"
    most: int | None = None
    max_decoded: int | None = None

    def form_all(self, buffers: Sequence[Messages]) -> list[Formed]:
        """Form several buffers, as one where all their messages are good: they share a chunk then.

        What decoding costs beside its rows, about a millisecond, is most of it for a few rows, and
        what a record of its own costs relay, broker and loader is more.
        """
        if len(buffers) > 1:
            pieces = [piece for buffer in buffers for piece in buffer.values.chunks]
            values = pa.chunked_array(pieces, pa.binary())
            bound = self._bound(values)
            decoded = self._decode(values, bound)
            if not (decoded.bad or decoded.unknown or decoded.left):
                parts = decoded.parts([len(buffer.offsets) for buffer in buffers])
                return self._shared(buffers, decoded, parts) or [
                    self._formed(*both, bound) for both in zip(buffers, parts, strict=True)
                ]
        return [self.form(buffer) for buffer in buffers]

    def _shared(
        self, buffers: Sequence[Messages], decoded: Decoded, parts: Sequence[Decoded]
    ) -> list[Formed]:
        """Make one chunk of all rows; none where they need several, or it has no room for more."""
        encoded = self.encoder.encode(decoded.batch, self._room)
        listed = [_message_rows(*both) for both in zip(buffers, parts, strict=True)]
        of_lists = sum(len(rows_of) + HEADER_BYTES for rows_of in listed)
        if len(encoded) != 1 or not _fit(encoded, of_lists, self._room):
            return []
        crc32c = chunks.crc32c(value for value, _ in encoded)
        shared, first_row = [], 0
        for buffer, part, rows_of in zip(buffers, parts, listed, strict=True):
            facts = replace(
                self._facts(part, size_of(buffer.values), 1, crc32c), first_row=first_row
            )
            shared.append(Formed(facts, encoded, (), rows_of, decoded.passed_over))
            first_row += facts.rows
        return shared

    def _facts(self, decoded: Decoded, row_bytes: int, count: int, crc32c: int) -> BlockFacts:
        """What the good messages became: `count` chunks with this checksum."""
        return BlockFacts(
            messages=decoded.messages,
            rows=decoded.batch.num_rows,
            row_bytes=row_bytes,
            chunks=count,
            crc32c=crc32c,
            schema_version=self.codec.schema.version,
            unknown=decoded.unknown,
            decoded_bytes=self._columns_bytes(decoded.batch),
        )

    @property
    def _room(self) -> int | None:
        """Bytes that a chunk with the list of its messages may have; None: any."""
        return None if self.most is None else self.most - CHUNK_ROOM

    def form(self, buffer: Messages) -> Formed:
        """Decode a buffer; good messages become chunks, the others dead letters, whole.

        Where its rows are too many for a block, its first messages do.
        """
        bound = self._bound(buffer.values)
        decoded = self._decode(buffer.values, bound)
        taken = buffer.first(len(buffer.offsets) - decoded.left) if decoded.left else buffer
        return replace(self._formed(taken, decoded, bound), left=decoded.left)

    def _bound(self, values: pa.ChunkedArray[Any]) -> RowBound | None:
        most = self.max_decoded
        return None if most is None else RowBound(self.codec.row_bytes, most, size_of(values))

    def _columns_bytes(self, rows: pa.RecordBatch) -> int:
        """Return bytes of rows as columns; of lists whose elements are counted, all of them."""
        least = rows.num_rows * self.codec.row_bytes
        return max(least, rows.nbytes) if self.codec.counts_elements else least

    def _decode(self, values: pa.ChunkedArray[Any], bound: RowBound | None) -> Decoded:
        return decode(values, self.codec, self.framing, self.unknown_fields, bound)

    def _formed(
        self,
        buffer: Messages,
        decoded: Decoded,
        bound: RowBound | None,
        too_large: Sequence[DeadMessage] = (),
    ) -> Formed:
        """Form chunks of what was decoded; messages that were too large are left out already.

        `bound`: within which it was decoded, so that fewer of its rows are within it, too.
        """
        offsets, values, most = buffer.offsets, buffer.values, self.most
        encoded = self.encoder.encode(decoded.batch, self._room)
        if most is not None:
            rows_of = np.zeros(len(offsets), np.int64)
            rows_of[decoded.good] = decoded.rows
            if large := oversized(encoded, rows_of, most):
                rest = _others(buffer, large)
                left_out = [DeadMessage(offsets[row.message], _why(row, most)) for row in large]
                decoded = self._decode(rest.values, bound)
                return self._formed(rest, decoded, bound, [*too_large, *left_out])
        bad = (DeadMessage(offsets[message.index], message.reason) for message in decoded.bad)
        dead = sorted([*too_large, *bad])
        bad_bytes = sum(len(values[message.index].as_py() or b"") for message in decoded.bad)
        crc32c = chunks.crc32c(value for value, _ in encoded)
        facts = self._facts(decoded, size_of(values) - bad_bytes, len(encoded), crc32c)
        listed = _message_rows(buffer, decoded)
        if encoded and not _fit(encoded, len(listed), self._room):
            listed = b""
        facts = replace(facts, dead_groups=grouped(dead))
        return Formed(facts, encoded, dead, listed, decoded.passed_over)


def _message_rows(buffer: Messages, decoded: Decoded) -> bytes:
    """Which row came from which of the buffer's messages."""
    offsets = np.asarray(buffer.offsets, np.int64)[decoded.good]
    return encode(MessageRows(offsets, decoded.rows))


def _fit(encoded: list[tuple[bytes, int]], of_lists: int, room: int | None) -> bool:
    """Return whether the first chunk has room for lists of so many bytes."""
    return room is None or len(encoded[0][0]) + of_lists <= room


def _others(buffer: Messages, large: list[Oversized]) -> Messages:
    kept = np.ones(len(buffer.offsets), bool)
    kept[[row.message for row in large]] = False
    offsets = np.asarray(buffer.offsets, np.int64)[kept].tolist()
    return Messages(offsets, buffer.values.filter(pa.array(kept)))


def _why(one: Oversized, most: int) -> DeadReason:
    return DeadReason(
        DeadKind.ROW_TOO_LARGE,
        f"row {one.row}: the row alone needs a chunk of {one.bytes:,} bytes, and the table's "
        f"block topic accepts records of {most:,} bytes: raise its max.message.bytes",
    )
