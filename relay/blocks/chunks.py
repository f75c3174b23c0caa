"""A block's record batch as chunks: Arrow IPC streams, compressed inside, and back.

A chunk is one stream with its rows, or up to three, one behind the other: heads, rows, and plain
columns, as relay.blocks.column_layout makes them. (A reader that knows only of one stream finds a
single row or columns without a type, and refuses them.)

Receives one record batch, gives the values of a few Kafka records, each near a
given size, with their rows and checksum. Never talks to Kafka.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import google_crc32c
import pyarrow as pa

from relay.blocks.column_layout import Apart, is_taken_out, put_back, take_out, together

# Measured on rows of 10 columns (94 bytes), bytes and time of a row: LZ4 at its default 18.6 and
# 90 ns, looking less hard for repetitions (-4) 20.6 and 71, (-20) 21.4 and 65; zstd (-1) 10.8 and
# 116. Its cores are a relay's bottleneck, and topics are kept for days.
# One thread: handing single columns to others cost a tenth of the relay's time, and as many
# relay processes as cores share the machine anyway.
_CODEC = pa.Codec("lz4", compression_level=-4)
_OPTIONS = pa.ipc.IpcWriteOptions(compression=_CODEC, use_threads=False)
_AS_IT_IS = pa.ipc.IpcWriteOptions(use_threads=False)
# As above: a chunk of 10 rows is read in 0.02 ms of processor time, 0.15 with threads, one of 1 200
# rows in 0.04, not 0.3; and where others want the cores, each waits for a thread to come to turn.
_READ = pa.ipc.IpcReadOptions(use_threads=False)
APART_FROM_ROWS = 1_000
"""In a smaller block the second stream's schema takes about as much as it saves."""
_BITS = 8
_FIRST_RATIO = 0.5
"""Guess of compressed to uncompressed size before the first chunk is measured (measured on
rows of 10 columns: 21 of 94 bytes; where little repeats, most of them)."""
_FILL = 0.9
"""Part of the limit that a guessed chunk aims at, so that few guesses overshoot."""
_GROWTH = 4
"""A chunk's rows grow at most by this over the one before: a wrong guess costs a compression."""


class Encoder:
    """Of one table's blocks; it remembers how much smaller the last one became.

    Args:
        chunk_bytes: the value of a record stays below it.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._ratio = _FIRST_RATIO

    def encode(self, batch: pa.RecordBatch, most: int | None = None) -> list[tuple[bytes, int]]:
        """Return a batch as (Arrow IPC streams, rows) pairs.

        The batch is cut by rows. How many fit is guessed, first from the block before, then from
        the chunk before, and halved while a chunk is too large. A row that is larger than a chunk
        is a chunk by itself: it came in a message, so a record of its size exists, and the block
        topics take 16 MiB (relay.kafka.topics). An empty batch has no chunks.

        Args:
            batch: of one block.
            most: bytes of a value, where that is less than chunks have by themselves.
        """
        limit = self._chunk_bytes if most is None else max(1, min(most, self._chunk_bytes))
        total = batch.num_rows
        if not total:
            return []
        size = batch.nbytes
        chunks = self._cut(_Parts(batch), total, self._first(total, size, limit), limit)
        if total >= APART_FROM_ROWS:
            self._ratio = sum(len(value) for value, _ in chunks) / max(1, size)
        return chunks

    def _first(self, total: int, size: int, limit: int) -> int:
        """Rows of the first chunk: as many as of the others, if all shrinks as expected."""
        expected = size * self._ratio / (_FILL * limit)
        return math.ceil(total / max(1, math.ceil(expected)))

    def _cut(self, parts: _Parts, total: int, rows: int, limit: int) -> list[tuple[bytes, int]]:
        chunks: list[tuple[bytes, int]] = []
        done = 0
        while done < total:
            taken = _stretch(rows, total - done)
            value = parts.streams(done, taken)
            fitting = int(taken * _FILL * limit / len(value))
            if len(value) < limit or taken == 1:
                chunks.append((value, taken))
                done += taken
                rows = max(1, min(fitting, taken * _GROWTH))
            else:
                rows = max(1, min(fitting, taken // 2))
        return chunks


def _stretch(wanted: int, left: int) -> int:
    """Fewer than eight rows less, but for the last: the next chunk's bits begin with a byte."""
    if wanted >= left or wanted <= _BITS:
        return min(wanted, left)
    return wanted - wanted % _BITS


class _Parts:
    """What the chunks of a block are written from: made once, each chunk takes a stretch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._rows, self._plain, self._apart = batch, None, None
        if batch.num_rows >= APART_FROM_ROWS:
            self._apart = Apart(batch)
            self._rows, self._plain = take_out(self._apart.rows, _CODEC)

    def streams(self, first: int, count: int) -> bytes:
        """A chunk's value."""
        sink = pa.BufferOutputStream()
        if self._apart is not None:
            _write(sink, self._apart.heads(first, count), _OPTIONS)
        _write(sink, self._rows.slice(first, count), _OPTIONS)
        if self._plain is not None:
            _write(sink, self._plain.slice(first, count), _AS_IT_IS)
        value: bytes = sink.getvalue().to_pybytes()
        return value


def _write(
    sink: pa.BufferOutputStream, part: pa.RecordBatch | None, options: pa.ipc.IpcWriteOptions
) -> None:
    if part is not None:
        with pa.ipc.new_stream(sink, part.schema, options=options) as writer:
            writer.write_batch(part)


def decode(chunks: Sequence[bytes]) -> pa.RecordBatch:
    """Return the chunks of a block, in order, as one record batch; field metadata is kept.

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
        with pa.ipc.open_stream(source, options=_READ) as reader:
            streams.append(list(reader))
    if len(streams) == 1:
        return streams[0]
    counts = [len(stream) for stream in streams]
    if set(counts) != {1}:
        raise ValueError(
            f"the chunks hold {len(streams)} streams of {counts} batches, expected one stream of "
            "message heads and one of rows"
        )
    *parts, last = (stream[0] for stream in streams)
    rows = put_back(parts.pop(), last) if is_taken_out(last.schema) else last
    if len(parts) > 1:
        raise ValueError(
            f"the chunks hold {len(streams)} streams, expected one of message heads and one of rows"
        )
    return [together(parts[0], rows)] if parts else [rows]


def crc32c(chunks: Iterable[bytes]) -> int:
    """Return the CRC-32C (Castagnoli, as in Kafka's own records) over the chunk values in order."""
    checksum = 0
    for chunk in chunks:
        checksum = google_crc32c.extend(checksum, chunk)
    return checksum
