"""The usual messages at memory speed: plain rows of a table without nested columns.

Receives the values of a buffer, gives the columns of all messages that relay.rows.flat_kernel
takes, and how many rows it took from each; the others are relay.rows.decode's to judge. What is
taken is what relay.rows.decode would have made of it, bit for bit (tests/schema/test_flat_rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relay.arrow.array_memory import Integers, bits, offsets_of, size_of
from relay.rows.row_bound import RowBound
from relay.rows.wire_scan import wire_type
from relay.schema.types.column_type import ColumnType
from relay.schema.types.proto_shape import ProtoField

if TYPE_CHECKING:  # numba takes half a second and 120 MB: loaded where a table is flat
    from relay.rows.flat_columns import Density, Sinks

_KINDS = {
    "int64": 0, "uint64": 0, "int32": 1, "uint32": 2, "bool": 3, "double": 4, "float": 5,
    "bytes": 6, "string": 7,
}  # fmt: skip
"""The kind of relay.rows.flat_kernel by protobuf's scalar; a uint64 is read as int64."""
_NOT_KNOWN = -1
_ANY = 1 << 62
"""Rows that there may be room for, where nothing bounds them."""


Taken: TypeAlias = "tuple[list[pa.Array[Any]], Integers]"
"""Live columns in wire types, with the rows of the messages taken, in order; and the rows of each
message looked at, which are the first: relay.rows.flat_kernel.PASSED_OVER where it is not taken."""


class FlatRows:
    """The compiled decoder of one version of a table's row message, which is flat: see `of`."""

    def __init__(self, fields: Sequence[ProtoField], types: Sequence[ColumnType]) -> None:
        self._types = types
        self._plan = np.full(8 * (1 + max(field.number for field in fields)), _NOT_KNOWN, np.int64)
        self._kinds = [_KINDS[field.shape.scalar] for field in fields]
        for column, (field, kind) in enumerate(zip(fields, self._kinds, strict=True)):
            self._plan[8 * field.number + wire_type(field.shape)] = 8 * column + kind
        bits = np.arange(64 * (len(fields) // 64 + 1)) < len(fields)
        self._every = np.packbits(bits, bitorder="little").view(np.uint64)
        self._density: Density | None = None

    @classmethod
    def of(cls, fields: Sequence[ProtoField], types: Sequence[ColumnType]) -> FlatRows | None:
        """Return the decoder; None where a column is nested or repeated."""
        flat = all(field.shape.message is None and not field.shape.repeated for field in fields)
        return cls(fields, types) if flat else None

    def read(
        self, values: pa.ChunkedArray[Any], framing: str, bound: RowBound | None = None
    ) -> Taken:
        """Take what is plain, of values as relay.rows.decode.decode has them.

        Messages from the first on for whose rows the bound leaves no room are not looked at. One
        whose rows alone are too many is passed over.
        """
        # Compiled code, and 0.3 s of imports, for those who have rows to read.
        from relay.rows.flat_columns import Density, Sinks  # noqa: PLC0415
        from relay.rows.flat_kernel import PASSED_OVER, read_rows  # noqa: PLC0415

        pieces = [(_bytes_of(piece), offsets_of(piece)) for piece in values.chunks]
        size = size_of(values)
        longest = max((int(np.diff(ends).max(initial=0)) for _, ends in pieces), default=0)
        counts = np.empty(len(values), np.int64)
        in_all = self._every.copy()
        sinks = Sinks(self._kinds, len(in_all), self._density or Density.guess(len(self._kinds)))
        most = _ANY if bound is None else bound.rows
        sinks.grow(0, longest, size, most, short_of_rows=False)
        table, rows, first, left = sinks.table(), 0, 0, size
        for data, offsets in pieces:
            message, of_piece = 0, counts[first : first + len(offsets) - 1]
            while True:
                message, rows, short = read_rows(
                    *(data, offsets, framing != "batch", self._plan, self._every),
                    *(message, rows, table, sinks.given, in_all, of_piece),
                )
                if message == len(of_piece):
                    break
                behind = left - int(offsets[message] - offsets[0])
                if short and bound is not None and len(sinks.given) == most:
                    if rows:
                        return self._taken(
                            counts[: first + message], sinks, rows, size - behind, in_all
                        )
                    if most == bound.alone:
                        of_piece[message] = PASSED_OVER
                        message += 1
                        continue
                    most = bound.alone
                sinks.grow(rows, longest, behind, most, short_of_rows=short)
                table = sinks.table()
            first, left = first + len(of_piece), left - int(offsets[-1] - offsets[0])
        return self._taken(counts, sinks, rows, size, in_all)

    def _taken(self, counts: Any, sinks: Sinks, rows: int, size: int, in_all: Any) -> Taken:
        """What was read of so many bytes."""
        if rows:
            self._density = sinks.density(rows, size)
        columns = [self._column(at, sinks, rows, in_all) for at in range(len(self._kinds))]
        return columns, counts

    def _column(self, column: int, sinks: Sinks, rows: int, in_all: Any) -> pa.Array[Any]:
        word, bit = column >> 6, np.uint64(column & 63)
        valid, nulls = None, 0
        if not in_all[word] >> bit & np.uint64(1):
            given = (sinks.given[:rows, word] >> bit & np.uint64(1)).astype(np.bool_)
            nulls = rows - int(np.count_nonzero(given))
            valid = bits(given) if nulls else None
        buffers = [valid, *sinks.buffers(column, rows)]
        return pa.Array.from_buffers(self._types[column].wire, rows, buffers, nulls)


def _bytes_of(values: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(values.buffers()[2] or b"", np.uint8)
