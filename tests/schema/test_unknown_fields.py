"""What a row holds and its table never had: found, named, counted."""

from __future__ import annotations

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.arrow.array_memory import in_one_piece
from relay.rows import unknown_fields, wire_scan
from relay.rows.decode import Decoded, decode
from relay.rows.row_codec import RowCodec
from relay.rows.unknown_fields import find_unexplained
from relay.rows.wire_scan import scan
from relay.schema.dead_reason import DeadKind
from relay.schema.evolution import ColumnDef, evolve
from tests.profiles import examples
from tests.schema.rows import TABLE, binary, codec_of, decode_rows, row_batch
from tests.schema.values import fill

pytestmark = pytest.mark.usefixtures("decoder")

CODEC = codec_of({
    "id": "Int64",
    "small": "Int8",
    "flag": "Bool",
    "name": "Nullable(String)",
    "ratio": "Float64",
    "list": "Array(UInt32)",
    "pair": "Tuple(a Int32, b Array(String))",
    "by": "Map(String, UInt16)",
})  # fmt: skip
LIST = [1, 300, 2**32 - 1]
ROW = {1: 5, 2: -3, 3: True, 4: "ü", 5: 0.5, 6: LIST, 7: {1: -1, 2: ["x"]}, 8: [("k", 7)]}
GOOD = fill(CODEC.message_class(), ROW).SerializeToString()


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def tagged(number: int, wire: int, payload: bytes) -> bytes:
    return varint(number << 3 | wire) + payload


def long(number: int, payload: bytes) -> bytes:
    return tagged(number, 2, varint(len(payload)) + payload)


STRANGERS = {
    "unknown varint": (tagged(9, 0, b"\x05"), "field 9 is not known"),
    "unknown string": (long(9, b"new"), "field 9 is not known"),
    "unknown double": (tagged(100, 1, bytes(8)), "field 100 is not known"),
    "unknown float": (tagged(2_000, 5, bytes(4)), "field 2000 is not known"),
    "unknown group": (tagged(9, 3, b"\x08\x01") + tagged(9, 4, b""), "field 9 is not known"),
    "greatest number": (tagged(2**29 - 1, 0, b"\x00"), "field 536870911 is not known"),
    "nested": (long(7, long(3, b"deep")), "field 7.3 is not known"),
    "in a map": (long(8, long(1, b"k") + tagged(3, 0, b"\x01")), "field 8.3 is not known"),
    "string for a number": (long(1, b"abc"), "field 1 (id) is length-delimited on the wire, not"),
    "number for a string": (tagged(4, 0, b"\x01"), "field 4 (name) is varint on the wire, not"),
    "float for a double": (tagged(5, 5, bytes(4)), "field 5 (ratio) is 32 bits on the wire, not"),
    "number for a message": (tagged(7, 0, b"\x01"), "field 7 (pair) is varint"),
    "wrong inside": (long(7, tagged(2, 0, b"\x01")), "field 7.2 (b) is varint"),
    "too wide": (tagged(2, 0, varint(2**32 + 5)), "field 2 (small): 4294967301 does not fit int32"),
    "too wide, negative": (tagged(2, 0, varint(2**64 - 2**31 - 1)), "(small): -2147483649 does"),
    "unsigned for a signed": (tagged(2, 0, varint(2**31)), "(small): 2147483648 does not fit"),
    "no bool": (tagged(3, 0, b"\x02"), "field 3 (flag): 2 does not fit bool"),
    "too wide in a list": (tagged(6, 0, varint(2**33)), "field 6 (list): 8589934592 does not fit"),
    "too wide, packed": (long(6, b"\x01" + varint(2**35) + b"\x02"), "(list): 34359738368 does"),
    "too wide inside": (long(7, tagged(1, 0, varint(2**40))), "field 7.1 (a): 1099511627776 does"),
}  # fmt: skip
UNKNOWN = [name for name, (_, reason) in STRANGERS.items() if "not known" in reason]
HARMLESS = {
    "not packed": tagged(6, 0, b"\x01") + tagged(6, 0, b"\x02"),
    "packed twice": long(6, b"\x01") + long(6, b"\x02"),
    "packed, empty": long(6, b""),
    "twice": tagged(1, 0, b"\x01"),
    "longer than it need be": tagged(1, 0, b"\x81\x80\x00"),
    "the tag too": b"\x88\x00\x01",
    "merged message": long(7, tagged(1, 0, b"\x01")),
    "map key alone": long(8, long(1, b"k")),
    "map key twice": long(8, long(1, b"k") + tagged(2, 0, b"\x01")),
}


