"""Rows in every form that protobuf allows: what is foreign in them is found, and nothing else."""

from __future__ import annotations

from itertools import chain
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.rows.wire_scan import WIDTHS, wire_type
from relay.schema.evolution import ColumnDef
from relay.schema.types.proto_shape import ProtoMessage
from tests.profiles import examples
from tests.schema.rows import codec_of
from tests.schema.test_unknown_fields import decoded, history, long, tagged, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.rows.row_codec import RowCodec
    from relay.schema.types.proto_shape import ProtoField, Shape

pytestmark = pytest.mark.usefixtures("decoder")

LISTS = {"a": "Array(UInt32)", "b": "Array(UInt32)", "d": "Int64", "x": "Array(Bool)"}
CODEC = codec_of(LISTS)
NESTED = codec_of({
    "t": "Tuple(l Array(UInt32), s String, f Bool)",
    "n": "Array(Array(Int32))",
    "m": "Map(String, Array(Float64))",
    "v": "Variant(UInt32, Array(UInt64))",
    "o": "Nullable(Int64)",
})  # fmt: skip
SCALARS = {"d": "Int64", "i": "Int32", "u": "UInt64", "f": "Bool", "r": "Float64", "s": "String"}
GONE = history(
    [ColumnDef(*pair) for pair in (SCALARS | {"a": "Array(UInt32)", "b": "Array(Int64)"}).items()],
    [ColumnDef(*pair) for pair in SCALARS.items()],
)
"""A flat table that once had lists: the compiled decoder passes over rows with these."""
ONES = tagged(1, 0, b"\x07") + tagged(2, 0, b"\x08")
"""Two lists of one number each, which are not packed: packed ones take a byte more."""
NINE = tagged(9, 0, b"\x2a")
FIXED = {"double": 8, "float": 4}
REASON = "field 9 is not known"


def reasons(rows: list[bytes], codec: RowCodec = CODEC) -> dict[int, str]:
    """Of the rows that are bad."""
    return {bad.index: bad.reason.text.partition(": ")[2] for bad in decoded(rows, codec).bad}


def test_bytes_saved_by_lists_of_one_number_hide_no_stranger() -> None:
    """Two lists of one number that are not packed save what a short stranger takes."""
    good = ONES + tagged(3, 0, b"\x05")
    assert reasons([good, good + NINE, good, NINE + good]) == {1: REASON, 3: REASON}
    wrong = "field 3 (d) is length-delimited on the wire, not varint"
    assert reasons([ONES + long(3, b"")] * 5) == dict.fromkeys(range(5), wrong)
    packed = long(1, b"\x07") + long(2, b"\x08")
    assert reasons([packed + NINE, packed]) == {0: REASON}


def test_nor_do_those_saved_in_another_row() -> None:
    """The rows of a block save together, however little each of them does."""
    one = tagged(1, 0, b"\x07")
    assert reasons([one, one + NINE, one]) == {1: REASON}
    assert reasons([one, NINE, one]) == {1: REASON}
    assert reasons([tagged(4, 0, b"\x01"), one, NINE]) == {2: REASON}


@pytest.mark.parametrize("size", [0, 1, 122, 123, 124])
def test_one_list_within_a_message_may_save_more_than_a_byte(size: int) -> None:
    """The length of the message around it may be shorter by a byte, too."""
    text = long(2, b"x" * size)
    within = [long(1, tagged(1, 0, b"\x07") + text), long(2, tagged(1, 0, b"\x07"))]
    rows = [*within, *(one + NINE for one in within), long(1, tagged(1, 0, b"\x07") + NINE + text)]
    assert reasons(rows, NESTED) == {2: REASON, 3: REASON, 4: "field 1.9 is not known"}


def test_nor_do_lists_of_columns_that_are_gone() -> None:
    """They are passed over, also by what compares lengths."""
    ones = tagged(1, 0, b"\x05") + tagged(7, 0, b"\x07") + tagged(8, 0, b"\x08")
    assert reasons([ones, ones + NINE], GONE) == {1: REASON}


