"""A number for a float becomes the nearest that its field holds; a finite one never infinity."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue, BatchOrigin, row_columns
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile
from relay.produce.row_encoder import RowEncoder
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import codec
from tests.schema.rows import decode_rows

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {
    "short": "Float32",
    "long": "Nullable(Float64)",
    "brain": "BFloat16",
    "list": "Array(Float32)",
    "map": "Map(String, Float64)",
    "any": "Variant(Float32, String)",
    "price": "Decimal(9, 2)",
    "big": "Int256",
    "text": "String",
}
CODEC = codec(*(ColumnDef(name, type_) for name, type_ in COLUMNS.items()))
ENCODER = RowEncoder(CODEC)
SHORT_MOST = 2**128 - 2**104
SHORT_TIE = 2**128 - 2**103
"""Half way to what would be the next number of 32 bits: rounded to it, and there is none."""
DIGITS_400 = "9" * 400


def written(name: str, value: Any) -> Any:
    rows = pa.array([ENCODER.encode({name: value})], pa.binary())
    return decode_rows(CODEC, rows).column(name)[0].as_py()


def from_arrow(name: str, array: Any) -> list[Any]:
    batch = pa.record_batch({name: array})
    return row_columns(CODEC, batch, BatchOrigin("f", 1)).column(name).to_pylist()


def from_file(path: Path, text: str) -> list[dict[str, Any]]:
    path.write_text(text)
    options = FileOptions(allow_missing=True, ignore_unknown=True)
    pieces = RowFile.of(path, None, options).rows(ENCODER)
    return [row for piece in pieces for row in decode_rows(CODEC, piece.rows).to_pylist()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("short", 1e300),
        ("short", -1e39),
        ("short", SHORT_TIE),
        ("short", float(SHORT_TIE)),
        ("short", np.float64(1e300)),
        ("short", Decimal("1e39")),
        ("short", "1e39"),
        ("short", 10**400),
        ("brain", 1e300),
        ("long", 2**1024),
        ("long", -(10**400)),
        ("long", Decimal("1e400")),
        ("long", Decimal("-1e999999999")),
        ("long", "-1e400"),
        ("long", DIGITS_400),
        ("list", [1.0, 1e300]),
        ("map", {"a": 10**400}),
        ("any", {"as_float32": 1e300}),
        ("price", Decimal("1e999999999")),
        ("price", Decimal("1e-999999999")),
        ("big", Decimal("1e999999999")),
        # Python writes no text of such.
        *(pytest.param(one, 10**5000, id=f"{one}-digits") for one in ("long", "price", "text")),
    ],
)
def test_a_row_with_a_number_that_does_not_fit_is_refused(name: str, value: Any) -> None:
    """By its column, and never with an error of Python's own; nor is a text of a gigabyte made."""
    with pytest.raises(BadValue, match=f"column '{name}'"):
        ENCODER.encode({name: value})


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("short", pa.array([1.0, 1e300])),
        ("short", pa.array([-math.inf, -1e39])),
        ("short", pa.array([None, "1e39"])),
        ("short", pa.array(["inf", "-1e39"], pa.large_string())),
        ("short", pa.array([b"1", b"1e39"])),
        ("short", pa.array([Decimal(1), Decimal(10**40)])),
        ("brain", pa.array([1.0, 1e300])),
        ("long", pa.array(["-Infinity", "1e400"])),
        ("long", pa.array(["+INF", DIGITS_400]).dictionary_encode()),
        ("list", pa.array([[1.0], [math.inf, 1e300]])),
        ("any", pa.array([{"as_float32": 1.0}, {"as_float32": 1e300}])),
    ],
)
def test_a_column_with_a_number_that_does_not_fit_is_refused(name: str, array: Any) -> None:
    """The second row of two."""
    with pytest.raises(BadValue, match=f"f, row 2, column '{name}'.* too large"):
        from_arrow(name, array)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("short", math.inf, math.inf),
        ("short", -math.inf, -math.inf),
        ("short", np.float64(math.inf), math.inf),
        ("short", math.nextafter(SHORT_TIE, 0), SHORT_MOST),
        ("short", 2**24 + 1, 2**24),
        ("short", np.int64(2**24 + 1), 2**24),
        ("long", sys.float_info.max, sys.float_info.max),
        ("long", 2**53 + 1, 2**53),
        ("long", np.int64(2**53 + 1), 2**53),
        ("long", np.int64(2**60), 2**60),
        ("long", Decimal("1e-999999999"), 0.0),
        ("long", Decimal("Infinity"), math.inf),
        ("long", "-inf", -math.inf),
        ("list", [math.inf, 1.0], [math.inf, 1.0]),
    ],
)
def test_what_fits_is_the_nearest_number(name: str, value: Any, expected: Any) -> None:
    """Rounded as INSERT rounds; an infinity that was meant stays one."""
    assert written(name, value) == expected


