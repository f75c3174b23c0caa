"""The usual messages at memory speed: plain rows of a table without nested columns.

Receives the values of a buffer, gives the columns of all messages that relay.flatkernel takes,
and how many rows it took from each; the others are relay.decode's to judge. What is taken is
what relay.decode would have made of it, bit for bit (tests/schema/test_flat_rows.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.texts import offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from relay.shape import Field
    from relay.types import ColumnType

_KINDS = ("int64", "int32", "uint32", "bool", "double", "float", "bytes", "string")
"""Protobuf's scalars in the order of relay.flatkernel's kinds; uint64 is read as int64."""
_WIRE_TYPES = (0, 0, 0, 0, 1, 5, 2, 2)
"""How protobuf writes each."""
_NOT_KNOWN = -1


class Taken(NamedTuple):
    """What was read."""

    columns: list[pa.Array[Any]]
    """Live columns in wire types, rows of the messages taken, in order."""
    rows: npt.NDArray[np.int64]
    """Rows of each message; flatkernel.PASSED_OVER where it is not taken."""


class FlatRows:
    """The compiled decoder of one version of a table's row message.

    Args:
        fields: of the row message's live columns, in their order; flat, see `of`.
        types: of these columns.
    """

    def __init__(self, fields: Sequence[Field], types: Sequence[ColumnType]) -> None:
        self._types = types
        self._scalars = [field.shape.scalar for field in fields]
        self._plan = np.full(8 * (1 + max(field.number for field in fields)), _NOT_KNOWN, np.int64)
        for column, field in enumerate(fields):
            kind = _KINDS.index(_read_as(field.shape.scalar))
            self._plan[8 * field.number + _WIRE_TYPES[kind]] = 8 * column + kind
        bits = np.arange(64 * (len(fields) // 64 + 1)) < len(fields)
        self._every = np.packbits(bits, bitorder="little").view(np.uint64)

    @classmethod
    def of(cls, fields: Sequence[Field], types: Sequence[ColumnType]) -> FlatRows | None:
        """The decoder; None where a column is nested or repeated."""
        flat = all(field.shape.message is None and not field.shape.repeated for field in fields)
        return cls(fields, types) if flat else None

    def read(self, values: pa.BinaryArray, framing: str) -> Taken:
        """Take what is plain.

        Args:
            values: message values, null where Kafka's value is null.
            framing: "batch" or "row".
        """
        # Compiled code, and 0.3 s of imports, for those who have rows to read.
        from relay import flatkernel  # noqa: PLC0415

        offsets = offsets_of(values)
        memory: Any = values.buffers()[2] or b""
        data = np.frombuffer(memory, np.uint8)
        counts = np.empty(len(values), np.int64)
        if framing == "batch":
            total = flatkernel.count_rows(data, offsets, counts)
        else:
            counts[:] = np.where(np.diff(offsets) > 0, 1, flatkernel.PASSED_OVER)
            total = int((counts > 0).sum())
        numbers = np.empty((len(self._scalars), total), np.uint64)
        given = np.zeros((total, len(self._every)), np.uint64)
        bare = framing != "batch"
        of_fields = (self._plan, self._every)
        rows = flatkernel.read_rows(data, offsets, counts, bare, *of_fields, numbers, given)
        in_all = np.bitwise_and.reduce(given[:rows], axis=0) if rows else given[:0]
        columns = []
        for at, scalar in enumerate(self._scalars):
            word, bit = at >> 6, np.uint64(at & 63)
            missing = None
            if not rows or not in_all[word] >> bit & np.uint64(1):
                missing = (given[:rows, word] >> bit & np.uint64(1)) == 0
            if scalar in {"bytes", "string"}:
                buffers = _joined(data, numbers[at, :rows])
            else:
                buffers = [_stored(numbers[at, :rows], scalar)]
            columns.append(_array(self._types[at].wire, rows, missing, buffers))
        return Taken(columns, counts)


def _joined(data: Any, spans: Any) -> list[pa.Buffer]:
    """Offsets and values of a column of bytes."""
    from relay import flatkernel  # noqa: PLC0415 - as above

    offsets = np.zeros(len(spans) + 1, np.int32)
    joined = np.empty(flatkernel.ends(spans, offsets) + flatkernel.SPARE_BYTES, np.uint8)
    flatkernel.join(data, spans, joined)
    return [_buffer(offsets), _buffer(joined)]


def _buffer(values: Any) -> pa.Buffer:
    return pa.py_buffer(values)


def _read_as(scalar: str) -> str:
    return "int64" if scalar == "uint64" else scalar


def _stored(numbers: Any, scalar: str) -> pa.Buffer:
    """Values as Arrow stores them."""
    if scalar == "bool":
        return _buffer(np.packbits(numbers.astype(np.bool_), bitorder="little"))
    if scalar in {"int32", "uint32", "float"}:
        numbers = numbers.astype(np.uint32)
    return _buffer(numbers)


def _array(wire: pa.DataType, rows: int, missing: Any, buffers: list[pa.Buffer]) -> pa.Array[Any]:
    if missing is None:
        return pa.Array.from_buffers(wire, rows, [None, *buffers], 0)
    valid = _buffer(np.packbits(~missing, bitorder="little"))
    nulls = int(missing.sum())
    return pa.Array.from_buffers(wire, rows, [valid, *buffers], nulls)