def decoded(rows: list[bytes], codec: RowCodec = CODEC, unknown_fields: str = "dead") -> Decoded:
    return decode(binary([row_batch([one]) for one in rows]), codec, "batch", unknown_fields)


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_makes_its_message_a_dead_letter(name: str, place: str) -> None:
    """One field that the row message does not explain, anywhere: that message alone is dead."""
    extra, reason = STRANGERS[name]
    rows = [GOOD, extra + GOOD if place == "before" else GOOD + extra, GOOD]
    found = decoded(rows)
    assert [bad.index for bad in found.bad] == [1]
    assert reason in found.bad[0].reason.text
    kind = DeadKind.DOES_NOT_FIT
    if "not known" in reason:
        kind = DeadKind.UNKNOWN_FIELD
    elif " on the wire" in found.bad[0].reason.text:
        kind = DeadKind.WRONG_WIRE_TYPE
    assert found.bad[0].reason.kind == kind
    assert found.messages == 2


@pytest.mark.parametrize("name", STRANGERS)
def test_ignored_only_where_nothing_known_is_lost(name: str) -> None:
    """With "ignore", unknown numbers are passed over and counted; a known field of another wire
    type or width is dead all the same."""
    extra, _ = STRANGERS[name]
    found = decoded([GOOD, GOOD + extra, GOOD], unknown_fields="ignore")
    if name in UNKNOWN:
        assert (found.bad, found.messages) == ([], 3)
        assert list(found.unknown.values()) == [1]
        if "." not in "".join(found.unknown):
            assert found.batch.column("id").to_pylist() == [5, 5, 5]
    else:
        assert ([bad.index for bad in found.bad], found.unknown) == ([1], {})


WIDE = codec_of({
    "unsigned": "UInt32",
    "signed": "Int32",
    "small": "UInt8",
    "at": "DateTime",
    "day": "Nullable(Date)",
    "list": "Array(UInt32)",
    "pair": "Tuple(a Int32)",
    "by": "Map(String, Int32)",
})  # fmt: skip
SAME_LENGTH = {
    "UInt32": (tagged(1, 0, varint(2**34 + 2**31)), "1 (unsigned): 19327352832"),
    "Int32": (tagged(2, 0, varint(2**34 + 2**28)), "2 (signed): 17448304640"),
    "Int32, negative": (tagged(2, 0, varint(2**64 - 2**32 - 5)), "2 (signed): -4294967301"),
    "UInt8": (tagged(3, 0, varint(2**32 + 2**28)), "3 (small): 4563402752"),
    "DateTime": (tagged(4, 0, varint(2**33 + 1_700_000_000)), "4 (at): 10289934592"),
    "Date": (tagged(5, 0, varint(2**64 - 2**33 - 1)), "5 (day): -8589934593"),
    "in a list": (long(6, b"\x01" + varint(2**34 + 2**31)), "6 (list): 19327352832"),
    "in a tuple": (long(7, tagged(1, 0, varint(2**64 - 2**32 - 5))), "7.1 (a): -4294967301"),
    "in a map": (long(8, long(1, b"k") + tagged(2, 0, varint(2**33 + 2**29))), "8.2 (value): 9"),
}  # fmt: skip


def test_each_message_is_told_its_own_number() -> None:
    """Also where another has the field in another wire type, and where one row has two of them."""
    rows = [
        tagged(2, 0, varint(2**32)),
        tagged(2, 0, varint(1_099_511_627_781)),
        tagged(2, 2, b"\x01x"),
        tagged(2, 0, varint(99_999_999_999)) + tagged(2, 0, varint(2**34)),
        long(6, varint(7) + varint(2**33 + 1)),
    ]
    said = [bad.reason.text for bad in decoded(rows, WIDE).bad]
    assert said == [
        "row 1: field 2 (signed): 4294967296 does not fit int32",
        "row 1: field 2 (signed): 1099511627781 does not fit int32",
        "row 1: field 2 (signed) is length-delimited on the wire, not varint",
        "row 1: field 2 (signed): 99999999999 does not fit int32",
        "row 1: field 6 (list): 8589934593 does not fit uint32",
    ]


