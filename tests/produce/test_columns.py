from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue, BatchOrigin, row_columns
from relay.produce.file_options import is_required
from relay.produce.row_encoder import RowEncoder
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import codec

CODEC = codec()
NEW_YEAR = 1_577_836_800  # 2020-01-01 00:00:00 UTC
UTC = dt.UTC


def convert(name: str, values: Any) -> list[Any]:
    batch = pa.record_batch({name: values if isinstance(values, pa.Array) else pa.array(values)})
    found: list[Any] = row_columns(CODEC, batch, BatchOrigin("f.csv", 11)).column(name).to_pylist()
    return found


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("small", ["-128", "127", None], [-128, 127, None]),
        ("small", [1.0], [1]),
        ("big", ["18446744073709551615"], [2**64 - 1]),
        ("word", pa.array(["a", None]).dictionary_encode(), ["a", None]),
        ("day", ["2020-01-01", "18262", None], [18262, 18262, None]),
        ("day", [dt.date(2020, 1, 1)], [18262]),
        ("day", [dt.datetime(2020, 1, 1)], [18262]),  # noqa: DTZ001 - no zone counts as UTC
        ("second", ["2020-01-01T00:00:00Z", "2020-01-01 00:00:00"], [NEW_YEAR] * 2),
        ("second", ["2020-01-01T01:00:00+01:00", str(NEW_YEAR)], [NEW_YEAR] * 2),
        ("second", [dt.datetime(2020, 1, 1, tzinfo=UTC)], [NEW_YEAR]),
        ("milli", ["2020-01-01T00:00:00.125Z"], [NEW_YEAR * 1000 + 125]),
        ("milli", ["2299-12-31 00:00:00"], [10_413_705_600_000]),
        ("nano", ["2020-01-01T00:00:00.000000001"], [NEW_YEAR * 10**9 + 1]),
        ("ratio", ["1e3", "-0.5"], [1000.0, -0.5]),
        ("flag", ["true", "0", None], [True, False, None]),
        ("flag", [1, 0], [True, False]),
        ("code", ["ab", "abc"], [b"ab", b"abc"]),
        ("kind", ["x", None], ["x", None]),
        ("note", [None, None], [None, None]),
    ],
)
def test_what_a_reader_gives_becomes_what_the_row_message_holds(
    name: str, values: Any, expected: list[Any]
) -> None:
    """Text, numbers and times become the protobuf-side value, exactly."""
    assert convert(name, values) == expected


@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("small", ["1", "300"], "'300'"),
        ("small", [1, 1.5], "1.5"),
        ("big", ["1", "-1"], "'-1'"),
        ("word", [None, 5], "5"),
        ("day", ["1", "soon"], "'soon'"),
        ("day", ["1", "-1"], "'-1'"),
        ("second", ["1", "2020-01-01T00:00:00.5"], "'2020-01-01T00:00:00.5'"),
        ("milli", ["1", "2020-01-01T00:00:00.1234"], "'2020-01-01T00:00:00.1234'"),
        ("milli", [1, 2**62], str(2**62)),
        ("ratio", ["1", "one"], "'one'"),
        ("flag", [1, 2], "2"),
        ("code", ["abc", "abcd"], "'abcd'"),
        ("kind", ["x", "z"], "'z'"),
        ("id", ["00000000-0000-0000-0000-000000000000", "0"], "'0'"),
    ],
)
def test_what_does_not_fit_is_named_with_file_row_column_and_value(
    name: str, values: list[Any], shown: str
) -> None:
    """The second value of each column is refused, and the error says where it stands."""
    with pytest.raises(BadValue) as refused:
        convert(name, values)
    assert refused.value.message.startswith(f"f.csv, row 12, column '{name}': {shown} does not fit")


def test_a_time_of_day_is_not_cut_off_to_make_a_date() -> None:
    """A Date column takes midnights only."""
    with pytest.raises(BadValue, match="time of day"):
        convert("day", [dt.datetime(2020, 1, 1, 5)])  # noqa: DTZ001


def test_an_error_tells_of_one_value_only() -> None:
    """The engine converts days before times, and met another bad value first."""
    for values in (["01/02/2000", "Mar 1T"], ["01/02/2000", "Mar 1 10:00Z"]):
        with pytest.raises(BadValue, match="row 11, column 'day': '01/02/2000'") as caught:
            convert("day", values)
        assert "Mar" not in caught.value.message


