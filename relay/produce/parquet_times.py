"""Record batches of a Parquet file, with times of the type INT96 as they are.

Receives an open file, gives its rows as Arrow's columns. INT96 is a day and nanoseconds within it.
Arrow reads it as 64 bits of nanoseconds, which end in 2262: a later time, and one before 1677,
comes out as another, and nothing says so. Such columns are read a second time, in microseconds.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from relay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NANOSECONDS = 1_000
"""Of a microsecond."""


def batches(
    path: Path, file: pa.parquet.ParquetFile, rows: int, label: str
) -> Iterator[pa.RecordBatch]:
    """Yield `rows` of the open file at a time, of the last ones fewer; errors call it `label`.

    Raises:
        ConfigError: a column has times that neither nanoseconds nor microseconds hold together.
    """
    leaves = [file.schema.column(index) for index in range(len(file.schema.names))]
    paths = [f"{leaf.path}." for leaf in leaves if leaf.physical_type == "INT96"]
    # A dot may also be part of a name.
    names = [
        name for name in file.schema_arrow.names if any(p.startswith(f"{name}.") for p in paths)
    ]
    if not names:
        yield from file.iter_batches(batch_size=rows)
        return
    with pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as again:
        coarse = again.schema_arrow.empty_table().select(names)
        more = again.iter_batches(rows, columns=names)
        for batch in file.iter_batches(rows):
            # Of long texts Arrow makes smaller batches, of times alone it does not.
            while coarse.num_rows < batch.num_rows:
                coarse = pa.concat_tables([coarse, pa.Table.from_batches([next(more)])])
            right = batch
            for name in names:
                times: Any = coarse.column(name).slice(0, batch.num_rows).combine_chunks()
                column = exact(f"{label}, column {name!r}", batch.column(name), times)
                right = right.set_column(right.schema.get_field_index(name), name, column)
            yield right
            coarse = coarse.slice(batch.num_rows)


def exact(where: str, fine: pa.Array[Any], coarse: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column's times in nanoseconds if these hold them all, else in microseconds.

    `fine` are nanoseconds, of which those beyond 64 bits came out as others; `coarse` are
    microseconds, without further digits.

    Raises:
        ConfigError: in neither: one is beyond nanoseconds, and one has them.
    """
    with contextlib.suppress(pa.ArrowInvalid):
        coarse.cast(fine.type)
        return fine
    # Also of those that came out as others: both wrap around at 2^64.
    pairs = zip(_counts(fine), _counts(coarse), strict=True)
    if any((ns - us * _NANOSECONDS).any() for ns, us in pairs):
        raise ConfigError(
            f"{where}: some times of the type INT96 are outside of the years 1677 to 2262, and "
            "some have nanoseconds",
            "write the column as another type, or cut its times to microseconds",
        )
    return coarse


def _counts(array: Any) -> Iterator[Any]:
    """The numbers of all times in a column, be they in lists, structs or maps."""
    kind = array.type
    if pa.types.is_map(kind):
        yield from (*_counts(array.keys), *_counts(array.items))
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _counts(part)
    elif pa.types.is_list(kind):
        yield from _counts(array.flatten())
    elif pa.types.is_timestamp(kind):
        numbers: Any = pc.fill_null(array.cast(pa.int64()), 0)
        yield numbers.to_numpy().astype(np.int64)
