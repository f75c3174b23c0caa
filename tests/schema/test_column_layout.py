"""Columns as they are in a chunk: whatever they hold, it comes back, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.blocks import chunks
from relay.blocks.column_layout import Apart, put_back, take_out, together
from tests.profiles import examples

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


def parted(batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.RecordBatch]:
    """Heads and rows of the whole batch."""
    parts = Apart(batch)
    return parts.heads(0, batch.num_rows), parts.rows


@st.composite
def randoms(draw: st.DrawFn) -> Any:
    """Columns that compression may not shrink: of fixed width, with and without nulls."""
    size = draw(st.integers(1, ROWS))
    seed = draw(st.integers(0, 2**32 - 1))
    words = np.random.default_rng(seed).integers(0, 2**64, 2 * size, np.uint64)
    words[: draw(st.integers(0, 2 * size))] = 0
    words &= ~np.uint64(1 << 62 | 1 << 30)  # no NaN, which is not equal to itself
    kinds = [pa.float64(), pa.int64(), pa.binary(16), pa.binary(3), pa.decimal128(38, 3)]
    kind = draw(st.sampled_from([*kinds, pa.float32(), pa.date32(), pa.timestamp("ms")]))
    if pa.types.is_decimal(kind):
        words[1::2] = 0  # 128 bits are more than 38 digits
    nulls = draw(st.booleans())
    valid = [pa.py_buffer(np.resize(np.uint8(0b1011_0110), size)) if nulls else None]
    return pa.Array.from_buffers(kind, size, [*valid, pa.py_buffer(words)])


@given(
    st.one_of(numbers(), texts(), randoms()),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([1, 700, 3_000, 1_000_000]),
)
@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_column_comes_back(column: Any, cut: int, left: int, chunk_bytes: int) -> None:
    """Of any type, with and without nulls, whole or a slice, in one chunk or many."""
    column = column.slice(min(cut, len(column) - 1))
    column = column.slice(0, max(1, len(column) - left))
    field = pa.field("a", column.type, metadata={b"clickhouse": b"what it was"})
    batch = pa.record_batch([column], schema=pa.schema([field]))

    found = chunks.decode([value for value, _ in chunks.Encoder(chunk_bytes).encode(batch)])

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
    heads, rows = parted(batch)
    assert heads is None
    assert rows is batch


def test_what_lies_behind_a_null_comes_back_too() -> None:
    """Arrow lets a null have bytes: sizes and bytes stay together."""
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 2, 5, 6], np.int32))]
    column = pa.Array.from_buffers(pa.binary(), 3, [*buffers, pa.py_buffer(b"abcdef")], 1)
    batch = pa.record_batch({"a": column})
    heads, rows = parted(batch)
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
    [(value, _)] = chunks.Encoder(1_000_000).encode(batch)

    assert len(value) < 0.1 * len(stream(batch, options=chunks._OPTIONS))


BATCH = pa.record_batch({"a": pa.array(["x", "yz"]), "b": pa.array([1.5, 2.5])})


def test_a_chunk_of_one_stream_is_read_as_ever() -> None:
    """Blocks that an earlier relay formed are still in the topics, beside new ones."""
    new = chunks.Encoder(10_000).encode(BATCH)[0][0]
    assert chunks.decode([stream(BATCH), new]).equals(pa.concat_batches([BATCH, BATCH]))  # type: ignore[attr-defined]


def test_a_reader_of_one_stream_sees_that_rows_are_missing() -> None:
    """An earlier loader finds one row where the chunk's header says more, and refuses."""
    with pa.ipc.open_stream(chunks.Encoder(10_000).encode(BATCH)[0][0]) as reader:
        assert reader.read_all().num_rows == 1


def test_a_head_may_hold_the_first_number_itself() -> None:
    """As earlier relays wrote it: the first step is 0."""
    heads = pa.record_batch({"a": pa.array([2**64 - 1], pa.uint64())})
    rows = pa.record_batch({"a": pa.array([0, 1, 1], pa.int8())})
    assert together(heads, rows).column("a").to_pylist() == [2**64 - 1, 0, 1]