def test_the_first_of_many_bad_values_is_found() -> None:
    """Row numbers are exact however far into the batch the value stands."""
    values = ["1"] * 10_000
    values[7_654] = values[9_000] = "no"
    with pytest.raises(BadValue, match=r"row 7665,"):
        convert("small", values)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("small", pa.int8()), ("word", pa.string()), ("small", pa.int8())], "'small'"),
        ([("word", pa.struct([("x", pa.int8()), ("x", pa.int8())]))], "'word.x'"),
        (
            [("word", pa.list_(pa.struct([("x", pa.int8()), ("x", pa.int8())])))],
            "'word.item.x'",
        ),
    ],
)
def test_a_column_that_is_there_twice_is_refused(fields: Any, said: str) -> None:
    """Which of them is meant cannot be known: from a file, and from a program's batch."""
    schema = pa.schema([pa.field(*field) for field in fields])
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, one.type) for one in schema], schema=schema)
    with pytest.raises(ConfigError, match=f"f.csv: column {said} occurs twice"):
        row_columns(CODEC, batch, BatchOrigin("f.csv", 1))


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("day", "01/02/2000", "Mar 1"),
        ("small", "one", "two"),
        ("ratio", "a half", "a third"),
    ],
)
def test_the_reason_is_about_the_value_that_is_named(name: str, first: str, last: str) -> None:
    """Of a whole column Arrow's own error may name any of those that are wrong."""
    with pytest.raises(BadValue) as refused:
        convert(name, [first, last, first])
    assert first in refused.value.message
    assert last not in refused.value.message


@pytest.mark.parametrize("text", ["0xFFFFFFFF", "0XFF", "0x7f"])
@pytest.mark.parametrize(
    "type_", ["Int8", "UInt8", "Int32", "UInt32", "Int64", "UInt64", "Int256", "Time"]
)
def test_a_whole_number_has_decimal_digits(text: str, type_: str) -> None:
    """Arrow reads hexadecimal ones, too, and the highest bit as a sign: 0xFFFFFFFF is -1."""
    one = codec(ColumnDef("c", type_))
    for array in (pa.array(["12", text]), pa.array([b"12", text.encode()])):
        with pytest.raises(BadValue, match="f, row 2, column 'c'"):
            row_columns(one, pa.record_batch({"c": array}), BatchOrigin("f", 1))


@pytest.mark.parametrize(
    ("type_", "required"),
    [
        ("Int64", True),
        ("LowCardinality(String)", True),
        ("Array(Nullable(String))", True),
        ("Map(String, Nullable(UInt8))", True),
        ("Tuple(a Nullable(UInt8))", True),
        ("Nullable(Int64)", False),
        ("LowCardinality(Nullable(String))", False),
        ("SimpleAggregateFunction(any, Nullable(String))", False),
        ("Nullable(Tuple(a UInt8))", False),
        ("Variant(String, UInt64)", False),
        ("Dynamic", False),
    ],
)
def test_a_column_may_be_left_out_whose_own_value_is_null_then(type_: str, required: bool) -> None:
    """That its elements may be null says nothing about it: an empty list was stored."""
    table = codec(ColumnDef("c", type_), ColumnDef("d", type_, "DEFAULT"))
    assert [is_required(column) for column in table.schema.columns] == [required, False]


MIDNIGHT = pd.Timestamp("1970-01-01")


@pytest.mark.parametrize("column", ["Int8", "Int32", "Nullable(Int64)", "UInt64", "Bool"])
@pytest.mark.parametrize(
    "value",
    [
        MIDNIGHT,
        MIDNIGHT.tz_localize("UTC"),
        MIDNIGHT.to_pydatetime(),
        MIDNIGHT.date(),
        np.datetime64(0, "s"),
        np.datetime64(0, "ns"),
        dt.time(0),
        dt.timedelta(0),
        np.timedelta64(0, "ns"),
    ],
)
def test_a_time_is_no_number(column: str, value: Any) -> None:
    """Its bare count was stored, in the unit of its reader: rows of a column differed.

    This one is 0 in every unit, which every type holds.
    """
    table = codec(ColumnDef("n", column), ColumnDef("list", f"Array({column})"))
    for name, given in (("n", value), ("list", [value])):
        with pytest.raises(BadValue, match=f"column '{name}': .* is a time: give the number"):
            RowEncoder(table).encode({name: given})
        with pytest.raises(BadValue, match=f"column '{name}': .* is a time: give the number"):
            row_columns(table, pa.record_batch({name: pa.array([given])}), BatchOrigin("f", 1))
