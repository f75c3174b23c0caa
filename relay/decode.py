"""Source messages of one table to one record batch; the bad ones found and left out.

Receives the values of a buffer, gives the rows of the good messages in order as
columns of block types, and for each bad message its index and reason. A message
is good or bad as a whole. Never keeps part of a message, never mends a value.

All messages are converted at once; only where that raises, parts are tried until
the bad messages stand alone (relay.isolate).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.envelope import BadMessage, Opened, open_messages
from relay.flattened import align
from relay.isolate import Suspects, isolate, isolate_joined, ranges_of
from relay.strangers import find_outdated, find_strangers

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.envelope import Integers
    from relay.isolate import Ranges
    from relay.rowmessage import RowCodec
    from relay.types import ColumnType
    from relay.wirescan import Stranger

__all__ = ["BadMessage", "Decoded", "count_rows", "decode"]


class Decoded(NamedTuple):
    """What became of the messages."""

    batch: pa.RecordBatch
    """Rows of the good messages, in order, in block types."""
    messages: int
    """Good ones."""
    bad: list[BadMessage]
    """The others, in order of their index."""
    unknown: dict[str, int]
    """Messages, good or bad, by number of the field they hold and the row message does not."""


def count_rows(values: pa.BinaryArray, framing: str) -> Integers:
    """Rows in each message; one that is no row batch counts as none."""
    opened = open_messages(values, framing)
    rows: Integers = np.zeros(len(values), np.int64)
    rows[opened.index] = opened.counts
    return rows


def decode(
    values: pa.BinaryArray, codec: RowCodec, framing: str, unknown_fields: str = "dead"
) -> Decoded:
    """Decode the messages of a buffer.

    Args:
        values: message values, null where Kafka's value is null.
        codec: of the table.
        framing: "batch" (value is a RowBatch) or "row" (value is one bare row message).
        unknown_fields: "dead" (a message with a field that the row message does not know is
            bad) or "ignore" (the field is passed over).

    Raises:
        ValueError: another framing. What is wrong with a message is in `bad`.
    """
    opened = open_messages(values, framing)
    wire, good, bad = _parse(opened, codec)
    strangers = _strangers(opened, good, wire, codec)
    refused = [one for one in strangers if one.kind == "wrong" or unknown_fields == "dead"]
    batch, misfits = _narrow(wire, codec)
    misfits += [_Misfit(-1, one.rows, partial(_said, one.reason)) for one in refused]
    unknown = {}
    if misfits or strangers:
        # Row number to message: only needed to blame somebody.
        owner = np.repeat(good, opened.counts[good])
        unknown = {
            one.field: len(np.unique(owner[one.rows])) for one in strangers if one.kind == "unknown"
        }
        firsts = _first_misfits(misfits, owner)
        for message, (row, misfit) in firsts.items():
            within = row - int(np.searchsorted(owner, message)) + 1
            column = f", column {codec.column_names[misfit.column]}" if misfit.column >= 0 else ""
            reason = f"row {within}{column}: {misfit.why(row)}"
            bad.append(BadMessage(int(opened.index[message]), reason))
        blamed = np.fromiter(firsts, np.int64)
        batch = batch.filter(pa.array(~np.isin(owner, blamed)))
        good = np.setdiff1d(good, blamed)
    return Decoded(batch, len(good), sorted([*opened.bad, *bad]), unknown)


def _parse(opened: Opened, codec: RowCodec) -> tuple[pa.RecordBatch, Integers, list[BadMessage]]:
    """All rows that parse, which of the opened messages they belong to, and the others."""
    starts = np.concatenate([[0], np.cumsum(opened.counts)])

    def rows_of(ranges: Ranges) -> pa.RecordBatch:
        bounds = [(int(starts[low]), int(starts[high])) for low, high in ranges]
        return codec.decode_all(ranges_of(opened.rows, bounds))

    suspects = Suspects(codec.message_class, opened.rows, starts)
    batches, unreadable = isolate_joined(rows_of, len(opened.index), suspects)
    bad = []
    for at, _ in unreadable:
        first, end = int(starts[at]), int(starts[at + 1])
        guesses = [row - first for row in suspects.parts(first, end)]
        reason = _first_unreadable(opened.rows.slice(first, end - first), codec, guesses)
        bad.append(BadMessage(int(opened.index[at]), reason))
    good = np.delete(np.arange(len(opened.index)), [at for at, _ in unreadable])
    if len(batches) != 1:
        empty = codec.decode_all(pa.array([], pa.binary()))
        batches = [pa.concat_batches([empty, *batches])]  # type: ignore[attr-defined]
    return batches[0], good, bad


def _first_unreadable(rows: pa.BinaryArray, codec: RowCodec, guesses: list[int]) -> str:
    """Which row of a message does not parse, and why; it is probably one of `guesses`."""

    def attempt(low: int, high: int) -> None:
        codec.decode_all(rows.slice(low, high - low))

    for row in guesses:
        try:
            attempt(row, row + 1)
        except ValueError as error:
            return f"row {row + 1}: {error}"
    _, failed = isolate(attempt, len(rows))
    row, reason = failed[0]
    return f"row {row + 1}: {reason}"


def _strangers(
    opened: Opened, good: Integers, wire: pa.RecordBatch, codec: RowCodec
) -> list[Stranger]:
    """What the row message does not explain in the rows that parsed."""
    rows = opened.rows
    if len(good) != len(opened.index):
        parsed = np.isin(np.arange(len(opened.index)), good)
        rows = rows.filter(pa.array(np.repeat(parsed, opened.counts)))
    return [*find_strangers(rows, wire, codec), *find_outdated(wire, codec)]


class _Misfit(NamedTuple):
    """Values that the table cannot hold."""

    column: int
    """Its index; -1: what is wrong belongs to no column."""
    rows: Integers
    why: Callable[[int], str]
    """What is wrong in one of the rows."""


def _narrow(wire: pa.RecordBatch, codec: RowCodec) -> tuple[pa.RecordBatch, list[_Misfit]]:
    arrays, misfits = [], []
    columns, uneven = align(codec.wire_columns(wire), codec.flattened)
    for at, rows in uneven.items():
        misfits.append(_Misfit(at, rows, partial(_said, "not as long as the others of its Nested")))
    for at, kind in enumerate(codec.types):
        array = columns[at]
        narrowed = kind.narrow(array)
        arrays.append(narrowed.array)
        if narrowed.bad is not None:
            rows = np.flatnonzero(narrowed.bad.to_numpy(zero_copy_only=False))
            misfits.append(_Misfit(at, rows, partial(_value_there, kind, array)))
        if codec.needs_value[at] and array.null_count:
            rows = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            misfits.append(_Misfit(at, rows, partial(_said, _LEFT_OUT)))
    return pa.RecordBatch.from_arrays(arrays, schema=codec.arrow_schema), misfits


def _said(reason: str, _: int) -> str:
    return reason


def _value_there(kind: ColumnType, array: pa.Array[Any], row: int) -> str:
    return kind.why(array.slice(row, 1))


_LEFT_OUT = "left out, but EPHEMERAL and not Nullable, so that nothing can stand for it"


def _first_misfits(misfits: list[_Misfit], owner: Integers) -> dict[int, tuple[int, _Misfit]]:
    """Per message to blame: its first bad row, and what is wrong there."""
    firsts: dict[int, tuple[int, int, int]] = {}
    for at, misfit in enumerate(misfits):
        messages, first = np.unique(owner[misfit.rows], return_index=True)
        for message, row in zip(messages.tolist(), misfit.rows[first].tolist(), strict=True):
            found = (row, misfit.column, at)
            firsts[message] = min(firsts.get(message, found), found)
    return {message: (row, misfits[at]) for message, (row, _, at) in firsts.items()}