def test_a_chunk_begins_where_the_one_before_ended() -> None:
    """Steps are those of the block, and a head what its chunk's first step adds to."""
    batch = pa.record_batch({"a": pa.array([100, 101, 103, 106], pa.int32())})
    parts = Apart(batch)
    heads = parts.heads(2, 2)
    assert heads is not None
    assert heads.to_pydict() == {"a": [101]}
    found = chunks.decode([stream(heads) + stream(parts.rows.slice(2, 2))])
    assert found.to_pydict() == {"a": [103, 106]}


RANDOM = pa.record_batch({
    "a": pa.array(range(1_000), pa.int64()),
    "b": pa.array(np.random.default_rng(1).integers(0, 2**62, 1_000)),
    "c": pa.array([1.5] * 1_000),
    "d": pa.array(np.random.default_rng(2).random(1_000)),
})  # fmt: skip
"""`b` and `d` are of no use to LZ4."""


def test_what_would_not_shrink_is_set_aside() -> None:
    """Alone, in its place a column without a type, and only where it is not worth the time."""
    rows, plain = take_out(RANDOM, chunks._CODEC)
    assert plain is not None
    assert plain.schema.names == ["b", "d"]
    assert [str(kind) for kind in rows.schema.types] == ["int64", "null", "double", "null"]
    assert put_back(rows, plain).equals(RANDOM)

    calm = RANDOM.select(["a", "c"])
    assert take_out(calm, chunks._CODEC) == (calm, None)


def test_chunks_with_columns_aside_come_back() -> None:
    """Beside heads and without any."""
    for columns in (["a", "b", "c", "d"], ["b", "c", "d"], ["d"]):
        batch = RANDOM.select(columns)
        values = [value for value, _ in chunks.Encoder(9_000).encode(batch)]
        assert len(values) > 1 or columns == ["d"]
        assert chunks.decode(values).equals(batch)


def test_a_reader_that_knows_nothing_of_it_finds_no_values() -> None:
    """An earlier loader refuses three streams; of two it took the first for heads, which has
    one row."""
    value = chunks.Encoder(100_000).encode(RANDOM.select(["b", "c"]))[0][0]
    with pa.ipc.open_stream(value) as reader:
        first = reader.read_all()
    assert first.num_rows == 1_000
    assert pa.types.is_null(first.schema.field("b").type)


def test_what_was_set_aside_belongs_to_its_rows() -> None:
    """Other columns, other rows, or streams in another order are an error."""
    rows, plain = take_out(RANDOM, chunks._CODEC)
    assert plain is not None
    wrongs = [(rows, plain.slice(1)), (rows, plain.select(["d"])), (RANDOM, plain)]
    for wrong_rows, wrong in wrongs:
        with pytest.raises(ValueError, match="rows without columns"):
            chunks.decode([stream(wrong_rows) + stream(wrong)])
    with pytest.raises(ValueError, match="heads"):
        chunks.decode([stream(plain) + stream(rows)])


def test_what_does_not_belong_together_is_an_error() -> None:
    """Two heads, a head without rows, sizes of other texts, or a third stream."""
    heads, rows = parted(BATCH)
    assert heads is not None
    other, _ = parted(pa.record_batch({"a": pa.array(["longer"])}))
    stranger, _ = parted(pa.record_batch({"c": pa.array(["x"])}))
    assert other is not None
    assert stranger is not None
    two = pa.concat_batches([heads, heads])  # type: ignore[attr-defined]
    for wrong in (two, other, stranger):
        with pytest.raises(ValueError, match=r"heads|bytes"):
            chunks.decode([stream(wrong) + stream(rows)])
    with pytest.raises(ValueError, match="3 streams"):
        chunks.decode([stream(heads) + stream(rows) + stream(rows)])
    with pytest.raises(ValueError, match=r"\[1, 2\] batches"):
        chunks.decode([stream(heads) + stream(rows, rows)])
