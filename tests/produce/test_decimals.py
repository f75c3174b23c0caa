"""A float for a Decimal stands for its shortest decimal text, from Python, Arrow and files."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.produce.arrow_columns import BadValue, BatchOrigin, row_columns
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile
from relay.produce.row_encoder import RowEncoder
from relay.rows.decode import decode
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import codec
from tests.schema.rows import binary, decode_rows, row_batch

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {
    "price": "Decimal(9, 2)",
    "maybe": "Nullable(Decimal(9, 2))",
    "whole": "Decimal(5)",
    "long": "Decimal(76, 40)",
    "list": "Array(Decimal(9, 2))",
    "pair": "Tuple(x Decimal(9, 2), y Array(Decimal(20, 8)))",
    "map": "Map(String, Decimal(9, 2))",
    "any": "Variant(Decimal(9, 2), UInt64)",
    "ratio": "Float64",
    "big": "Int256",
    "text": "Nullable(String)",
}
CODEC = codec(*(ColumnDef(name, type_) for name, type_ in COLUMNS.items()))


def held(row: bytes, name: str) -> Any:
    decoded = decode(binary([row_batch([row])]), CODEC, "batch")
    assert decoded.bad == []
    return decoded.batch.column(name)[0].as_py()


def from_python(name: str, value: Any) -> Any:
    return held(RowEncoder(CODEC).encode({name: value}), name)


def from_arrow(name: str, array: Any) -> Any:
    wire = row_columns(CODEC, pa.record_batch({name: array}), BatchOrigin("f", 1))
    return held(CODEC.encode_rows(wire)[0].as_py(), name)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("price", 9.5, "9.5"),
        ("price", 0.1, "0.1"),
        ("price", -0.07, "-0.07"),
        ("price", -0.0, "0"),
        ("price", 1e6, "1000000"),
        ("price", 9_999_999.99, "9999999.99"),
        ("maybe", 2.25, "2.25"),
        ("whole", 12345.0, "12345"),
        ("long", 1.5e-7, "0.00000015"),
        ("long", 1e22, "1" + 22 * "0"),
        ("long", 1.2345678901234567e-20, "1.2345678901234567e-20"),
        ("long", 1e35, "1" + 35 * "0"),
    ],
)
def test_a_float_is_its_shortest_text(name: str, value: float, expected: str) -> None:
    assert Decimal(from_python(name, value)) == Decimal(expected)
    assert Decimal(from_arrow(name, pa.array([value]))) == Decimal(expected)
    assert not from_python(name, -abs(value) * 0.0).startswith("-"), "a Decimal has no -0"


def test_a_short_float_is_no_long_one_with_more_digits() -> None:
    """Of 32 bits; numpy's scalars too. Of 16 what is not exact is refused."""
    assert Decimal(from_arrow("price", pa.array([0.1], pa.float32()))) == Decimal("0.1")
    assert Decimal(from_python("price", np.float32(0.1))) == Decimal("0.1")
    assert Decimal(from_python("price", np.float64(0.1))) == Decimal("0.1")
    assert Decimal(from_arrow("price", pa.array([np.float16(9.5)], pa.float16()))) == Decimal("9.5")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("price", 0.125, "use decimal.Decimal or text"),
        ("price", 0.1 + 0.2, "use decimal.Decimal or text"),
        ("price", 1e-300, "use decimal.Decimal or text"),
        ("price", 1e300, "use decimal.Decimal or text"),
        ("whole", 0.5, "more than 0 digits after the point"),
        ("price", 1e7, "does not fit Decimal"),
        ("long", 1e36, "does not fit Decimal"),
        ("price", math.nan, "nan is not a decimal number"),
        ("maybe", math.inf, "inf is not a decimal number"),
        ("long", -math.inf, "-inf is not a decimal number"),
        ("big", 0.5, "neither text nor an exact number"),
        ("text", 0.5, "is not text"),
        ("text", Decimal("0.5"), "is not text"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_value_and_what_to_do(
    name: str, value: Any, said: str
) -> None:
    shown = str(value)
    with pytest.raises(BadValue, match=f"column '{name}'") as caught:
        from_python(name, value)
    assert said in caught.value.message
    assert shown in caught.value.message
    with pytest.raises(BadValue, match=rf"f, row 2, column '{name}'") as caught:
        from_arrow(name, pa.array([None, value] if name in {"big", "text"} else [1.0, value]))
    assert said in caught.value.message
    assert shown in caught.value.message


def test_parts_of_other_types_take_them_too() -> None:
    """In lists, structs, maps and alternatives; one that does not fit is refused there."""
    pair = {"x": 0.25, "y": [1e-8, 2.0]}
    for made in (
        from_python("pair", pair),
        from_arrow("pair", pa.array([pair])),
    ):
        assert Decimal(made["x"]) == Decimal("0.25")
        assert [*map(Decimal, made["y"])] == [Decimal("1e-8"), 2]
    for made in (from_python("list", [0.1, 7.0]), from_arrow("list", pa.array([[0.1, 7.0]]))):
        assert [*map(Decimal, made)] == [Decimal("0.1"), 7]
    ((entry),) = from_python("map", {"k": 0.1})
    assert Decimal(entry["value"]) == Decimal("0.1")
    made = from_python("any", {"as_decimal_9_2": 0.1})
    assert "0.10" in made.values()
    for name, value in (("list", [0.1, 0.125]), ("pair", {"x": math.nan}), ("map", {"k": 1e-3})):
        with pytest.raises(BadValue, match=f"column '{name}'"):
            from_python(name, value)
    with pytest.raises(BadValue, match="column 'list'"):
        from_arrow("list", pa.array([[0.1, 0.125]]))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e7, 1e7, width=32))
