"""Elements of lists that set few of many fields: they are counted before their rows are decoded."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.blocks.chunks import Encoder
from relay.blocks.form_block import BlockFormer, Messages
from relay.rows.decode import Decoded, decode
from relay.rows.row_bound import RowBound
from relay.schema.dead_reason import DeadKind
from relay.schema.evolution import ColumnDef, evolve
from tests.schema.rows import TABLE, RowCodec, binary, codec_of, row_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELDS = 100
WIDE = f"Tuple({', '.join(f'c{at} UInt64' for at in range(FIELDS))})"
TYPES = {
    "array": f"Array({WIDE})",
    "nested": f"Nested({', '.join(f'c{at} UInt64' for at in range(FIELDS))})",
    "map": f"Map(UInt8, {WIDE})",
    "in a tuple": f"Tuple(x UInt8, y Array({WIDE}))",
    "in an array": f"Array(Array({WIDE}))",
    "in a tuple in an array": f"Array(Tuple(x Array({WIDE}), y UInt8))",
    "in a variant": f"Variant(UInt8, Array({WIDE}))",
    "flattened": "",
    "of UUIDs": f"Array(Tuple({', '.join(f'c{at} UUID' for at in range(FIELDS // 2))}))",
}
MOST = 100_000
"""Bytes as columns of a block here; of 800 bytes an element, that are 125."""


def of(type_: str) -> RowCodec:
    if type_ == "flattened":
        return codec_of({f"a.c{at}": "Array(UInt64)" for at in range(FIELDS)})
    return codec_of({"id": "UInt8", "a": TYPES[type_]})


def field(number: int, data: bytes) -> bytes:
    """Of bytes, text or message."""
    size = len(data)
    assert size < 1 << 21
    sizes = [size & 127 | 128, size >> 7 & 127 | 128, size >> 14]  # longer than need be
    return bytes([number << 3 | 2, *sizes]) + data


def row_of(type_: str, elements: int, element: bytes = b"") -> bytes:
    """A row whose list has so many elements, which set nothing."""
    if type_ == "flattened":
        return field(2, b"\x05" * elements)
    if type_ == "in a tuple":
        return field(2, field(2, element) * elements)
    if type_ in {"in an array", "in a tuple in an array"}:
        return field(2, field(1, element) * elements)
    if type_ == "in a variant":
        return field(2, field(2, field(1, element) * elements))
    return field(2, element) * elements


def stretches(values: list[bytes], codec: RowCodec, most: int) -> list[Decoded]:
    """All of them, decoded as many at a time as fit."""
    found, rest = [], binary(values)  # type: ignore[arg-type]
    bound = RowBound(codec.row_bytes, most)
    while len(rest):
        found.append(decode(rest, codec, "batch", bound=bound))
        assert found[-1].left < len(rest), "at least one is looked at"
        rest = rest.slice(len(rest) - found[-1].left)
    return found


@pytest.mark.parametrize("type_", TYPES)
def test_a_block_is_bounded_by_the_elements_of_its_lists(type_: str) -> None:
    """Red before: messages of 200 kB became one block of 81 MB."""
    codec = of(type_)
    values = [row_batch([row_of(type_, 10)] * 5)] * 70
    whole = decode(binary(values), codec, "batch")  # type: ignore[arg-type]
    assert whole.batch.nbytes > 20 * MOST
    parts = stretches(values, codec, MOST)
    sizes = [part.batch.nbytes for part in parts]
    assert max(sizes) <= 1.001 * MOST
    assert min(sizes[:-1]) > MOST / 2, "no smaller than need be"
    assert sum(part.messages for part in parts) == len(values)
    assert not any(part.bad for part in parts)
    assert sum(part.batch.num_rows for part in parts) == whole.batch.num_rows == 350


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("others", [0, 100])
def test_a_message_of_too_many_elements_is_a_dead_letter_whatever_comes_with_it(
    type_: str, others: int
) -> None:
    codec = of(type_)
    (alone,) = stretches([row_batch([row_of(type_, 64)])], codec, 1 << 40)
    of_element = alone.batch.nbytes / 64
    fitting, many = int(3.9 * MOST / of_element), int(4.1 * MOST / of_element)
    small = row_batch([row_of(type_, 10)])
    values = [small] * others
    values += [row_batch([row_of(type_, fitting)]), row_batch([row_of(type_, many)]), small]
    found, begun = [], 0
    for part in stretches(values, codec, MOST):
        found += [(begun + one.index, one.reason) for one in part.bad]
        assert part.batch.nbytes <= 1.001 * MOST or part.messages == 1
        begun += part.messages + len(part.bad)
    [(at, reason)] = found
    assert (at, reason.kind) == (others + 1, DeadKind.TOO_MANY_ROWS)
    assert reason.text.startswith("1 rows: with the elements of their lists they take 4")
    assert reason.text.endswith("whatever fields these set, and a message's may take 400,000")


def test_many_in_few_bytes_never_become_columns() -> None:
    """A message of the brokers' default size, which would be 400 MB."""
    codec = of("array")
    bomb = row_batch([b"\x12\x00" * 500_000])
    values = binary([row_batch([row_of("array", 1)]), bomb])
    former = BlockFormer(codec, "batch", Encoder(1 << 20), max_decoded=64_000_000)
    formed = former.form(Messages([7, 8], values))
    [dead] = formed.dead
    assert (dead.offset, dead.reason.kind) == (8, DeadKind.TOO_MANY_ROWS)
    assert formed.facts.rows == 1