def test_columns_are_rounded_as_rows_are() -> None:
    """Whole numbers, too, of which Arrow alone would refuse what it cannot keep."""
    assert from_arrow("long", pa.array([2**53 + 1, 2**60, None])) == [2**53, 2**60, None]
    assert from_arrow("short", pa.array([2**24 + 1, 2**63], pa.uint64())) == [2**24, 2**63]
    assert from_arrow("short", pa.array(["inf", "+Infinity", "-INF"])) == [
        *(math.inf, math.inf, -math.inf)
    ]
    assert from_arrow("short", pa.array([math.inf, None, 1.5])) == [math.inf, None, 1.5]
    assert math.isnan(written("short", math.nan))
    assert math.isnan(from_arrow("long", pa.array(["nan"]))[0])


BESIDE = ["", ', "price": 9.5']
"""A number for a Decimal has the whole block read row by row."""


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("short", "1e39"),
        ("short", "-1e300"),
        ("brain", "1e39"),
        ("long", "1e400"),
        ("long", "-1E+400"),
        ("long", DIGITS_400),
        ("long", f"{DIGITS_400}.5"),
        ("long", "9" * 5000),
        ("long", "1e99999999999999999999"),
        ("list", "[1, 1e39]"),
        ("map", f'[{{"key": "a", "value": {DIGITS_400}}}]'),
        ("any", '{"as_float32": 1e39}'),
        ("price", "1e400"),
        ("price", "1e-999999999"),
        ("text", "[" * 100_000),
    ],
)
def test_json_with_a_number_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, number: str, beside: str
) -> None:
    """With file and row, beside every neighbour."""
    path = tmp_path / "f.jsonl"
    bad = f'{{"{name}": {number}{beside if name != "price" else ""}}}'
    with pytest.raises(ConfigError) as refused:
        from_file(path, f'{{"long": 1.5}}\n{bad}\n')
    assert refused.value.message.startswith(f"{path}, row 2")


@pytest.mark.parametrize("beside", BESIDE)
def test_json_with_what_fits(tmp_path: Path, beside: str) -> None:
    """`Infinity` is what json.dumps writes; a column that is left out may hold any number."""
    lines = [
        f'{{"long": -Infinity, "list": [Infinity, 1.5]{beside}}}',
        f'{{"long": {2**53 + 1}, "list": [], "other": 1e400{beside}}}',
        f'{{"long": 1e-999999999, "list": []{beside}}}',
    ]
    found = from_file(tmp_path / "f.jsonl", "\n".join(lines) + "\n")
    assert [row["long"] for row in found] == [-math.inf, 2**53, 0.0]
    assert found[0]["list"] == [math.inf, 1.5]


def test_the_first_line_of_json_may_be_the_one_that_does_not_fit(tmp_path: Path) -> None:
    """It is looked at for its names before."""
    for line in ('{"text": ' + "[" * 100_000, json.dumps({"long": "x"})):
        with pytest.raises(ConfigError, match="row 1"):
            from_file(tmp_path / "f.jsonl", f"{line}\n")


@pytest.mark.parametrize(("name", "text"), [("short", "1e39"), ("long", DIGITS_400)])
def test_csv_with_a_number_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, text: str
) -> None:
    """An infinity that was written as one stays it."""
    with pytest.raises(BadValue, match=f"row 2, column '{name}'"):
        from_file(tmp_path / "f.csv", f"{name}\ninf\n{text}\n")