def test_a_packed_list_is_read_number_by_number() -> None:
    """That all its bytes belong to the list does not say that its numbers fit."""
    rows = [long(4, b"\x01\x00"), long(4, b"\x01" + varint(2**28)), long(1, varint(2**32))]
    bool_, wide = (
        "field 4 (x): 268435456 does not fit bool",
        "field 1 (a): 4294967296 does not fit uint32",
    )
    assert reasons(rows[:1]) == {}
    assert reasons(rows[:2]) == {1: bool_}
    assert reasons(rows) == {1: bool_, 2: wide}
    assert reasons([long(4, b"\x81\x00\x01")]) == {}


class Forms:
    """Draws serialized messages, and notes whether one holds what its fields do not explain."""

    def __init__(self, random: Random, fields: Sequence[ProtoField]) -> None:
        self._random = random
        self._tidy = random.random() < 0.5
        """Whether protobuf itself could have written them, but for lists that are not packed."""
        self.foreign = False
        self.row = self._message(ProtoMessage(tuple(fields)))

    def _message(self, message: ProtoMessage) -> bytes:
        given = [one for one in message.fields if not self._one_in(4)]
        if message.form == "oneof":
            given = given[:1]
        pieces = list(chain.from_iterable(self._pieces(one.number, one.shape) for one in given))
        if self._one_in(8):
            self.foreign = True
            first = message.fields[0]
            wrong = tagged(first.number, 5, bytes(4))
            if wire_type(first.shape) == 5:
                wrong = tagged(first.number, 0, b"\x00")
            pieces.append(self._random.choice([NINE, NINE, long(9, b""), long(15, b"x"), wrong]))
        if self._oddly(2):
            self._random.shuffle(pieces)
        return b"".join(pieces)

    def _one_in(self, times: int) -> bool:
        return self._random.randrange(times) == 0

    def _oddly(self, times: int) -> bool:
        return not self._tidy and self._one_in(times)

    def _pieces(self, number: int, shape: Shape) -> list[bytes]:
        """A field's bytes, in as many pieces as it comes."""
        inner = shape.message
        if inner is not None:
            times = self._random.randrange(4) if shape.repeated else 1
            # Of a oneof two alternatives would be given.
            times += not shape.repeated and inner.form != "oneof" and self._oddly(4)
            return [long(number, self._message(inner)) for _ in range(times)]
        if not shape.repeated:
            values = [self._value(shape.scalar) for _ in range(1 + self._oddly(4))]
            return [tagged(number, wire_type(shape), one) for one in values]
        pieces = []
        for _ in range(1 + self._oddly(4)):
            values = [
                self._value(shape.scalar) for _ in range(self._random.choice([1, 1, 1, 0, 3]))
            ]
            if self._one_in(3) and (values or not self._tidy):
                pieces.append(long(number, b"".join(values)))
            else:
                pieces += [tagged(number, wire_type(shape), one) for one in values]
        return pieces

    def _value(self, scalar: str) -> bytes:
        if scalar in FIXED:
            size = FIXED[scalar]
            return self._random.choice([bytes(size), bytes(size - 1) + b"\x80"])
        if scalar == "string":
            size = self._random.choice([0, 1, 3, *range(118, 126)])
            return varint(size) + b"x" * size
        if scalar in WIDTHS and self._one_in(40):
            self.foreign = True
            return varint(2**40)
        low, high = WIDTHS.get(scalar, (0, 2**63 - 1))
        number = self._random.choice([low, low + 1, 1, high // 2**20, high])
        found = varint(number % 2**64)
        if len(found) < 8 and self._oddly(4):
            found = found[:-1] + bytes([found[-1] | 0x80, 0x80, 0])
        return found


@pytest.mark.parametrize("codec", [CODEC, NESTED, GONE], ids=["lists", "nested", "flat"])
@given(st.integers(0, 2**64 - 1), st.sampled_from([1, 2, 3, 40]))
@settings(max_examples=examples(80), deadline=None)
def test_foreign_fields_are_found_in_rows_of_any_form(
    codec: RowCodec, seed: int, rows: int
) -> None:
    """Lists packed, not packed and both, fields twice, out of order and longer than need be, empty
    messages, entries without a key: none of it is foreign, and none of it hides what is."""
    random = Random(seed)
    forms = [Forms(random, codec.row_fields) for _ in range(rows)]
    foreign = [at for at, one in enumerate(forms) if one.foreign]
    assert sorted(reasons([one.row for one in forms], codec)) == foreign
