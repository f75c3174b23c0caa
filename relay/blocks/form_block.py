"""Turn a sealed buffer into a block's chunks and dead letters.

Receives the messages of one buffer and the table's codec, or why there is none; gives
the records to produce. No client, no clock: what it makes depends on its input alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.blocks import chunks
from relay.blocks.message_rows import MessageRows, encode
from relay.kafka.record_limits import CHUNK_ROOM, oversized
from relay.rows.arrow_buffers import size_of
from relay.rows.decode import decode
from relay.schema.dead_reason import DeadKind, DeadReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from relay.kafka.record_limits import Oversized
    from relay.rows.decode import Decoded
    from relay.rows.row_codec import RowCodec


class DeadMessage(NamedTuple):
    """A message that could not become rows: its source offset, its value as it came, and why."""

    offset: int
    value: bytes | None
    reason: DeadReason


@dataclass(frozen=True, slots=True)
class Formed:
    """What a buffer became.

    Attributes:
        chunks: value and rows of each chunk, in order; none where no row was good. Buffers that
            were formed as one share a chunk, and have all the same one.
        dead: the messages that could not become rows.
        messages: source messages whose rows are in the chunks.
        row_bytes: of those messages' values.
        unknown: messages by number of the field that they hold and the table never had.
        schema_version: of the row message that they were read by; 0 where there was none.
        message_rows: which row came from which message, as of relay.blocks.message_rows; empty
            where that does not fit into the first chunk's record.
        first_row: of this buffer in the chunk that it shares; None where it shares none.
    """

    chunks: list[tuple[bytes, int]]
    dead: list[DeadMessage]
    messages: int
    rows: int
    row_bytes: int
    unknown: dict[str, int] = field(default_factory=dict)
    schema_version: int = 0
    message_rows: bytes = b""
    first_row: int | None = None


class Messages(NamedTuple):
    """The messages of a buffer: their source offsets, ascending, and their values."""

    offsets: list[int]
    values: pa.ChunkedArray[Any]


def refuse(buffer: Messages, reason: DeadReason) -> Formed:
    """Make every message of the buffer a dead letter, whole: its table has no codec."""
    dead = [
        DeadMessage(offset, value.as_py(), reason)
        for offset, value in zip(buffer.offsets, buffer.values, strict=True)
    ]
    return Formed([], dead, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class BlockFormer:
    """What the buffers of one table are formed by.

    Attributes:
        codec: of the table.
        framing: as relay.rows.decode.
        encoder: of the table.
        unknown_fields: as relay.rows.decode.
        most: that a record of the table's block topic may weigh, where that was learned.
    """

    codec: RowCodec
    framing: str
    encoder: chunks.Encoder
    unknown_fields: str = "dead"
    most: int | None = None

    def form_all(self, buffers: Sequence[Messages]) -> list[Formed]:
        """Form several buffers, as one where all their messages are good: they share a chunk then.

        What decoding costs beside its rows, about a millisecond, is most of it for a few rows, and
        what a record of its own costs relay, broker and loader is more.
        """
        if len(buffers) > 1:
            pieces = [piece for one in buffers for piece in one.values.chunks]
            decoded = self._decode(pa.chunked_array(pieces, pa.binary()))
            if not (decoded.bad or decoded.unknown):
                parts = decoded.parts([len(one.offsets) for one in buffers])
                return self._shared(buffers, decoded, parts) or [
                    self._formed(*both) for both in zip(buffers, parts, strict=True)
                ]
        return [self.form(one) for one in buffers]

    def _shared(
        self, buffers: Sequence[Messages], decoded: Decoded, parts: Sequence[Decoded]
    ) -> list[Formed]:
        """Make one chunk of all rows; none where they need several, or it has no room for more."""
        room = None if self.most is None else self.most - CHUNK_ROOM
        encoded = self.encoder.encode(decoded.batch, room)
        listed = [
            encode(MessageRows(_array(one.offsets), part.rows))
            for one, part in zip(buffers, parts, strict=True)
        ]
        if len(encoded) != 1 or len(encoded[0][0]) + sum(map(len, listed)) > self._largest():
            return []
        shared, first_row = [], 0
        for one, part, rows_of in zip(buffers, parts, listed, strict=True):
            rows, size, version = (
                part.batch.num_rows,
                size_of(one.values),
                self.codec.schema.version,
            )
            of_one = Formed(encoded, [], part.messages, rows, size, {}, version, rows_of, first_row)
            shared.append(of_one)
            first_row += rows
        return shared

    def _largest(self) -> float:
        """Bytes that a chunk with the list of its messages may have."""
        return float("inf") if self.most is None else self.most - CHUNK_ROOM

    def form(self, buffer: Messages) -> Formed:
        """Decode a buffer; good messages become chunks, the others dead letters, whole."""
        return self._formed(buffer, self._decode(buffer.values))

    def _decode(self, values: pa.ChunkedArray[Any]) -> Decoded:
        return decode(values, self.codec, self.framing, self.unknown_fields)

    def _formed(self, buffer: Messages, decoded: Decoded) -> Formed:
        offsets, values, most = buffer.offsets, buffer.values, self.most
        dead = [
            DeadMessage(offsets[one.index], values[one.index].as_py(), one.reason)
            for one in decoded.bad
        ]
        bad_bytes = sum(len(one.value or b"") for one in dead)
        encoded = self.encoder.encode(decoded.batch, None if most is None else most - CHUNK_ROOM)
        if most is not None:
            rows_of = np.zeros(len(offsets), np.int64)
            rows_of[decoded.good] = decoded.rows
            if large := oversized(encoded, rows_of, most):
                rest = self.form(_others(buffer, large))
                rest.dead.extend(
                    DeadMessage(offsets[one.message], values[one.message].as_py(), _why(one, most))
                    for one in large
                )
                rest.dead.sort(key=attrgetter("offset"))
                return rest
        return Formed(
            encoded,
            dead,
            decoded.messages,
            decoded.batch.num_rows,
            size_of(values) - bad_bytes,
            decoded.unknown,
            self.codec.schema.version,
            _listed(offsets, decoded, encoded, most),
        )


def _listed(
    offsets: list[int], decoded: Decoded, encoded: list[tuple[bytes, int]], most: int | None
) -> bytes:
    """Which row came from which message, if there is room for it."""
    listed = encode(MessageRows(_array(offsets)[decoded.good], decoded.rows))
    fits = most is None or not encoded or len(encoded[0][0]) + len(listed) <= most - CHUNK_ROOM
    return listed if fits else b""


def _array(offsets: list[int]) -> npt.NDArray[np.int64]:
    """Return them as an array; consecutive ones need not be looked at one by one."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return np.arange(offsets[0], offsets[-1] + 1)
    return np.array(offsets, np.int64)


def _others(buffer: Messages, large: list[Oversized]) -> Messages:
    kept = np.ones(len(buffer.offsets), bool)
    kept[[one.message for one in large]] = False
    offsets = [buffer.offsets[at] for at in np.flatnonzero(kept)]
    return Messages(offsets, buffer.values.filter(pa.array(kept)))


def _why(one: Oversized, most: int) -> DeadReason:
    return DeadReason(
        DeadKind.ROW_TOO_LARGE,
        f"row {one.row}: the row alone needs a chunk of {one.bytes:,} bytes, and the table's "
        f"block topic accepts records of {most:,} bytes: raise its max.message.bytes",
    )
