"""A block's record batch as chunks: Arrow IPC streams, compressed inside, and back.

A chunk is one stream with its rows, or two, one behind the other: heads, then rows, as
relay.apart makes them. (A reader that knows only of one stream finds a single row, and by the
chunk's row count sees that this cannot be all.)

Receives one record batch, gives the values of a few Kafka records, each near a
given size, with their rows and checksum. Never talks to Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa

from relay.apart import apart, together

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Measured on rows of 10 columns (94 bytes), bytes and time of a row: LZ4 at its default 18.6 and
# 90 ns, looking less hard for repetitions (-4) 20.6 and 71, (-20) 21.4 and 65; zstd (-1) 10.8 and
# 116. Its cores are a relay's bottleneck, and topics are kept for days.
# One thread: handing single columns to others cost a tenth of the relay's time, and as many
# relay processes as cores share the machine anyway.
_CODEC = pa.Codec("lz4", compression_level=-4)
_OPTIONS = pa.ipc.IpcWriteOptions(compression=_CODEC, use_threads=False)
APART_FROM_ROWS = 1_000
"""In a smaller chunk the second stream's schema takes about as much as it saves."""
_FIRST_RATIO = 0.5
"""Guess of compressed to uncompressed size before the first chunk is measured (measured on
rows of 10 columns: 21 of 94 bytes; where little repeats, most of them)."""
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
        data = _streams(batch.slice(done, taken))
        fitting = int(taken * _FILL * chunk_bytes / len(data))
        if len(data) < chunk_bytes or taken == 1:
            chunks.append((data, taken))
            done += taken
            rows = max(1, min(fitting, taken * _GROWTH))
        else:
            rows = max(1, min(fitting, taken // 2))
    return chunks


def _streams(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    parts = apart(batch) if batch.num_rows >= APART_FROM_ROWS else (None, batch)
    for part in filter(None, parts):
        with pa.ipc.new_stream(sink, part.schema, options=_OPTIONS) as writer:
            writer.write_batch(part)
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
            batches.extend(_read(chunk))
        except OSError as error:  # so pyarrow says that a stream ends too soon
            raise ValueError(f"chunk {at} of {len(chunks)} is cut short: {error}") from error
    if not batches:
        raise ValueError("the chunks hold no record batch")
    if len(batches) > 1:
        batches = [pa.concat_batches(batches)]  # type: ignore[attr-defined]
    return batches[0]


def _read(chunk: bytes) -> list[pa.RecordBatch]:
    streams: list[list[pa.RecordBatch]] = []
    source = pa.BufferReader(chunk)
    while source.tell() < len(chunk) or not streams:
        with pa.ipc.open_stream(source) as reader:
            streams.append(list(reader))
    if len(streams) == 1:
        return streams[0]
    if [len(stream) for stream in streams] != [1, 1]:
        raise ValueError(f"{len(streams)} streams, which are not heads and rows")
    return [together(streams[0][0], streams[1][0])]


def crc32c(chunks: Iterable[bytes]) -> int:
    """CRC-32C (Castagnoli, as in Kafka's own records) over the chunk values in order."""
    checksum = 0
    for chunk in chunks:
        checksum = google_crc32c.extend(checksum, chunk)
    return checksum
