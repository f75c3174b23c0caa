"""Judges rows in wire types: what the table cannot hold, by column and row.

Receives the live columns of some rows, gives them in block types, and what in them is bad. The
relay makes dead letters of that, and a producer refuses it before it is sent: one judgement.
"""

# pure

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.arrow.array_memory import Integers
from relay.rows.row_codec import RowCodec
from relay.schema.dead_reason import DeadKind
from relay.schema.types.column_type import ColumnType
from relay.schema.types.nested import align

UNEVEN = "the array is not as long as the others of its Nested column"
LEFT_OUT = "the value is missing; the column is EPHEMERAL and not Nullable, so it needs one"


class UnfitValues(NamedTuple):
    """Values that the table cannot hold."""

    kind: DeadKind
    column: int
    """Its index; -1: what is wrong belongs to no column."""
    field: str
    """The column's name; or the field's number, where it belongs to no column."""
    rows: Integers
    why: Callable[[int], str]
    """What is wrong in one of the rows."""


def narrow(wire: list[pa.Array[Any]], codec: RowCodec) -> tuple[pa.RecordBatch, list[UnfitValues]]:
    """Return rows in block types, and what in them the table cannot hold.

    `wire` are the codec's live columns, in wire types.
    """

    def unfit(kind: DeadKind, at: int, rows: Integers, why: Callable[[int], str]) -> UnfitValues:
        return UnfitValues(kind, at, codec.column_names[at], rows, why)

    arrays, misfits = [], []
    columns, uneven = align(wire, codec.flattened)
    for at, rows in uneven.items():
        misfits.append(unfit(DeadKind.UNEVEN_NESTED, at, rows, lambda _: UNEVEN))
    for at, (kind, array) in enumerate(zip(codec.types, columns, strict=True)):
        narrowed = kind.narrow(array)
        arrays.append(narrowed.array)
        if narrowed.bad is not None:
            rows = np.flatnonzero(narrowed.bad.to_numpy(zero_copy_only=False))
            why = partial(_why, kind, array)
            misfits.append(unfit(DeadKind.DOES_NOT_FIT, at, rows, why))
        if codec.needs_value[at] and array.null_count:
            rows = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            misfits.append(unfit(DeadKind.MISSING_VALUE, at, rows, lambda _: LEFT_OUT))
    return pa.RecordBatch.from_arrays(arrays, schema=codec.arrow_schema), misfits


def _why(kind: ColumnType, array: pa.Array[Any], row: int) -> str:
    return kind.why(array.slice(row, 1))
