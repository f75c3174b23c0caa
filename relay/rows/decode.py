"""Decodes source messages of one table into one record batch, and leaves the bad ones out.

Receives the values of a buffer, gives the rows of the good messages in order as
columns of block types, and for each bad message its index and reason. A message
is good or bad as a whole. Never keeps part of a message, never repairs a value.

First rows become columns of wire types. In a large buffer of flat rows the compiled decoder takes
what is plain (relay.rows.flat_decoder), and only what it passes over goes through the general one;
both give the same, so which took a message shows nowhere. The general one converts all messages at
once; only where that raises, parts are tried until the bad messages stand alone
(relay.rows.bisect). Then wire types become block types, and values are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from relay.arrow.array_memory import Integers, in_one_piece, size_of, starts_of, sums_of
from relay.rows.bisect import Ranges, Suspects, isolate, isolate_joined, ranges_of
from relay.rows.decoder_guards import refuse_deep
from relay.rows.envelope import BadMessage, Opened, check_framing, join_counts, open_messages
from relay.rows.judgement import UnfitValues, narrow
from relay.rows.row_bound import RowBound
from relay.rows.row_codec import RowCodec
from relay.rows.unknown_fields import find_outdated, find_unexplained, passes_over
from relay.rows.wire_scan import Unexplained
from relay.schema.dead_reason import DeadKind, DeadReason

T = TypeVar("T")

COMPILED_FROM_BYTES = 1 << 16
"""A smaller buffer is not worth loading the compiled decoder: 0.4 s once, 2 s the first time."""


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
    passed_over: bool = False
    """Whether any of them has a value of a column that is gone: in a newer row message it may be
    back."""
    left: int = 0
    """Of the messages given, how many of the last were not looked at: they are for the next."""

    @property
    def messages(self) -> int:
        """How many are good."""
        return len(self.good)

    def parts(self, sizes: Sequence[int]) -> list[Decoded]:
        """Return what became of the first messages, of the next ones, and so on.

        All messages of these parts are good, and hold no unknown field.
        """
        ends = starts_of(self.rows)
        parts, first = [], 0
        for size in sizes:
            end = first + size
            rows = self.batch.slice(ends[first], ends[end] - ends[first])
            good = np.arange(size)
            parts.append(Decoded(rows, good, self.rows[first:end], [], {}, self.passed_over))
            first = end
        return parts


def decode(
    values: pa.ChunkedArray[Any],
    codec: RowCodec,
    framing: str,
    unknown_fields: str = "dead",
    bound: RowBound | None = None,
) -> Decoded:
    """Decode the messages of a buffer.

    Args:
        values: of messages, null where Kafka's value is null; they may lie in several pieces.
        codec: of the table.
        framing: "batch" (value is a RowBatch) or "row" (value is one bare row message).
        unknown_fields: "dead" (a message with a field that the row message does not know is
            bad) or "ignore" (the field is passed over).
        bound: of the rows; the first messages are decoded, as many as fit, at least one. None: all.

    Raises:
        ValueError: another framing. What is wrong with a message is in `bad`.
    """
    rows = _read(values, codec, framing, bound)
    left = len(values) - rows.end
    refused = [one for one in rows.unexplained if unknown_fields == "dead" or not one.unknown]
    batch, misfits = narrow(rows.columns, codec)
    misfits += [UnfitValues(one.kind, -1, one.field, one.rows, one.why) for one in refused]
    if not misfits and not rows.unexplained:
        bad = sorted(rows.bad)
        return Decoded(batch, rows.index, rows.counts, bad, {}, rows.passed_over, left)
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
    of_good = rows.index[good], rows.counts[good]
    return Decoded(batch, *of_good, sorted(bad), unknown, rows.passed_over, left)


@dataclass(frozen=True)
class _WireRows:
    """What the messages hold."""

    columns: list[pa.Array[Any]]
    """Live columns in wire types: the rows of the messages that parse, in order."""
    index: Integers
    """Of these messages in the array that was given, ascending."""
    counts: Integers
    """Rows of each."""
    bad: list[BadMessage]
    """The others."""
    unexplained: list[Unexplained]
    """What the row message does not explain in these rows."""
    end: int
    """Of the messages that were looked at, in the array that was given."""
    passed_over: bool = False
    """Whether they have a value of a column that is gone."""

    def owner(self) -> Integers:
        """Return the message of each row; ascending."""
        return np.repeat(self.index, self.counts)

    def first(self, most: int) -> _WireRows:
        """Return the rows of the first messages: before `end`, and no more than so many.

        Of a message alone all are returned.
        """
        if len(self.columns[0]) <= most and (self.index[-1:] < self.end).all():
            return self  # the usual case
        ends = np.cumsum(self.counts)
        fitting = max(1, int(np.searchsorted(ends, most, "right")))
        end = self.end if fitting >= len(ends) else min(self.end, int(self.index[fitting]))
        kept = int(np.searchsorted(self.index, end))
        rows = int(ends[kept - 1]) if kept else 0
        within = (one.before(rows) for one in self.unexplained)
        return replace(
            self,
            columns=[column.slice(0, rows) for column in self.columns],
            index=self.index[:kept],
            counts=self.counts[:kept],
            bad=[message for message in self.bad if message.index < end],
            unexplained=[one for one in within if len(one.rows)],
            end=end,
        )


def _read(
    values: pa.ChunkedArray[Any], codec: RowCodec, framing: str, bound: RowBound | None
) -> _WireRows:
    """The rows in the messages' values, of the first messages if all are too many."""
    check_framing(framing)
    if codec.flat is None or size_of(values) < COMPILED_FROM_BYTES:
        return _read_any(in_one_piece(values), codec, framing, bound)
    columns, counts = codec.flat.read(values, framing, bound)
    plain = np.flatnonzero(counts >= 0)
    rows = _WireRows(columns, plain, counts[plain], [], [], len(counts))
    if len(plain) < len(counts):
        rest = np.flatnonzero(counts < 0)
        others = _read_any(in_one_piece(values.take(rest)), codec, framing, bound)
        bad = [replace(message, index=int(rest[message.index])) for message in others.bad]
        end = len(counts) if others.end == len(rest) else int(rest[others.end])
        rows = _merge(rows, replace(others, index=rest[others.index], bad=bad, end=end))
    return rows if bound is None else rows.first(bound.rows)


