"""Source messages of one table to one record batch; the bad ones found and left out.

Receives the values of a buffer, gives the rows of the good messages in order as
columns of block types, and for each bad message its index and reason. A message
is good or bad as a whole. Never keeps part of a message, never mends a value.

All messages are converted at once; only where that raises, halves are tried until
the bad messages stand alone (cost: bad messages times log n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.envelope import BadMessage, Opened, isolate, open_messages

if TYPE_CHECKING:
    from relay.envelope import Integers
    from relay.rowmessage import RowCodec

__all__ = ["BadMessage", "Decoded", "count_rows", "decode"]


class Decoded(NamedTuple):
    """What became of the messages."""

    batch: pa.RecordBatch
    """Rows of the good messages, in order, in block types."""
    messages: int
    """Good ones."""
    bad: list[BadMessage]
    """The others, in order of their index."""


def count_rows(values: pa.BinaryArray, framing: str) -> Integers:
    """Rows in each message; one that is no row batch counts as none."""
    opened = open_messages(values, framing)
    rows: Integers = np.zeros(len(values), np.int64)
    rows[opened.index] = opened.counts
    return rows


def decode(values: pa.BinaryArray, codec: RowCodec, framing: str) -> Decoded:
    """Decode the messages of a buffer.

    Args:
        values: message values, null where Kafka's value is null.
        codec: of the table.
        framing: "batch" (value is a RowBatch) or "row" (value is one bare row message).

    Raises:
        ValueError: another framing. What is wrong with a message is in `bad`.
    """
    opened = open_messages(values, framing)
    wire, good, bad = _parse(opened, codec)
    batch, misfits = _narrow(wire, codec)
    if misfits:
        # Row number to message: only needed to blame somebody.
        owner = np.repeat(good, opened.counts[good])
        firsts = _first_misfits(misfits, owner)
        for message, (row, column, value) in firsts.items():
            within = row - int(np.searchsorted(owner, message)) + 1
            complaint = (
                "left out, but EPHEMERAL and not Nullable, so that nothing can stand for it"
                if value is None
                else codec.types[column].complaint(value)
            )
            reason = f"row {within}, column {codec.column_names[column]}: {complaint}"
            bad.append(BadMessage(int(opened.index[message]), reason))
        blamed = np.fromiter(firsts, np.int64)
        batch = batch.filter(pa.array(~np.isin(owner, blamed)))
        good = np.setdiff1d(good, blamed)
    return Decoded(batch, len(good), sorted([*opened.bad, *bad]))


def _parse(opened: Opened, codec: RowCodec) -> tuple[pa.RecordBatch, Integers, list[BadMessage]]:
    """All rows that parse, which of the opened messages they belong to, and the others."""
    starts = np.concatenate([[0], np.cumsum(opened.counts)])

    def rows_of(low: int, high: int) -> pa.RecordBatch:
        first = int(starts[low])
        return codec.decode_rows(opened.rows.slice(first, int(starts[high]) - first))

    pieces, unreadable = isolate(rows_of, len(opened.index))
    bad = []
    for at, _ in unreadable:
        rows = opened.rows.slice(int(starts[at]), int(opened.counts[at]))
        bad.append(BadMessage(int(opened.index[at]), _first_unreadable(rows, codec)))
    good = np.delete(np.arange(len(opened.index)), [at for at, _ in unreadable])
    batches = [batch for _, _, batch in pieces]
    if len(batches) != 1:
        empty = pa.RecordBatch.from_pylist([], schema=codec.wire_schema)
        batches = [pa.concat_batches([empty, *batches])]  # type: ignore[attr-defined]
    return batches[0], good, bad


def _first_unreadable(rows: pa.BinaryArray, codec: RowCodec) -> str:
    """Which row of a message does not parse, and why."""

    def attempt(low: int, high: int) -> None:
        codec.decode_rows(rows.slice(low, high - low))

    _, failed = isolate(attempt, len(rows))
    row, reason = failed[0]
    return f"row {row + 1}: {reason}"


class _Misfit(NamedTuple):
    """A column's values that the table cannot hold."""

    column: int
    rows: Integers
    values: pa.Array[Any]


def _narrow(wire: pa.RecordBatch, codec: RowCodec) -> tuple[pa.RecordBatch, list[_Misfit]]:
    arrays, misfits = [], []
    for at, kind in enumerate(codec.types):
        array = wire.column(at)
        narrowed = kind.narrow(array)
        arrays.append(narrowed.array)
        wrong = [] if narrowed.bad is None else [narrowed.bad]
        if codec.needs_value[at] and array.null_count:
            wrong.append(array.is_null())
        for mask in wrong:
            rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            misfits.append(_Misfit(at, rows, array))
    return pa.RecordBatch.from_arrays(arrays, schema=codec.arrow_schema), misfits


def _first_misfits(misfits: list[_Misfit], owner: Integers) -> dict[int, tuple[int, int, object]]:
    """Per message to blame: its first bad row, with column and value."""
    firsts: dict[int, tuple[int, int]] = {}
    for misfit in misfits:
        messages, at = np.unique(owner[misfit.rows], return_index=True)
        for message, row in zip(messages.tolist(), misfit.rows[at].tolist(), strict=True):
            found = (row, misfit.column)
            firsts[message] = min(firsts.get(message, found), found)
    values = {misfit.column: misfit.values for misfit in misfits}
    return {
        message: (row, column, values[column][row].as_py())
        for message, (row, column) in firsts.items()
    }
