"""Times of Parquet's type INT96, as Impala, Hive and Spark write them, whatever their year."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from relay.errors import ConfigError
from relay.produce import parquet_times
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import encoder
from tests.schema.rows import decode_rows

if TYPE_CHECKING:
    from pathlib import Path

ENCODER = encoder(
    ColumnDef("id", "Int64"),
    ColumnDef("t", "Nullable(DateTime64(9, 'UTC'))"),
    ColumnDef("u", "Nullable(DateTime64(6, 'UTC'))"),
    ColumnDef("l", "Array(DateTime64(3, 'UTC'))"),
    ColumnDef("n.t", "Nullable(DateTime64(6, 'UTC'))"),
)
FINE = 1_704_067_200_123_456_789
"""A time in nanoseconds, none of whose digits is zero for the last three."""
LATER = datetime(2290, 1, 2, 3, 4, 5, 678_000, UTC)
"""Beyond what 64 bits of nanoseconds hold, and within DateTime64(6)."""
OTHER = datetime(2500, 1, 1, tzinfo=UTC)
EARLY, LATE = datetime(1900, 1, 1, tzinfo=UTC), datetime(2299, 12, 31, tzinfo=UTC)


def ticks(time: datetime, per_second: int) -> int:
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * per_second + (
        since.microseconds * per_second // 1_000_000
    )


def read(path: Path, **columns: Any) -> list[dict[str, Any]]:
    table = pa.table({"id": range(len(next(iter(columns.values())))), **columns})
    pyarrow.parquet.write_table(table, path, use_deprecated_int96_timestamps=True)
    pieces = list(RowFile.of(path, None, FileOptions(allow_missing=True)).rows(ENCODER))
    return [row for p in pieces for row in decode_rows(ENCODER.codec, p.rows).to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.parquet"


def test_a_year_beyond_nanoseconds_is_kept(path: Path) -> None:
    """Red before: it was refused as a time in 1705, which the file does not hold."""
    us = pa.timestamp("us")
    times = [LATER, None, EARLY, LATE]
    lists = [[LATER], [], [EARLY, LATE], []]
    named = {
        "u": pa.array(times, us),
        "l": pa.array(lists, pa.list_(us)),
        "n.t": pa.array(times, us),
    }
    rows = read(path, **named)
    for name in ("u", "n.t"):
        found = [row[name] for row in rows]
        assert found == [None if time is None else ticks(time, 10**6) for time in times]
    assert [row["l"] for row in rows] == [[ticks(time, 10**3) for time in some] for some in lists]


@pytest.mark.parametrize("column", ["t", "u"])
def test_a_year_that_a_column_does_not_have_is_refused_by_its_row(path: Path, column: str) -> None:
    """Red before: 2500 became 1915 in silence, in a column with nanoseconds."""
    with pytest.raises(ConfigError, match=f"row 2, column '{column}': .*2500"):
        read(path, **{column: pa.array([EARLY, OTHER], pa.timestamp("us"))})


def test_nanoseconds_stay_where_a_year_has_them(path: Path) -> None:
    rows = read(path, t=pa.array([FINE, None], pa.timestamp("ns")))
    assert [row["t"] for row in rows] == [FINE, None]


def test_each_batch_is_read_as_its_years_want(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later one with such a year does not cut the digits of those before."""
    monkeypatch.setattr("relay.produce.file_rows.PARQUET_ROWS", 2)
    times = [EARLY, LATER, EARLY, EARLY, LATER]
    fine = pa.array([FINE] * 5, pa.timestamp("ns"))
    rows = read(path, t=fine, u=pa.array(times, pa.timestamp("us")))
    assert [row["t"] for row in rows] == [FINE] * 5
    assert [row["u"] for row in rows] == [ticks(t, 10**6) for t in times]


def test_the_two_readings_meet_where_their_batches_differ(path: Path) -> None:
    """As where one has long texts besides."""
    times = [EARLY, LATER, EARLY, LATE, LATER, EARLY, LATER]
    read(path, u=pa.array(times, pa.timestamp("us")))

    class Short(pyarrow.parquet.ParquetFile):
        def iter_batches(self, *_: Any, **__: Any) -> Any:
            return super().iter_batches(batch_size=3)

    with Short(path) as file:
        got = list(parquet_times.batches(path, file, 5, "f"))
    assert [batch.num_rows for batch in got] == [3, 3, 1]
    found = [time for batch in got for time in batch.column("u").cast(pa.int64()).to_pylist()]
    assert found == [ticks(time, 10**6) for time in times]


def test_both_at_once_in_a_column_are_refused() -> None:
    """Arrow has no type for them; nothing is cut."""
    fine = pa.array([FINE, ticks(LATER, 10**9) - 2**64 + 7], pa.timestamp("ns"))
    coarse = pa.array([FINE // 1_000, ticks(LATER, 10**6)], pa.timestamp("us"))
    with pytest.raises(ConfigError, match="f, column 't'"):
        parquet_times.exact("f, column 't'", fine, coarse)
    lists: Any = [pa.ListArray.from_arrays([0, 2], one) for one in (fine, coarse)]
    with pytest.raises(ConfigError, match="f, column 't'"):
        parquet_times.exact("f, column 't'", *lists)
    plain = pa.array([FINE // 1_000 * 1_000, ticks(LATER, 10**9) - 2**64], pa.timestamp("ns"))
    assert parquet_times.exact("f, column 't'", plain, coarse) is coarse
