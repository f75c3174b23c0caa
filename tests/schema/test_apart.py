"""Columns as they are in a chunk: whatever they hold, it comes back, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay import chunks
from relay.apart import apart, together

WHOLE = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32()]
WHOLE += [pa.int64(), pa.uint64()]
ROWS = 300


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest chunks are of two streams too."""
    monkeypatch.setattr(chunks, "APART_FROM_ROWS", 1)


def bounds(kind: pa.DataType) -> tuple[int, int]:
    """Least and greatest value of whole numbers of this type."""
    found = np.iinfo(kind.to_pandas_dtype())
    return int(found.min), int(found.max)


@st.composite
def numbers(draw: st.DrawFn) -> Any:
    """Whole numbers: anything, counted up by steps of some size, or with the ends of the range."""
    kind = draw(st.sampled_from(WHOLE))
    least, most = bounds(kind)
    if draw(st.booleans()):
        most_step = draw(st.sampled_from([1, 127, 128, 32_767, 32_768, 2**31 - 1, 2**31]))
        steps = draw(st.lists(st.integers(-most_step, most_step), min_size=1, max_size=ROWS))
        at = draw(st.integers(least, most))
        values = [
            (at + int(sum_) - least) % (most - least + 1) + least for sum_ in np.cumsum(steps)
        ]
    else:
        values = draw(st.lists(st.integers(least, most), min_size=1, max_size=ROWS))
    nulls = draw(st.booleans())
    return pa.array([None if nulls and value % 3 == 0 else value for value in values], kind)


@st.composite
def texts(draw: st.DrawFn) -> Any:
    """Texts or bytes of any sizes; sizes at which a wider number is needed among them."""
    kind = draw(st.sampled_from([pa.string(), pa.binary()]))
    one = st.text(max_size=20) | st.sampled_from([255, 256, 65_535, 65_536]).map(lambda n: "x" * n)
    values = draw(st.lists(one | st.none(), min_size=1, max_size=30))
    return pa.array(
        [None if value is None else value.encode() for value in values], pa.binary()
    ).cast(kind)


def stream(*batches: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    """One Arrow IPC stream, as chunks were before there were heads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


@given(st.one_of(numbers(), texts()), st.integers(0, 20), st.integers(0, 20))
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_column_comes_back(column: Any, cut: int, left: int) -> None:
    """Of any type, with and without nulls, whole or a slice: value for value, and its field."""
    column = column.slice(min(cut, len(column) - 1))
    column = column.slice(0, max(1, len(column) - left))
    field = pa.field("a", column.type, metadata={b"clickhouse": b"what it was"})
    batch = pa.record_batch([column], schema=pa.schema([field]))

    found = chunks.decode([value for value, _ in chunks.encode(batch, 1_000_000)])

    found.validate(full=True)
    assert found.equals(batch, check_metadata=True)


def test_other_columns_stay_as_they_are() -> None:
    """Of nothing that could be parted there are no heads, and the batch is the batch."""
    columns = {
        "float": pa.array([1.5, 2.5]),
        "bool": pa.array([True, None]),
        "list": pa.array([["a"], ["b", "c"]]),
        "small": pa.array([1, 2], pa.int16()),
        "null": pa.array([1, None], pa.int64()),
        "wide": pa.array([0, 2**40], pa.int64()),
    }
    batch = pa.record_batch(columns)
    heads, rows = apart(batch)
    assert heads is None
    assert rows is batch


def test_what_lies_behind_a_null_comes_back_too() -> None:
    """Arrow lets a null have bytes: sizes and bytes stay together."""
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 2, 5, 6], np.int32))]
    column = pa.Array.from_buffers(pa.binary(), 3, [*buffers, pa.py_buffer(b"abcdef")], 1)
    batch = pa.record_batch({"a": column})
    heads, rows = apart(batch)
    assert heads is not None
    assert together(heads, rows).column("a").to_pylist() == [b"ab", None, b"f"]


def test_texts_and_what_is_counted_up_become_small() -> None:
    """What it is for: a byte for the size of a text or a step, and a byte repeats."""
    rows = 10_000
    batch = pa.record_batch({
        "id": pa.array(range(10**12, 10**12 + rows), pa.uint64()),
        "at": pa.array([1_700_000_000 + n // 7 for n in range(rows)], pa.uint32()),
        "kind": pa.array([("click", "view")[n % 2] for n in range(rows)]),
    })  # fmt: skip
    [(value, _)] = chunks.encode(batch, 1_000_000)

    assert len(value) < 0.1 * len(stream(batch, options=chunks._OPTIONS))


BATCH = pa.record_batch({"a": pa.array(["x", "yz"]), "b": pa.array([1.5, 2.5])})


def test_a_chunk_of_one_stream_is_read_as_ever() -> None:
    """Blocks that an earlier relay formed are still in the topics, beside new ones."""
    new = chunks.encode(BATCH, 10_000)[0][0]
    assert chunks.decode([stream(BATCH), new]).equals(pa.concat_batches([BATCH, BATCH]))  # type: ignore[attr-defined]


def test_a_reader_of_one_stream_sees_that_rows_are_missing() -> None:
    """An earlier loader finds one row where the chunk's header says more, and refuses."""
    with pa.ipc.open_stream(chunks.encode(BATCH, 10_000)[0][0]) as reader:
        assert reader.read_all().num_rows == 1


def test_what_does_not_belong_together_is_an_error() -> None:
    """Two heads, a head without rows, sizes of other texts, or a third stream."""
    heads, rows = apart(BATCH)
    assert heads is not None
    other, _ = apart(pa.record_batch({"a": pa.array(["longer"])}))
    stranger, _ = apart(pa.record_batch({"c": pa.array(["x"])}))
    assert other is not None
    assert stranger is not None
    two = pa.concat_batches([heads, heads])  # type: ignore[attr-defined]
    for wrong in (two, other, stranger):
        with pytest.raises(ValueError, match=r"heads|bytes"):
            chunks.decode([stream(wrong) + stream(rows)])
    with pytest.raises(ValueError, match="3 streams"):
        chunks.decode([stream(heads) + stream(rows) + stream(rows)])
    with pytest.raises(ValueError, match="heads and rows"):
        chunks.decode([stream(heads) + stream(rows, rows)])
