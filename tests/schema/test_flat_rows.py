"""The compiled decoder takes what the general one takes, and makes the same of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.rows import decode as row_decoder
from relay.rows.decode import Decoded, decode
from relay.rows.flat_columns import Density, Sinks
from relay.rows.flat_kernel import BYTES, FIXED64, TEXT, WHOLE64
from tests.profiles import examples
from tests.schema.rows import binary, codec_of, row, row_batch
from tests.schema.test_mutations import SIMPLE, SIMPLE_ROW, mutated
from tests.schema.values import fill

if TYPE_CHECKING:
    from relay.rows.row_codec import RowCodec

CODEC = codec_of({**SIMPLE, "wide": "UInt64", "part": "Float32", "small": "UInt16", "day": "Date"})
ROW = {**SIMPLE_ROW, 10: 2**64 - 1, 11: 1.5, 12: 65_535, 13: 1}
GOOD = fill(CODEC.message_class(), ROW).SerializeToString()
MESSAGES = 4_000


def messages(random: np.random.Generator) -> list[bytes | None]:
    """Mutated ones, in a row or in the envelope, between good ones and null values."""
    made: list[bytes | None] = []
    for at in range(MESSAGES):
        if at % 4 == 0:
            made.append(row_batch([mutated(GOOD, random), GOOD]))
        elif at % 4 == 1:
            made.append(mutated(row_batch([GOOD, GOOD]), random))
        else:
            made.append(None if at % 50 == 2 else row_batch([GOOD] * (at % 3 + 1)))
    return made


def by(compiled: bool, values: pa.ChunkedArray[Any], codec: RowCodec, **how: str) -> Decoded:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_decoder, "COMPILED_FROM_BYTES", 0 if compiled else 1 << 60)
        return decode(values, codec, how.get("framing", "batch"), how.get("unknown", "dead"))


def differences(values: pa.ChunkedArray[Any], codec: RowCodec, **how: str) -> list[str]:
    """In what the two decoders disagree."""
    one, other = by(True, values, codec, **how), by(False, values, codec, **how)
    found = [
        name
        for name in ("messages", "bad", "unknown")
        if getattr(one, name) != getattr(other, name)
    ]
    return found + [
        f"column {column}"
        for column in codec.column_names
        if not one.batch.column(column).equals(other.batch.column(column))
        and not both_are_floats_of_equal_bits(one.batch.column(column), other.batch.column(column))
    ]


def both_are_floats_of_equal_bits(one: Any, other: Any) -> bool:
    """NaN is not equal to itself."""
    if not pa.types.is_floating(one.type) or one.is_null() != other.is_null():
        return False
    return one.fill_null(0).to_numpy().tobytes() == other.fill_null(0).to_numpy().tobytes()


@pytest.mark.parametrize("unknown", ["dead", "ignore"])
@pytest.mark.parametrize("framing", ["batch", "row"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_two_decoders_agree_on_mutated_messages(seed: int, framing: str, unknown: str) -> None:
    random = np.random.default_rng(seed)
    made = messages(random)
    if framing == "row":
        made = [mutated(GOOD, random) if at % 2 else GOOD for at in range(MESSAGES)]
    assert differences(binary(made), CODEC, framing=framing, unknown=unknown) == []
    assert CODEC.flat is not None
    taken = CODEC.flat.read(binary(made), framing)[1]
    assert 0 < (taken < 0).sum() < MESSAGES


@pytest.mark.parametrize("share", [0.0, 0.01, 100.0])
def test_expecting_another_number_of_rows_changes_nothing(share: float) -> None:
    """Of rows and texts too few were expected, so that columns grow; or far too many."""
    assert CODEC.flat is not None
    random = np.random.default_rng(3)
    long = row_batch([row(CODEC, name="x" * 100_000), GOOD])
    for made in (messages(random), [row_batch([b""] * 9_000), row_batch([GOOD] * 9_000), long]):
        CODEC.flat._density = Density(share, (share,) * len(CODEC.types))
        assert differences(binary(made), CODEC) == []


def test_room_is_what_the_buffer_before_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer like the one before is read at once: nothing is copied to where there is more."""
    values = binary([row_batch([GOOD, row(CODEC, name="x" * at)] * at) for at in range(1, 100)])
    grown: list[int] = []
    grow = Sinks.grow

    def counted(self: Sinks, rows: int, *rest: int, short_of_rows: bool) -> None:
        grown.append(rows)
        grow(self, rows, *rest, short_of_rows=short_of_rows)

    monkeypatch.setattr(Sinks, "grow", counted)
    assert CODEC.flat is not None
    CODEC.flat._density = None
    CODEC.flat.read(values, "batch")
    assert len(grown) > 1
    grown.clear()
    CODEC.flat.read(values, "batch")
    assert grown == [0]