@pytest.mark.parametrize("name", SAME_LENGTH)
def test_a_number_is_never_cut_though_its_length_stays(name: str) -> None:
    """Too wide for its field, and the half that a decoder keeps takes just as many bytes: found
    all the same, alone among good rows."""
    row, said = SAME_LENGTH[name]
    good = tagged(1, 0, varint(2**32 - 1)) + tagged(2, 0, varint(2**64 - 2**31)) + long(6, b"\x01")
    found = decoded([good, row, b"", good, row], WIDE)
    assert [bad.index for bad in found.bad] == [1, 4]
    assert f"field {said}" in found.bad[0].reason.text
    assert found.batch.column("unsigned").to_pylist() == [2**32 - 1, None, 2**32 - 1]
    assert found.batch.column("signed").to_pylist() == [-(2**31), None, -(2**31)]


@pytest.mark.parametrize("name", HARMLESS)
def test_other_encodings_of_the_known_are_fine(name: str) -> None:
    """Packed or not, doubled, merged and padded fields are protobuf: nothing is unknown_fields."""
    found = decoded([GOOD, GOOD + HARMLESS[name]])
    assert (found.bad, found.unknown, found.messages) == ([], {}, 2)


def test_counted_by_message_and_number() -> None:
    """Each unknown number is counted once per message, whatever becomes of it."""
    nine, ten = tagged(9, 0, b"\x01"), tagged(10, 0, b"\x01")
    messages = [
        row_batch([GOOD + nine, GOOD + nine]),
        row_batch([GOOD]),
        row_batch([GOOD + nine + ten, GOOD + ten]),
    ]
    for mode in ("dead", "ignore"):
        found = decode(binary(messages), CODEC, "batch", mode)
        assert found.unknown == {"9": 2, "10": 1}
        assert found.messages == (1 if mode == "dead" else 3)


def history(*versions: list[ColumnDef]) -> RowCodec:
    schema = None
    for columns in versions:
        schema = evolve(schema, TABLE, "u", columns)
    assert schema is not None
    return RowCodec(schema)


def test_numbers_of_dropped_columns_are_known() -> None:
    """A producer older than the table is none that is ahead of it: what it sends for a dropped
    column is passed over, also where the column's type is one that rows cannot carry."""
    a, b, c = ColumnDef("a", "Int64"), ColumnDef("b", "String"), ColumnDef("c", "Array(Int8)")
    odd = ColumnDef("odd", "AggregateFunction(uniq, UInt64)")
    codec = history([a, b, c, odd], [a])
    old = tagged(1, 0, b"\x07") + long(2, b"old") + long(3, b"\x01\x02") + long(4, b"state")
    found = decoded([old, tagged(1, 0, b"\x08")], codec)
    assert (found.bad, found.unknown) == ([], {})
    assert found.batch.column("a").to_pylist() == [7, 8]
    ahead = decoded([old + tagged(5, 0, b"\x01")], codec)
    assert "field 5 is not known" in ahead.bad[0].reason.text


def test_a_column_under_its_old_type_is_not_lost_unseen() -> None:
    """A value under the number that a column had before its type changed would be lost while
    the column takes its DEFAULT: it counts as unknown."""
    codec = history([ColumnDef("a", "Int8"), ColumnDef("b", "Int8")], [ColumnDef("a", "String")])
    rows = [tagged(1, 0, b"\x01"), long(3, b"x"), tagged(2, 0, b"\x01")]
    found = decoded(rows, codec)
    assert [bad.index for bad in found.bad] == [0]
    assert "field 1 is column a as it was when its type was Int8" in found.bad[0].reason.text
    ignored = decoded(rows, codec, "ignore")
    assert (ignored.bad, ignored.unknown) == ([], {"1": 1})


def test_control_without_the_scan_protobuf_skips_them() -> None:
    """Control: decoding alone does not see any of the unknown numbers."""
    for name in UNKNOWN:
        rows = in_one_piece(binary([GOOD + STRANGERS[name][0]]))
        assert decode_rows(CODEC, rows).column("id").to_pylist() == [5]