def test_the_journal_says_what_the_columns_take() -> None:
    """Red before: 8 bytes a row, so that the next buffers and the loader's INSERTs grew alike."""
    codec = of("array")
    buffer = Messages([1, 2], binary([row_batch([row_of("array", 10)] * 5)] * 2))
    former = BlockFormer(codec, "batch", Encoder(1 << 20), max_decoded=MOST)
    alone = former.form(buffer).facts.decoded_bytes
    assert 80_000 < alone < 84_000
    assert [one.facts.decoded_bytes for one in former.form_all([buffer] * 2)] == [alone] * 2


def test_a_gone_column_is_counted_as_well() -> None:
    """Its values are decoded, to see whether it is back."""
    before = evolve(None, TABLE, "u", [ColumnDef("id", "UInt8"), ColumnDef("a", TYPES["array"])])
    assert before is not None
    schema = evolve(before, TABLE, "u", [ColumnDef("id", "UInt8")])
    assert schema is not None
    codec = RowCodec(schema)
    assert codec.element_bytes(_rows(row_of("array", 10))).tolist() == [-(-10 * 6501 // 8)]


def _rows(*rows: bytes) -> Any:
    return binary(list(rows)).combine_chunks()


@pytest.mark.parametrize(
    "type_",
    [
        *("UInt64", "Array(UInt64)", "Array(String)", "Map(String, String)", "Map(String, UInt8)"),
        *("Array(Nullable(UInt64))", "Array(Array(UInt8))", WIDE, "Tuple(a Array(UInt8), b UUID)"),
        *("Variant(UInt8, String)", "Nullable(String)", "LowCardinality(String)"),
    ],
)
def test_other_tables_cost_no_look(type_: str) -> None:
    """Negative control: of these no element takes much more than its bytes."""
    codec = codec_of({"id": "UInt8", "a": type_})
    assert not codec.counts_elements
    assert not codec.counts_in_rows
    with pytest.raises(AttributeError):
        codec.element_bytes(_rows(b""))


def test_what_a_tuple_leaves_out_takes_its_default_text() -> None:
    """Red before: of a UUID the four bytes of its place were counted, and not its 36 characters."""
    codec = codec_of({"id": "UInt8", "a": f"Tuple({', '.join(f'c{n} UUID' for n in range(50))})"})
    values: Any = [row_batch([b"\x08\x01"] * 10)] * 20
    batch = decode(binary(values), codec, "batch").batch
    assert 0.95 < 200 * codec.row_bytes / batch.nbytes < 1.05
    assert codec_of({"a": "Nullable(UUID)"}).row_bytes == 33 // 8, "a column left out is null"


SMALL = codec_of(
    {"id": "UInt8", "a": "Array(Tuple(x UInt64, y UInt64, z Array(Tuple(p UInt64, q UInt64))))"}
)


@settings(deadline=None)
@given(
    drawn=st.lists(st.lists(st.lists(st.booleans(), max_size=3), max_size=3), max_size=5),
    start=st.integers(0, 2),
)
def test_elements_are_counted_row_by_row(drawn: Sequence[Any], start: int) -> None:
    rows = [
        b"".join(field(2, b"".join(field(3, b"\x0a\x00" * one) for one in inner)) for inner in row)
        for row in drawn
    ]
    array = _rows(*[b"x"] * start, *rows).slice(start)
    outer, inner = SMALL._counted[0].bits, SMALL._counted[0].inner[0].bits
    wanted = [-(-(len(row) * outer + sum(map(len, row)) * inner) // 8) for row in drawn]
    assert SMALL.element_bytes(array).tolist() == wanted


def mutated(value: bytes, rng: random.Random) -> bytes:
    data = bytearray(value)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        data[at] = rng.choice([0, 1, 2, 8, 10, 11, 12, 18, 26, 127, 128, 255, rng.randrange(256)])
    return bytes(data[: rng.randint(1, len(data))] if rng.random() < 0.3 else data)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_bad_is_so_for_the_same_reason_whether_counted_or_not(seed: int) -> None:
    """With a bound that all are within, as without: the counter refuses nothing else."""
    rng = random.Random(seed)
    good = field(2, b"\x08\x05" + field(3, b"\x08\x09\x10\x01")) + b"\x08\x07"
    plain = row_batch([good, b"\x08\x01"])
    values: Any = [mutated(plain, rng) if rng.random() < 0.5 else plain for _ in range(200)]
    without = decode(binary(values), SMALL, "batch")
    within = decode(binary(values), SMALL, "batch", bound=RowBound(SMALL.row_bytes, 1 << 40))
    assert within.batch.equals(without.batch)
    assert np.array_equal(within.good, without.good)
    assert len(without.bad) > 20
    assert [(one.index, one.reason.kind) for one in within.bad] == [
        (one.index, one.reason.kind) for one in without.bad
    ]
