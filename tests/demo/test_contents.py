"""The demo's comparison, and that it goes red."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from relay.dev.demo import data
from relay.dev.demo.compare import Difference, compare, row_hashes

COLUMNS = {
    "n": "Nullable(Int16)",
    "x": "Nullable(Float64)",
    "t": "DateTime('UTC')",
    "w": "LowCardinality(Nullable(String))",
    "f": "FixedString(2)",
}
SENT = pd.DataFrame(
    {
        "n": ["1", None, "-3"],
        "x": ["1e3", "0.1", None],
        "t": ["1970-01-01T00:01:00Z", "1970-01-01T00:00:00Z", "2013-01-01T10:00:00Z"],
        "w": ["a", None, ""],
        "f": ["UA", "AA", "B6"],
    }
)
RECEIVED = pa.table(
    {
        "n": pa.array([1, None, -3], pa.int16()),
        "x": pa.array([1000.0, 0.1, None]),
        "t": pa.array([60, 0, 1_357_034_400], pa.uint32()),
        "w": pa.array(["a", None, ""]),
        "f": pa.array([b"UA", b"AA", b"B6"], pa.binary(2)),
    }
).to_pandas()


def difference(received: pd.DataFrame) -> Difference:
    return compare(row_hashes(SENT, COLUMNS), row_hashes(received, COLUMNS))


def test_the_same_rows_in_another_order_and_spelling_are_the_same() -> None:
    """1e3 is 1000.0, text times are Unix seconds, and order does not matter."""
    assert difference(RECEIVED.iloc[[2, 0, 1]]) == Difference(3, 3, 0, 0, 0)
    assert difference(RECEIVED).none


def test_floats_are_read_to_the_last_bit() -> None:
    """The text of a double is the double, for each of a thousand random ones."""
    numbers = np.random.default_rng(1).uniform(-1e3, 1e3, 1000)
    texts = pd.DataFrame({"x": [repr(float(number)) for number in numbers]})
    columns = {"x": "Float64"}
    sent = row_hashes(texts, columns)
    assert compare(sent, row_hashes(pd.DataFrame({"x": numbers}), columns)).none


def test_one_row_doubled_is_seen() -> None:
    """Negative control: the same row twice is one duplicate."""
    assert difference(RECEIVED.iloc[[0, 1, 2, 1]]) == Difference(3, 4, 0, 1, 0)


def test_one_row_missing_is_seen() -> None:
    """Negative control."""
    assert difference(RECEIVED.iloc[[0, 2]]) == Difference(3, 2, 1, 0, 0)


def test_one_row_doubled_for_one_missing_is_seen_although_the_counts_agree() -> None:
    """Negative control: counts alone would say yes."""
    assert difference(RECEIVED.iloc[[0, 2, 2]]) == Difference(3, 3, 1, 1, 0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n", 2),
        ("n", None),
        ("x", 1000.0000000000001),
        ("t", 61),
        ("w", "b"),
        ("w", None),
        ("f", b"UB"),
    ],
)
def test_one_value_changed_is_seen(column: str, value: object) -> None:
    """Negative control: any column, also to null, and by the last bit of a float."""
    changed = RECEIVED.copy()
    changed[column] = changed[column].astype(object)
    changed.loc[0, column] = value
    assert difference(changed) == Difference(3, 3, 1, 0, 1)


def test_values_swapped_between_columns_are_seen() -> None:
    """Negative control: a hash of a row knows which column a value is in."""
    columns = {"a": "String", "b": "String"}
    one = row_hashes(pd.DataFrame({"a": ["x"], "b": ["y"]}), columns)
    other = row_hashes(pd.DataFrame({"a": ["y"], "b": ["x"]}), columns)
    assert compare(one, other) == Difference(1, 1, 1, 0, 1)


def test_rows_that_were_sent_twice_must_come_twice() -> None:
    """It is multisets that are compared."""
    twice, once = np.array([7, 7], np.uint64), np.array([7], np.uint64)
    assert compare(twice, twice).none
    assert compare(twice, once) == Difference(2, 1, 1, 0, 0)


def test_the_demos_rows_are_those_of_the_package() -> None:
    """All five tables, complete, with the columns that are created in ClickHouse."""
    rows = {table.name: data.read(table) for table in data.TABLES}
    assert {name: len(found) for name, found in rows.items()} == {
        "flights": 336_776,
        "weather": 26_115,
        "planes": 3_322,
        "airports": 1_458,
        "airlines": 16,
    }
    for table in data.TABLES:
        assert rows[table.name].column_names == list(table.columns)
        hashes = row_hashes(rows[table.name].to_pandas(), table.columns)
        assert len(np.unique(hashes)) == len(hashes)  # every row of 2013 is another