@example(2.255020802617456e-218)
@example(1e-40)
@example(1e36)
@example(1.7e308)
@example(5e-324)
def test_python_and_columns_take_the_same_floats_and_no_others(value: float) -> None:
    """What is taken is the shortest text exactly; what is refused has more digits than fit."""
    text = Decimal(repr(value))
    for name, precision, scale in (("price", 9, 2), ("long", 76, 40)):
        behind = -int(text.normalize().as_tuple().exponent)
        fits = behind <= scale and abs(text) < 10 ** (precision - scale)
        for take in (lambda n: from_python(n, value), lambda n: from_arrow(n, pa.array([value]))):
            try:
                got = Decimal(take(name))
            except BadValue:
                assert not fits, (name, value)
            else:
                assert fits, (name, value)
                assert got == text


def test_files_and_frames(tmp_path: Path) -> None:
    """Parquet's doubles and those of pandas; numbers in JSON keep every digit that was written."""
    encoder = RowEncoder(CODEC)
    prices = [9.5, 0.1, None, 123.45]
    path = tmp_path / "f.parquet"
    pyarrow.parquet.write_table(pa.table({"maybe": pa.array(prices, pa.float64())}), path)
    expected = [None if one is None else Decimal(repr(one)) for one in prices]
    assert prices_of(path, encoder, "maybe") == expected
    frame = pa.RecordBatch.from_pandas(pd.DataFrame({"maybe": prices}))
    wire = row_columns(CODEC, frame, BatchOrigin("frame", 1))
    assert [v if v is None else Decimal(v) for v in wire["maybe"].to_pylist()] == expected

    long = "0.1234567890123456789012345678901234567891"
    path = tmp_path / "f.jsonl"
    path.write_text(f'{{"price": 9.5, "long": {long}, "ratio": 0.12345678901234567890}}\n')
    (row,) = rows_of(path, encoder)
    assert (Decimal(row["price"]), row["long"]) == (Decimal("9.5"), long)
    assert row["ratio"] == 0.12345678901234567890
    path.write_text(f'{{"text": {long}}}\n')
    with pytest.raises(BadValue, match="column 'text'"):
        rows_of(path, encoder)
    path.write_text('{"price": 9.5}\n{"price": 0.125}\n')
    with pytest.raises(BadValue, match=r"row 2.*0\.125.*use decimal\.Decimal or text"):
        rows_of(path, encoder)


def rows_of(path: Path, encoder: RowEncoder) -> list[dict[str, Any]]:
    pieces = list(RowFile.of(path, None, FileOptions(allow_missing=True)).rows(encoder))
    return [row for p in pieces for row in decode_rows(encoder.codec, p.rows).to_pylist()]


def prices_of(path: Path, encoder: RowEncoder, name: str) -> list[Decimal | None]:
    found = [row[name] for row in rows_of(path, encoder)]
    return [None if one is None else Decimal(one) for one in found]