def _merge(some: _WireRows, others: _WireRows) -> _WireRows:
    """The rows of both in the order of their messages."""
    if not len(others.index):
        return replace(some, bad=others.bad, end=others.end)
    if not len(some.index):
        return others
    order = np.argsort(np.concatenate([some.owner(), others.owner()]), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    columns = [
        pa.concat_arrays([column, other]).take(order)
        for column, other in zip(some.columns, others.columns, strict=True)
    ]
    index = np.concatenate([some.index, others.index])
    in_order = np.argsort(index)
    counts = np.concatenate([some.counts, others.counts])
    moved = place[len(some.owner()) :]
    return replace(
        others,
        columns=columns,
        index=index[in_order],
        counts=counts[in_order],
        unexplained=[one._replace(rows=moved[one.rows]) for one in others.unexplained],
    )


def _read_any(
    values: pa.BinaryArray, codec: RowCodec, framing: str, bound: RowBound | None
) -> _WireRows:
    """Any messages of any table; the first, if all have too many rows."""
    opened, end = open_messages(values, framing), len(values)
    if bound is not None:
        opened, end = opened.within(bound, end)
        if codec.counts_in_rows:
            of_rows, counted = _read_rows(opened, codec, codec.element_bytes)
            elements = sums_of(join_counts(of_rows), counted.counts)
            opened, end = replace(counted, elements=elements).within(bound, end)
    wire, parsed = _parse(opened, codec)
    if bound is not None and codec.flattened:
        filled = sums_of(codec.filled_bytes(wire), parsed.counts)
        fitting, end = replace(parsed, elements=parsed.elements + filled).within(bound, end)
        if len(fitting.index) < len(parsed.index):
            wire, fitting = _parse(fitting, codec)
        parsed = fitting
    columns, passed_over = codec.wire_columns(wire), passes_over(wire, codec)
    unexplained = [*find_unexplained(parsed.rows, wire, codec), *find_outdated(wire, codec)]
    return _WireRows(
        columns, parsed.index, parsed.counts, parsed.bad, unexplained, end, passed_over
    )


def _parse(opened: Opened, codec: RowCodec) -> tuple[pa.RecordBatch, Opened]:
    """All rows that parse, and their messages; the others are bad."""
    batches, parsed = _read_rows(opened, codec, codec.decode_all)
    if len(batches) != 1:
        empty = codec.decode_all(pa.array([], pa.binary()))
        batches = [pa.concat_batches([empty, *batches])]  # type: ignore[attr-defined]
    return batches[0], parsed


def _read_rows(
    opened: Opened, codec: RowCodec, read: Callable[[pa.BinaryArray], T]
) -> tuple[list[T], Opened]:
    """What is read of the rows that parse, and their messages; the others are bad."""
    starts = starts_of(opened.counts)

    def guarded(rows: pa.BinaryArray) -> T:
        refuse_deep(rows, codec.message_class)
        return read(rows)

    def rows_of(ranges: Ranges) -> T:
        bounds = [(int(starts[low]), int(starts[high])) for low, high in ranges]
        return guarded(ranges_of(opened.rows, bounds))

    suspects = Suspects(codec.message_class, opened.rows, starts)
    results, unreadable = isolate_joined(rows_of, len(opened.index), suspects)
    bad = list(opened.bad)
    readable = np.ones(len(opened.index), np.bool_)
    for message, _ in unreadable:
        readable[message] = False
        first, end = int(starts[message]), int(starts[message + 1])
        guesses = [row - first for row in suspects.parts(first, end)]
        reason = _first_unreadable(opened.rows.slice(first, end - first), guarded, guesses)
        why = DeadReason(DeadKind.UNREADABLE_ROW, reason)
        bad.append(BadMessage(int(opened.index[message]), why))
    return results, replace(opened.only(readable), bad=bad)


def _first_unreadable(
    rows: pa.BinaryArray, read: Callable[[pa.BinaryArray], Any], guesses: list[int]
) -> str:
    """Which row of a message does not parse, and why; it is probably one of `guesses`."""

    def attempt(low: int, high: int) -> None:
        read(rows.slice(low, high - low))

    for row in guesses:
        try:
            attempt(row, row + 1)
        except ValueError as error:
            return f"row {row + 1}: {error}"
    _, failed = isolate(attempt, len(rows))
    row, reason = failed[0]
    return f"row {row + 1}: {reason}"


def _first_misfits(
    misfits: list[UnfitValues], owner: Integers
) -> dict[int, tuple[int, UnfitValues]]:
    """Per message to blame: its first bad row, and what is wrong there."""
    firsts: dict[int, tuple[int, int, int]] = {}
    for number, misfit in enumerate(misfits):
        messages, first = np.unique(owner[misfit.rows], return_index=True)
        for message, row in zip(messages.tolist(), misfit.rows[first].tolist(), strict=True):
            candidate = (row, misfit.column, number)
            firsts[message] = min(firsts.get(message, candidate), candidate)
    return {message: (row, misfits[number]) for message, (row, _, number) in firsts.items()}
