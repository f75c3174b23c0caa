"""Turn a sealed buffer into a block's chunks and dead letters.

Receives the messages of one buffer and the table's codec (or why there is none); gives
the records to produce. No client, no clock: what it makes depends on its input alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from relay import chunks
from relay.decode import decode
from relay.texts import size_of

if TYPE_CHECKING:
    from relay.rowmessage import RowCodec


DeadMessage = tuple[int, bytes | None, str]
"""Source offset, value as it came, and why it could not become rows."""


@dataclass(frozen=True, slots=True)
class Formed:
    """What a buffer became.

    Attributes:
        chunks: value and rows of each chunk, in order; none where no row was good.
        dead: the messages that could not become rows.
        messages: source messages whose rows are in the chunks.
        row_bytes: of those messages' values.
        unknown: messages by number of the field that they hold and the table never had.
        schema_version: of the row message that they were read by; 0 where there was none.
    """

    chunks: list[tuple[bytes, int]]
    dead: list[DeadMessage]
    messages: int
    rows: int
    row_bytes: int
    unknown: dict[str, int] = field(default_factory=dict)
    schema_version: int = 0


def form(
    offsets: list[int],
    values: pa.ChunkedArray[Any],
    codec: RowCodec | str,
    framing: str,
    encoder: chunks.Encoder,
    unknown_fields: str = "dead",
) -> Formed:
    """Decode the buffer; good messages become chunks, the others dead letters, whole."""
    if isinstance(codec, str):
        every: list[DeadMessage] = [
            (offset, values[i].as_py(), codec) for i, offset in enumerate(offsets)
        ]
        return Formed([], every, 0, 0, 0)
    decoded = decode(values, codec, framing, unknown_fields)
    dead: list[DeadMessage] = [
        (offsets[b.index], values[b.index].as_py(), b.reason) for b in decoded.bad
    ]
    bad_bytes = sum(len(value or b"") for _, value, _ in dead)
    encoded = encoder.encode(decoded.batch)
    row_bytes = size_of(values) - bad_bytes
    rows = decoded.batch.num_rows
    version = codec.schema.version
    return Formed(encoded, dead, decoded.messages, rows, row_bytes, decoded.unknown, version)
