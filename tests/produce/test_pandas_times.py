"""Times of pandas and numpy, as `DataFrame.to_dict("records")` gives them to RowProducer.write."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from relay.produce.arrow_columns import BadValue, BatchOrigin, row_columns
from relay.produce.row_encoder import RowEncoder
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import codec
from tests.schema.rows import decode_rows

COLUMNS = {
    "nano": "DateTime64(9)",
    "tenths": "DateTime64(7)",
    "hundredths": "DateTime64(8)",
    "micro": "DateTime64(6)",
    "second": "DateTime('UTC')",
    "day": "Date32",
    "span": "Time64(9)",
    "list": "Array(DateTime64(9))",
    "maybe": "Array(Nullable(DateTime64(9)))",
    "map": "Map(String, Time64(9))",
    "pair": "Tuple(at DateTime64(9), after Nullable(Time64(9)))",
}
CODEC = codec(*(ColumnDef(name, type_) for name, type_ in COLUMNS.items()))
NANO = pd.Timestamp("2024-01-01 00:00:00.123456789")
COUNT = 1_704_067_200_123_456_789
LATE = pd.Timestamp("2290-01-01")
LATE_COUNT = 10_098_259_200 * 10**7
HOUR = 3_600 * 10**9


def written(name: str, value: Any) -> Any:
    rows = pa.array([RowEncoder(CODEC).encode({name: value})], pa.binary())
    return decode_rows(CODEC, rows).column(name)[0].as_py()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("nano", NANO, COUNT),
        ("nano", NANO.tz_localize("UTC"), COUNT),
        ("nano", NANO.tz_localize("Europe/Berlin"), COUNT - HOUR),
        ("nano", NANO.tz_localize(dt.timezone(dt.timedelta(hours=-5))), COUNT + 5 * HOUR),
        ("nano", NANO.to_datetime64(), COUNT),
        ("nano", pd.Timestamp("1960-01-01 00:00:00.000000001"), -315_619_200 * 10**9 + 1),
        ("tenths", NANO.floor("100ns"), COUNT // 100),
        ("tenths", LATE.as_unit("us"), LATE_COUNT),
        ("tenths", LATE.as_unit("s").tz_localize("UTC"), LATE_COUNT),
        ("tenths", dt.datetime(2290, 1, 1, tzinfo=dt.UTC), LATE_COUNT),
        ("tenths", dt.date(2290, 1, 1), LATE_COUNT),
        ("tenths", "2290-01-01", LATE_COUNT),
        ("tenths", "2290-01-01 00:00:00.000001", LATE_COUNT + 10),
        ("tenths", "2290-01-01T01:00:00+01:00", LATE_COUNT),
        ("hundredths", LATE.as_unit("us"), LATE_COUNT * 10),
        ("hundredths", "2290-01-01", LATE_COUNT * 10),
        ("micro", NANO.floor("us"), COUNT // 1000),
        ("micro", pd.Timestamp("2299-12-31").as_unit("us"), 10_413_705_600 * 10**6),
        ("second", NANO.floor("s"), COUNT // 10**9),
        ("day", NANO.floor("D"), 19_723),
        ("span", pd.Timedelta("1ns"), 1),
        ("span", pd.Timedelta(-1, "ns"), -1),
        ("span", pd.Timedelta("1h"), HOUR),
        ("list", [NANO, NANO.tz_localize("Europe/Berlin")], [COUNT, COUNT - HOUR]),
        ("map", {"k": pd.Timedelta("1ns")}, [{"key": "k", "value": 1}]),
        ("pair", (NANO, pd.Timedelta("1ns")), {"at": COUNT, "after": 1}),
    ],
)
def test_every_digit_is_kept(name: str, value: Any, expected: Any) -> None:
    """Arrow, asked for no unit, takes them for Python's own, with microseconds."""
    assert written(name, value) == expected


def test_texts_beside_each_other_are_read_each_with_its_own_digits() -> None:
    """Nanoseconds hold no 2290, and microseconds not the seventh digit."""
    texts = ["2290-01-01", "2024-01-01 00:00:00.1234567", "2024-01-01T00:00:00.1234567Z", "7", None]
    wire = row_columns(CODEC, pa.record_batch({"tenths": pa.array(texts)}), BatchOrigin("f", 1))
    late = [LATE_COUNT, COUNT // 100, COUNT // 100, 7, None]
    assert wire.column("tenths").to_pylist() == late


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nano", "2290-01-01"),
        ("nano", LATE.as_unit("us")),
        ("tenths", dt.datetime(9999, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_a_year_that_the_type_does_not_hold_is_refused(name: str, value: Any) -> None:
    """The control: also where more digits than the type's are no reason."""
    with pytest.raises(BadValue, match=f"column '{name}'"):
        written(name, value)


@pytest.mark.parametrize("name", ["micro", "second", "day"])
def test_digits_that_the_type_does_not_hold_are_refused(name: str) -> None:
    """They were cut, of a DateTime64(6) at least."""
    with pytest.raises(BadValue, match=f"column '{name}'"):
        written(name, pd.Timestamp("2024-01-01 00:00:00.000000001"))


NOTHING = [pd.NaT, np.datetime64("NaT"), np.datetime64("NaT", "ns"), np.timedelta64("NaT", "ns")]


@pytest.mark.parametrize("nothing", NOTHING)
def test_nat_is_a_null(nothing: Any) -> None:
    """As in a data frame's column: left out, null where the type has one, and else refused."""
    encoder = RowEncoder(CODEC)
    assert (
        encoder.encode({"nano": nothing, "span": nothing, "pair": nothing, "list": nothing}) == b""
    )
    assert encoder.encode({"maybe": [NANO, nothing]}) == encoder.encode({"maybe": [NANO, None]})
    pair = {"at": NANO, "after": nothing}
    assert encoder.encode({"pair": pair}) == encoder.encode({"pair": {**pair, "after": None}})
    for name, value in (
        ("list", [NANO, nothing]),
        ("map", {"k": nothing}),
        ("pair", (nothing, None)),
    ):
        with pytest.raises(BadValue, match=f"column '{name}'.* a null in it"):
            encoder.encode({name: value})


def test_records_of_a_frame_are_what_its_columns_are() -> None:
    """Row by row and as a batch."""
    frame = pd.DataFrame(
        {
            "nano": [NANO, pd.NaT],
            "span": [pd.NaT, pd.Timedelta("1ns")],
            "micro": [NANO.floor("us").tz_localize("Europe/Berlin")] * 2,
        }
    )
    wire = row_columns(CODEC, pa.RecordBatch.from_pandas(frame), BatchOrigin("frame", 1))
    rows = [RowEncoder(CODEC).encode(row) for row in frame.to_dict("records")]
    assert decode_rows(CODEC, pa.array(rows, pa.binary())).equals(wire)