@pytest.mark.parametrize("guard", ["text", "width", "number"])
def test_control_a_decoder_without_a_guard_is_found(
    guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts not looked at, numbers of any width, another field number for a column."""
    assert CODEC.flat is not None
    plan = CODEC.flat._plan
    unguarded = plan.copy()
    known = plan >= 0
    kinds = plan & 7
    if guard == "text":
        unguarded[known & (kinds == TEXT)] += BYTES - TEXT
    elif guard == "width":
        narrow = known & (kinds < FIXED64)
        unguarded[narrow] += (WHOLE64 - kinds)[narrow]
    else:
        unguarded = np.append(unguarded, unguarded[-8:])
    monkeypatch.setattr(CODEC.flat, "_plan", unguarded)
    wide = row_batch([b"\x10" + b"\x80\x80\x80\x80\x10", GOOD])  # 2^32 in an int32
    text = row_batch([b"\x22\x02\xff\xfe"])
    other = row_batch([b"\x70\x01"])  # field 14, which the table does not have
    assert differences(binary([row_batch([GOOD]), wide, text, other]), CODEC)


def test_plain_messages_are_all_taken() -> None:
    """What protobuf itself writes never needs the general decoder, left out fields or none."""
    rows = [GOOD, b"", row(CODEC, id=-1), row(CODEC, name="", tiny=-128, part=-0.0)]
    values = binary([row_batch(rows), row_batch(rows * 50)])
    assert CODEC.flat is not None
    assert CODEC.flat.read(values, "batch")[1].tolist() == [4, 200]
    assert differences(values, CODEC) == []
    batch = by(True, values, CODEC).batch
    assert batch.column("id").to_pylist()[:4] == [2**40, None, -1, None]
    batch.validate(full=True)


def test_rows_keep_their_order_when_both_decoders_take_some() -> None:
    """A longer varint than need be is good, and not plain."""
    padded = b"\x08\x85\x00"
    values = binary([row_batch([row(CODEC, id=at)]) for at in range(3)] + [row_batch([padded])] * 2)
    shuffled = values.take(pa.array([3, 0, 4, 1, 2]))
    assert by(True, shuffled, CODEC).batch.column("id").to_pylist() == [5, 0, 5, 1, 2]
    assert differences(shuffled, CODEC) == []


def test_a_part_of_an_array_is_read_as_that_part() -> None:
    values = binary([row_batch([row(CODEC, id=at, name=f"n{at}")]) for at in range(40)])
    batch = by(True, values.slice(7, 20), CODEC).batch
    assert batch.column("id").to_pylist() == list(range(7, 27))
    assert batch.column("name").to_pylist() == [f"n{at}" for at in range(7, 27)]


def test_more_columns_than_a_word_has_bits() -> None:
    codec = codec_of({f"c{at}": "Nullable(Int32)" for at in range(130)})
    sent = [row(codec, **{f"c{at}": at for at in range(first, 130, 3)}) for first in range(3)]
    values = binary([row_batch(sent)])
    assert codec.flat is not None
    assert codec.flat.read(values, "batch")[1].tolist() == [3]
    assert differences(values, codec) == []
    assert by(True, values, codec).batch.column("c127").to_pylist() == [None, 127, None]


def test_texts_of_every_length() -> None:
    """Of 0 to 40 bytes, at the end of the buffer too, with and without a letter beyond ASCII."""
    codec = codec_of({"a": "String", "b": "String"})
    texts = ["x" * size for size in range(41)] + ["ü" + "y" * size for size in range(39)]
    sent = [row(codec, a=text, b=text[::-1]) for text in texts]
    batch = by(True, binary([row_batch([one]) for one in sent]), codec).batch
    assert batch.column("a").to_pylist() == texts
    assert batch.column("b").to_pylist() == [text[::-1] for text in texts]


def varint(number: int, padding: int = 0) -> bytes:
    """As protobuf writes it, or with so many bytes more that add nothing."""
    parts = [number >> shift & 0x7F for shift in range(0, max(1, number.bit_length()), 7)]
    parts += [0] * padding
    return bytes([part | 0x80 for part in parts[:-1]] + parts[-1:])


def test_numbers_of_every_length() -> None:
    """Of 1 to 10 bytes, in the midst of a buffer and at its end."""
    codec = codec_of({"n": "UInt64"})
    assert codec.flat is not None
    numbers = [n for k in range(64) for n in (2**k - 1, 2**k, 2**k + 2**k // 3)] + [2**64 - 1]
    sent = [row_batch([b"\x08" + varint(number)]) for number in numbers]
    assert by(True, binary(sent), codec).batch.column("n").to_pylist() == numbers
    for one, number in zip(sent, numbers, strict=True):
        columns, rows = codec.flat.read(binary([one]), "batch")
        assert (rows.tolist(), columns[0].to_pylist()) == ([1], [number])


def test_a_number_longer_than_need_be_is_passed_over() -> None:
    """Whatever its length: protobuf does not write it so, though it would read it."""
    codec = codec_of({"n": "UInt64"})
    assert codec.flat is not None
    padded = [
        row_batch([b"\x08" + varint(2**bits - 1, more)])
        for bits in range(64)
        for more in (1, 2, 8)
        if bits // 7 + more < 10
    ]
    assert set(codec.flat.read(binary(padded), "batch")[1].tolist()) == {-1}
    assert set(codec.flat.read(binary([*padded, b""] * 2), "batch")[1].tolist()) == {-1}
    assert differences(binary(padded), codec) == []


def test_what_an_earlier_block_left_in_memory_is_not_read() -> None:
    """Rows without values in the place of rows with them."""
    full = binary([row_batch([GOOD] * 2_000)])
    empty = binary([row_batch([b""] * 2_000)])
    assert CODEC.flat is not None
    for _ in range(5):
        CODEC.flat.read(full, "batch")
        for column in CODEC.flat.read(empty, "batch")[0]:
            column.validate(full=True)
            assert column.null_count == 2_000


def test_nested_tables_have_no_compiled_decoder() -> None:
    assert codec_of({"id": "Int64", "tags": "Array(String)"}).flat is None


EDGES = st.sampled_from([0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
                         0xE0, 0xED, 0xEE, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF])  # fmt: skip


@given(st.lists(st.lists(EDGES, max_size=20).map(bytes) | st.binary(max_size=20), min_size=1))
@settings(max_examples=examples(200), deadline=None)
def test_texts_are_utf8_where_python_says_so(texts: list[bytes]) -> None:
    codec = codec_of({"t": "String"})
    values = binary([row_batch([b"\x0a" + bytes([len(text)]) + text]) for text in texts])
    assert codec.flat is not None
    taken = codec.flat.read(values, "batch")[1] >= 0
    assert taken.tolist() == [is_utf8(text) for text in texts]


def test_every_pair_and_every_first_three_of_bytes() -> None:
    """Exhaustive where the rules of UTF-8 differ: lead byte and second byte, then a good tail."""
    texts = [bytes([a, b]) + tail for a in range(256) for b in range(256)
             for tail in (b"", b"\x80", b"\xbf\x80")]  # fmt: skip
    codec = codec_of({"t": "String"})
    values = binary([row_batch([b"\x0a" + bytes([len(text)]) + text]) for text in texts])
    assert codec.flat is not None
    taken = codec.flat.read(values, "batch")[1] >= 0
    assert taken.tolist() == [is_utf8(text) for text in texts]


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
