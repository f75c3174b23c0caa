"""Decodes source messages of one table into one record batch, and leaves the bad ones out.

Receives the values of a buffer, gives the rows of the good messages in order as
columns of block types, and for each bad message its index and reason. A message
is good or bad as a whole. Never keeps part of a message, never repairs a value.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.rows import proto_rows
from relay.rows.envelope import BadMessage
from relay.schema.dead_reason import DeadKind, DeadReason
from relay.schema.types.nested import align

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.rows.envelope import Integers
    from relay.rows.row_codec import RowCodec
    from relay.schema.types.column_type import ColumnType

__all__ = ["BadMessage", "Decoded", "decode"]


class Decoded(NamedTuple):
    """What became of the messages."""

    batch: pa.RecordBatch
    """Rows of the good messages, in order, in block types."""
    good: Integers
    """Indexes of the good ones, of those that were given, ascending."""
    rows: Integers
    """Of each good one."""
    bad: list[BadMessage]
    """The others, in order of their index."""
    unknown: dict[str, int]
    """Messages, good or bad, by number of the field they hold and the row message does not."""

    @property
    def messages(self) -> int:
        """How many are good."""
        return len(self.good)

    def parts(self, sizes: Sequence[int]) -> list[Decoded]:
        """Return what became of the first messages, of the next ones, and so on.

        Args:
            sizes: messages in each part. All of them are good, and hold no unknown field.
        """
        ends = np.cumsum([0, *self.rows])
        parts, first = [], 0
        for size in sizes:
            end = first + size
            rows = self.batch.slice(ends[first], ends[end] - ends[first])
            parts.append(Decoded(rows, np.arange(size), self.rows[first:end], [], {}))
            first = end
        return parts


def decode(
    values: pa.ChunkedArray[Any], codec: RowCodec, framing: str, unknown_fields: str = "dead"
) -> Decoded:
    """Decode the messages of a buffer.

    Args:
        values: of messages, null where Kafka's value is null; they may lie in several pieces.
        codec: of the table.
        framing: "batch" (value is a RowBatch) or "row" (value is one bare row message).
        unknown_fields: "dead" (a message with a field that the row message does not know is
            bad) or "ignore" (the field is passed over).

    Raises:
        ValueError: another framing. What is wrong with a message is in `bad`.
    """
    rows = proto_rows.read(values, codec, framing)
    refused = [one for one in rows.unexplained if unknown_fields == "dead" or not one.unknown]
    batch, misfits = _narrow(rows.columns, codec)
    misfits += [_UnfitValues(one.kind, -1, one.field, one.rows, one.why) for one in refused]
    if not misfits and not rows.unexplained:
        return Decoded(batch, rows.index, rows.counts, sorted(rows.bad), {})
    # Row number to message: only needed to blame somebody.
    owner = rows.owner()
    bad = list(rows.bad)
    firsts = _first_misfits(misfits, owner)
    for message, (row, misfit) in firsts.items():
        within = row - int(np.searchsorted(owner, message)) + 1
        column = f", column {misfit.field}" if misfit.column >= 0 else ""
        text = f"row {within}{column}: {misfit.why(row)}"
        bad.append(BadMessage(message, DeadReason(misfit.kind, text, misfit.field)))
    blamed = np.fromiter(firsts, np.int64)
    batch = batch.filter(pa.array(~np.isin(owner, blamed)))
    unknown = {
        one.field: len(np.unique(owner[one.rows])) for one in rows.unexplained if one.unknown
    }
    good = ~np.isin(rows.index, blamed)
    return Decoded(batch, rows.index[good], rows.counts[good], sorted(bad), unknown)


class _UnfitValues(NamedTuple):
    """Values that the table cannot hold."""

    kind: DeadKind
    column: int
    """Its index; -1: what is wrong belongs to no column."""
    field: str
    """The column's name; or the field's number, where it belongs to no column."""
    rows: Integers
    why: Callable[[int], str]
    """What is wrong in one of the rows."""


def _narrow(
    wire: list[pa.Array[Any]], codec: RowCodec
) -> tuple[pa.RecordBatch, list[_UnfitValues]]:
    def unfit(kind: DeadKind, at: int, rows: Integers, why: Callable[[int], str]) -> _UnfitValues:
        return _UnfitValues(kind, at, codec.column_names[at], rows, why)

    arrays, misfits = [], []
    columns, uneven = align(wire, codec.flattened)
    for at, rows in uneven.items():
        misfits.append(unfit(DeadKind.UNEVEN_NESTED, at, rows, partial(_said, _UNEVEN)))
    for at, kind in enumerate(codec.types):
        array = columns[at]
        narrowed = kind.narrow(array)
        arrays.append(narrowed.array)
        if narrowed.bad is not None:
            rows = np.flatnonzero(narrowed.bad.to_numpy(zero_copy_only=False))
            why = partial(_value_there, kind, array)
            misfits.append(unfit(DeadKind.DOES_NOT_FIT, at, rows, why))
        if codec.needs_value[at] and array.null_count:
            rows = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            misfits.append(unfit(DeadKind.MISSING_VALUE, at, rows, partial(_said, _LEFT_OUT)))
    return pa.RecordBatch.from_arrays(arrays, schema=codec.arrow_schema), misfits


def _said(reason: str, _: int) -> str:
    return reason


def _value_there(kind: ColumnType, array: pa.Array[Any], row: int) -> str:
    return kind.why(array.slice(row, 1))


_UNEVEN = "the array is not as long as the others of its Nested column"
_LEFT_OUT = "the value is missing; the column is EPHEMERAL and not Nullable, so it needs one"


def _first_misfits(
    misfits: list[_UnfitValues], owner: Integers
) -> dict[int, tuple[int, _UnfitValues]]:
    """Per message to blame: its first bad row, and what is wrong there."""
    firsts: dict[int, tuple[int, int, int]] = {}
    for at, misfit in enumerate(misfits):
        messages, first = np.unique(owner[misfit.rows], return_index=True)
        for message, row in zip(messages.tolist(), misfit.rows[first].tolist(), strict=True):
            found = (row, misfit.column, at)
            firsts[message] = min(firsts.get(message, found), found)
    return {message: (row, misfits[at]) for message, (row, _, at) in firsts.items()}
