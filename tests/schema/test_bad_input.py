"""Bad messages are found one by one, and their neighbours come through."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.rows.bisect import isolate
from relay.rows.decode import Decoded, decode
from relay.rows.envelope import count_rows
from relay.schema.dead_reason import DeadKind
from tests.profiles import examples
from tests.schema.rows import binary, codec_of, decode_rows, row, row_batch

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("decoder")

CODEC = codec_of({
    "id": "Int64",
    "name": "Nullable(String)",
    "tiny": "Int8",
    "small": "UInt16",
    "day": "Date",
    "at": "DateTime64(3, 'UTC')",
    "kind": "Enum8('up' = -1, 'down' = 1)",
    "key": "UUID",
    "code": "FixedString(3)",
})  # fmt: skip

GOOD_ROW = row(
    CODEC,
    id=7,
    name="grüße",
    tiny=-128,
    small=65_535,
    day=19_000,
    at=1,
    kind="up",
    key="61F0c404-5cb3-11e7-907b-a6006ad3dba0",
    code=b"abc",
)


def good(ident: int, rows: int = 1) -> bytes:
    return row_batch([row(CODEC, id=ident, name="ü")] * rows)


def bad_row(**values: object) -> bytes:
    """A good row, a row with a value that does not fit, a good row."""
    return row_batch([GOOD_ROW, row(CODEC, id=1, **values), GOOD_ROW])


BAD_UTF8 = b"\x12\x02\xff\xfe"  # field 2 (name), two bytes that are no UTF-8
FOREIGN = b"\x12\x03abc"  # an envelope's field 2, which RowBatch does not have

BAD = {
    "null value": (None, "null value"),
    "empty value": (b"", "empty batch"),
    "no RowBatch": (b"\xff\xfe hello", "not a RowBatch"),
    "text": (b'{"id": 1}', "not a RowBatch"),
    "foreign field": (FOREIGN, "not a RowBatch: 5 of 5 bytes do not belong to rows"),
    "rows and a foreign field": (row_batch([GOOD_ROW]) + FOREIGN, "not a RowBatch: 5 of"),
    "number where rows should be": (b"\x08\x01", "not a RowBatch"),
    "cut short": (row_batch([GOOD_ROW, GOOD_ROW])[:-5], "not a RowBatch"),
    "row cut short": (row_batch([GOOD_ROW, GOOD_ROW[:-2], GOOD_ROW]), "row 2: "),
    # Its length says more bytes than it has: joined to its neighbour it would swallow it.
    "length beyond the end": (b"\x0a\x7f" + GOOD_ROW[:20], "not a RowBatch"),
    # ptars panics at these, which is no Exception of Python's.
    "length near 2^64": (b"\x0a\xfd" + b"\xff" * 8 + b"\x01" + GOOD_ROW, "not a RowBatch"),
    "length near 2^64 in a row": (row_batch([b"\x12\xfd" + b"\xff" * 8 + b"\x01"]), "row 1: "),
    "bad UTF-8": (row_batch([GOOD_ROW, BAD_UTF8]), "row 2: "),
    "Int8 too large": (bad_row(tiny=128), "tiny: 128 does not fit Int8 (-128 to 127)"),
    "Int8 too small": (bad_row(tiny=-129), "row 2, column tiny: -129"),
    "UInt16 too large": (bad_row(small=65_536), "row 2, column small: 65536 does not fit UInt16"),
    "Date negative": (bad_row(day=-1), "row 2, column day: -1 does not fit Date"),
    "Date too late": (bad_row(day=65_536), "row 2, column day: 65536"),
    "DateTime64 too early": (bad_row(at=-2_208_988_800_001), "row 2, column at: "),
    "DateTime64 too late": (bad_row(at=10_413_792_000_000), "row 2, column at: "),
    "enum name unknown": (bad_row(kind="left"), "row 2, column kind: 'left' does not fit Enum8"),
    "enum name empty": (bad_row(kind=""), "row 2, column kind: ''"),
    "uuid short": (bad_row(key="61f0c404"), "row 2, column key: '61f0c404' does not fit UUID"),
    "uuid not hexadecimal": (bad_row(key="g" * 8 + "-5cb3-11e7-907b-a6006ad3dba0"), "column key"),
    "uuid and a newline": (bad_row(key="61f0c404-5cb3-11e7-907b-a6006ad3dba0\n"), "column key"),
    "FixedString too long": (bad_row(code=b"abcd"), "row 2, column code: b'abcd' does not fit"),
    "two columns": (bad_row(code=b"abcd", tiny=300), "row 2, column tiny: 300"),
}  # fmt: skip

KINDS = {
    "null value": DeadKind.NULL_VALUE,
    "empty value": DeadKind.EMPTY_BATCH,
    **dict.fromkeys(
        [name for name, (_, reason) in BAD.items() if reason.startswith("not a RowBatch")],
        DeadKind.NOT_A_BATCH,
    ),
    "row cut short": DeadKind.UNREADABLE_ROW,
    "length near 2^64 in a row": DeadKind.UNREADABLE_ROW,
    "bad UTF-8": DeadKind.UNREADABLE_ROW,
}
"""Of the others, a value does not fit."""


def idents(decoded: Decoded) -> list[int]:
    return decoded.batch.column("id").to_pylist()


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("place", [0, 2, 5])
def test_one_bad_message_among_good_ones(kind: str, place: int) -> None:
    """A bad message is named with its reason; all the others come through in order."""
    value, reason = BAD[kind]
    values: list[bytes | None] = [good(ident, rows=ident + 1) for ident in range(5)]
    values.insert(place, value)
    decoded = decode(binary(values), CODEC, "batch")
    assert [bad.index for bad in decoded.bad] == [place]
    assert reason in decoded.bad[0].reason.text
    assert decoded.bad[0].reason.kind == KINDS.get(kind, DeadKind.DOES_NOT_FIT)
    unfit = re.match(r"row 2, column (\w+)", decoded.bad[0].reason.text)
    assert decoded.bad[0].reason.field == (unfit[1] if unfit else "")
    assert decoded.messages == 5
    assert idents(decoded) == [ident for ident in range(5) for _ in range(ident + 1)]
    assert decoded.batch.schema.equals(CODEC.arrow_schema, check_metadata=True)


@pytest.mark.parametrize("kind", BAD)
def test_only_bad_messages(kind: str) -> None:
    """Where every message is bad, no row comes through and each is named."""
    decoded = decode(binary([BAD[kind][0]] * 3), CODEC, "batch")
    assert [bad.index for bad in decoded.bad] == [0, 1, 2]
    assert (decoded.messages, decoded.batch.num_rows) == (0, 0)


def test_no_messages() -> None:
    """No messages are no rows and no error."""
    decoded = decode(binary([]), CODEC, "batch")
    assert (decoded.batch.num_rows, decoded.messages, decoded.bad) == (0, 0, [])
    assert count_rows(binary([]), "batch").sum() == 0


def test_control_joined_messages_swallow_neighbours() -> None:
    """Control: joined before they are checked, a message cut short takes its neighbour along,
    which is why values are never joined."""
    cut = b"\x0a" + bytes([len(good(2))]) + b""
    joined = decode(binary([good(1) + cut + good(2)]), CODEC, "batch")
    apart = decode(binary([good(1), cut, good(2)]), CODEC, "batch")
    assert idents(apart) == [1, 2]
    assert idents(joined) != [1, 2]


def test_joined_whole_messages_are_one_message() -> None:
    """The values of several whole messages, joined, are again one valid message."""
    decoded = decode(binary([good(1) + good(2, rows=3)]), CODEC, "batch")
    assert (decoded.bad, idents(decoded)) == ([], [1, 2, 2, 2])


def test_bare_rows() -> None:
    """With row framing each value is one row; a null and a row cut short are named."""
    values = [GOOD_ROW, None, GOOD_ROW[:-1], row(CODEC, id=9), row(CODEC, tiny=999)]
    decoded = decode(binary(values), CODEC, "row")
    assert idents(decoded) == [7, 9]
    assert [bad.index for bad in decoded.bad] == [1, 2, 4]
    assert count_rows(binary(values), "row").sum() == 4


def test_unknown_framing() -> None:
    """Another framing is an error of the program, not of the messages."""
    with pytest.raises(ValueError, match="'rows'"):
        decode(binary([GOOD_ROW]), CODEC, "rows")


def test_nulls_are_not_out_of_range() -> None:
    """A field left out fits every type, also beside a value that does not fit."""
    decoded = decode(binary([row_batch([row(CODEC)]), bad_row(tiny=128, kind="x")]), CODEC, "batch")
    assert [bad.index for bad in decoded.bad] == [1]
    assert decoded.batch.to_pylist() == [dict.fromkeys(CODEC.column_names)]


def test_a_sliced_array_decodes_as_a_whole_one() -> None:
    """Where the array of values begins in memory makes no difference."""
    values: list[bytes | None] = [good(0), None, good(1, 2), BAD["bad UTF-8"][0], good(2)]
    sliced = binary([b"\x01", *values, None]).slice(1, len(values))
    assert decode(sliced, CODEC, "batch").batch.equals(decode(binary(values), CODEC, "batch").batch)


MESSAGES = st.lists(
    st.one_of(
        st.tuples(st.just("good"), st.integers(1, 4)),
        st.tuples(st.sampled_from(sorted(BAD)), st.just(0)),
    ),
    max_size=60,
)


@given(MESSAGES)
@settings(max_examples=examples(60), deadline=None)
def test_any_mix_gives_exactly_the_good_rows(messages: list[tuple[str, int]]) -> None:
    """Of any mix, the rows are exactly those of the good messages in order, and exactly the bad
    messages are named."""
    values, expected, bad = [], [], []
    for index, (kind, rows) in enumerate(messages):
        if kind == "good":
            values.append(good(index, rows))
            expected += [index] * rows
        else:
            values.append(BAD[kind][0])
            bad.append(index)
    decoded = decode(binary(values), CODEC, "batch")
    assert idents(decoded) == expected
    assert [one.index for one in decoded.bad] == bad
    assert decoded.messages == len(messages) - len(bad)
    # Rows of messages that open, though a row in them may turn out bad later.
    assert count_rows(binary(values), "batch").sum() >= len(expected)


@given(st.lists(st.binary(max_size=40), max_size=20), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_garbage_never_harms_neighbours(garbage: list[bytes], data: st.DataObject) -> None:
    """Whatever bytes a message has, decoding ends, and a good message beside it comes through."""
    values = list(garbage)
    place = data.draw(st.integers(0, len(values)))
    values.insert(place, good(4_711))
    decoded = decode(binary(list(values)), CODEC, "batch")
    assert 4_711 in idents(decoded)
    assert decoded.messages + len(decoded.bad) == len(values)
    assert place not in [bad.index for bad in decoded.bad]


@given(st.binary(max_size=60), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_mutated_rows_are_judged_as_protobuf_judges(cut: bytes, data: st.DataObject) -> None:
    """A row that protobuf's own runtime reads decodes to the same values, or is named bad for
    a value that does not fit, or a field that the row message does not explain."""
    at = data.draw(st.integers(0, len(GOOD_ROW)))
    mutated = GOOD_ROW[:at] + cut
    decoded = decode(binary([row_batch([mutated])]), CODEC, "batch")
    try:
        message = CODEC.message_class.FromString(mutated)
    except Exception:  # noqa: BLE001 - protobuf's DecodeError has no public base
        return
    if decoded.bad:
        assert re.match(r"row 1(, column \w+: |: field )", decoded.bad[0].reason.text)
        return
    parsed = {field.name: value for field, value in message.ListFields()}
    assert decoded.batch.to_pylist() == [{name: parsed.get(name) for name in CODEC.column_names}]


def fails_at(bad: set[int]) -> Callable[[int, int], range]:
    def attempt(low: int, high: int) -> range:
        if found := sorted(bad & set(range(low, high))):
            raise ValueError(f"at {found[0]}")
        return range(low, high)

    return attempt


@given(st.integers(0, 200), st.sets(st.integers(0, 199)))
def test_isolate_finds_exactly_the_failing_items(count: int, bad: set[int]) -> None:
    """Every item is either in a range that succeeded or named, in order."""
    done, failed = isolate(fails_at(bad), count)
    assert [at for at, _ in failed] == sorted(at for at in bad if at < count)
    assert [i for span in done for i in span] == [i for i in range(count) if i not in bad]


def test_isolate_is_cheap_where_little_is_bad() -> None:
    """One bad item of a million costs about forty attempts, none costs one."""
    calls = []

    def counted(low: int, high: int) -> None:
        calls.append((low, high))
        if low <= 654_321 < high:
            raise ValueError

    isolate(counted, 1_000_000)
    assert len(calls) <= 2 * 20 + 1
    calls.clear()
    isolate(counted, 600_000)
    assert calls == [(0, 600_000)]


def test_wire_types_are_checked_on_the_way_out() -> None:
    """encode_rows refuses a column the table lacks and one of another Arrow type."""
    with pytest.raises(ValueError, match="no column nope"):
        CODEC.encode_rows(pa.record_batch({"nope": pa.array([1])}))
    with pytest.raises(ValueError, match="column id is int32, not int64"):
        CODEC.encode_rows(pa.record_batch({"id": pa.array([1], pa.int32())}))


def test_encoded_rows_decode_to_the_same() -> None:
    """encode_rows and decode_rows are inverse, with nulls, zeros and empty strings apart."""
    batch = pa.RecordBatch.from_pylist(
        [
            dict.fromkeys(CODEC.column_names),
            {"id": 0, "name": "", "tiny": 0, "at": 0, "kind": "", "code": b""},
            {"id": -(2**63), "name": "日本", "day": 2**31 - 1, "at": 2**63 - 1},
        ],
        schema=CODEC.wire_schema,
    )
    rows = CODEC.encode_rows(batch)
    assert rows[0].as_py() == b""
    assert decode_rows(CODEC, rows).equals(batch)
    for one, values in zip(rows.to_pylist(), batch.to_pylist(), strict=True):
        assert one == row(CODEC, **values)
