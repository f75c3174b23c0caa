"""A block's record batch as chunks: Arrow IPC streams, compressed inside, and back.

Receives one record batch, gives the values of a few Kafka records, each near a
given size, with their rows and checksum. Never talks to Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Measured on rows of 10 columns (94 bytes), bytes and time of a row: LZ4 at its default 36 bytes
# and 79 ns, looking less hard for repetitions (-4) 39 and 57, zstd 22 and 103. Its cores are
# a relay's bottleneck, and topics are kept for days.
# One thread: handing single columns to others cost a tenth of the relay's time, and as many
# relay processes as cores share the machine anyway.
_CODEC = pa.Codec("lz4", compression_level=-4)
_OPTIONS = pa.ipc.IpcWriteOptions(compression=_CODEC, use_threads=False)
_FIRST_RATIO = 0.5
"""Guess of compressed to uncompressed size before the first chunk is measured (measured on
rows of 10 columns: 39 of 94 bytes)."""
_FILL = 0.9
"""Part of the limit that a guessed chunk aims at, so that few guesses overshoot."""
_GROWTH = 4
"""A chunk's rows grow at most by this over the one before: a wrong guess costs a compression."""


def encode(batch: pa.RecordBatch, chunk_bytes: int) -> list[tuple[bytes, int]]:
    """A batch as (Arrow IPC stream, rows) pairs, each stream below `chunk_bytes` bytes.

    Chunks are cut by rows; how many fit is guessed from the chunk before and mended
    by halving. A row that is larger by itself is a chunk by itself: it came in a message, so
    a record of its size exists, and the block topics take 16 MiB (relay.topics). An empty
    batch has no chunks.
    """
    total = batch.num_rows
    chunks: list[tuple[bytes, int]] = []
    done = 0
    expected = max(1.0, batch.nbytes * _FIRST_RATIO / _FILL)
    rows = max(1, min(total, int(total * chunk_bytes / expected)))
    while done < total:
        taken = min(rows, total - done)
        data = _stream(batch.slice(done, taken))
        fitting = int(taken * _FILL * chunk_bytes / len(data))
        if len(data) < chunk_bytes or taken == 1:
            chunks.append((data, taken))
            done += taken
            rows = max(1, min(fitting, taken * _GROWTH))
        else:
            rows = max(1, min(fitting, taken // 2))
    return chunks


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode(chunks: Sequence[bytes]) -> pa.RecordBatch:
    """The chunks of a block, in order, as one record batch; field metadata is kept.

    Raises:
        ValueError: no chunks, not whole Arrow IPC streams, or of different schemas.
    """
    if not chunks:
        raise ValueError("a block has at least one chunk")
    batches: list[pa.RecordBatch] = []
    for at, chunk in enumerate(chunks):
        try:
            with pa.ipc.open_stream(chunk) as reader:
                batches.extend(reader)
        except OSError as error:  # so pyarrow says that a stream ends too soon
            raise ValueError(f"chunk {at} of {len(chunks)} is cut short: {error}") from error
    if not batches:
        raise ValueError("the chunks hold no record batch")
    if len(batches) > 1:
        batches = [pa.concat_batches(batches)]  # type: ignore[attr-defined]
    return batches[0]


def crc32c(chunks: Iterable[bytes]) -> int:
    """CRC-32C (Castagnoli, as in Kafka's own records) over the chunk values in order."""
    checksum = 0
    for chunk in chunks:
        checksum = google_crc32c.extend(checksum, chunk)
    return checksum