def test_a_long_row_goes_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with more fields than are walked together is read to its end."""
    many = tagged(6, 0, b"\x07") * 1_000
    rows = [GOOD + many + tagged(9, 0, b"\x01"), GOOD, GOOD + many, many + GOOD + many]
    for steps in (wire_scan.STEPS, 1, 3):
        monkeypatch.setattr(wire_scan, "STEPS", steps)
        found = decoded(rows)
        assert [bad.index for bad in found.bad] == [0]


FIELDS = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 2_047]),
        st.one_of(
            st.tuples(st.just(0), st.integers(0, 2**64 - 1).map(varint)),
            st.tuples(st.just(1), st.binary(min_size=8, max_size=8)),
            st.tuples(st.just(5), st.binary(min_size=4, max_size=4)),
            st.tuples(
                st.just(2), st.text(max_size=3).map(lambda t: varint(len(t.encode())) + t.encode())
            ),
        ),
    ),
    max_size=6,
)
FLAT = codec_of({"id": "Int64", "other": "UInt64", "name": "String", "ratio": "Float64"})


@given(st.lists(FIELDS, max_size=8))
@settings(max_examples=examples(80), deadline=None)
def test_the_scan_agrees_with_protobufs_own_unknown_fields(drawn: list[list]) -> None:
    """Of rows of any fields, what is found are the numbers that protobuf itself keeps as
    unknown, wrong wire types among them; and the sum misses none of them."""
    rows = [b"".join(tagged(n, w, p) for n, (w, p) in fields) for fields in drawn]
    expected = [
        {field.field_number for field in UnknownFieldSet(FLAT.message_class.FromString(one))}
        for one in rows
    ]
    found: list[set[int]] = [set() for _ in rows]
    array = in_one_piece(binary(list(rows)))
    for stranger in scan(array, FLAT.row_fields, []):
        for at in stranger.rows.tolist():
            found[at].add(int(stranger.field))
    assert found == expected
    quick = find_unexplained(array, FLAT.decode_all(array), FLAT)
    assert {at for one in quick for at in one.rows.tolist()} == {
        at for at, numbers in enumerate(expected) if numbers
    }


def test_sums_are_protobufs_own_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick test counts bytes as protobuf writes them, for all widths of numbers, tags and
    lengths: rows of extremes are explained without a look at any."""
    columns = [
        ColumnDef(f"c{at}", kind) for at, kind in enumerate(["Int64", "UInt64", "Int32"] * 6)
    ]
    columns += [
        ColumnDef("s", "String"),
        ColumnDef("b", "FixedString(99999)"),
        ColumnDef("f", "Bool"),
    ]
    codec = history(columns)
    edges = [0, 1, *(2**bits + d for bits in range(7, 57, 7) for d in (-1, 0)), 2**63 - 1]
    rows = []
    for at, edge in enumerate(edges):
        values = {1: edge, 4: -edge, 2: 2 * edge, 3: edge % 2**31, 6: -(edge % 2**31)}
        values |= {16: -edge, 17: edge, 19: "ü" * (edge % 20_000), 20: b"x" * (127 + at % 2)}
        rows.append(fill(codec.message_class(), values | {21: at % 2 == 0}).SerializeToString())
    array = in_one_piece(binary(list(rows)))
    monkeypatch.setattr(unknown_fields, "scan", None)
    assert find_unexplained(array, codec.decode_all(array), codec) == []


def test_a_wider_type_reads_what_was_written_for_the_narrower() -> None:
    """One number before and after: values of old and new producers alike, with their signs."""
    before = [ColumnDef("s", "Int8"), ColumnDef("u", "UInt32")]
    codec = history(before, [ColumnDef("s", "Int64"), ColumnDef("u", "UInt64")])
    old = tagged(1, 0, varint(2**64 - 7)) + tagged(2, 0, varint(2**32 - 1))
    new = tagged(1, 0, varint(2**40)) + tagged(2, 0, varint(2**64 - 1))
    found = decoded([old, new], codec)
    assert found.bad == []
    assert found.batch.to_pylist() == [{"s": -7, "u": 2**32 - 1}, {"s": 2**40, "u": 2**64 - 1}]
