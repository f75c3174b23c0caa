"""Finds the few items of an array that a decoder refuses, while the many pass at its speed.

Receives an attempt that converts a range of items or raises, gives what it made of the ranges
that it takes and the single items that it refuses. Only the attempt ever judges: which items of a
range that it refused are bad is a guess, whose quality decides about speed and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError, Message

Ranges = list[tuple[int, int]]


T = TypeVar("T")

BLOCK = 1024
"""Parts of items (rows, or messages where each is looked at whole) in a range that is searched
one by one. Larger, and one bad item makes more good ones be decoded again; smaller, and the
decoder's 30 µs a call weigh more than the rows (1024 rows of 10 columns take 200 µs)."""


def ranges_of(array: Any, ranges: Ranges) -> Any:
    """Return the items of these ranges, as one array."""
    parts = [array.slice(low, high - low) for low, high in ranges]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def isolate(attempt: Callable[[int, int], T], count: int) -> tuple[list[T], list[tuple[int, str]]]:
    """Run `attempt(low, high)` over 0 to `count`, in halves where it raises ValueError.

    One attempt if nothing is bad; else about two more per bad item and halving.

    Returns:
        The results of the ranges that succeeded, and the single items that failed with the error's
        text; both in order.
    """
    done: list[T] = []
    failed: list[tuple[int, str]] = []
    waiting = [(0, count)]
    while waiting:
        low, high = waiting.pop()
        if low == high:
            continue
        try:
            done.append(attempt(low, high))
        except ValueError as error:
            if high - low == 1:
                failed.append((low, str(error)))
                continue
            middle = (low + high) // 2
            waiting += [(middle, high), (low, middle)]
    return done, failed


class Suspects:
    """The items that the protobuf runtime refuses: a guess at those that the decoder refuses.

    Halving decodes every row again at each level until the bad ones stand apart: with one bad
    message in a hundred it took a buffer of one-row messages 18 times as long as without. The
    protobuf runtime looks at single rows for 0.1 µs each; it and the decoder agree on all but
    about one mutated message in a thousand, and for that one there are halves.

    Args:
        message_class: of the parts.
        parts: serialized messages.
        starts: of each item, its first part; one more at the end.
    """

    def __init__(
        self, message_class: type[Message], parts: Any, starts: npt.NDArray[np.int64]
    ) -> None:
        self._parse = message_class().ParseFromString
        self._parts = parts
        self._starts = starts

    def among(self, low: int, high: int) -> list[int]:
        """Return those in [low, high), ascending."""
        refused = self.parts(int(self._starts[low]), int(self._starts[high]))
        items = np.searchsorted(self._starts, refused, "right") - 1
        return sorted(set(items.tolist()))

    def parts(self, first: int, end: int) -> list[int]:
        """Return the refused ones of the parts [first, end), ascending."""
        refused = []
        for at, part in enumerate(self._parts.slice(first, end - first).to_pylist(), first):
            try:
                self._parse(part)
            except DecodeError:
                refused.append(at)
        return refused

    def blocks(self, low: int, high: int) -> list[int]:
        """Return points inside (low, high) that leave about BLOCK parts between them."""
        ends = np.arange(self._starts[low] + BLOCK, self._starts[high], BLOCK)
        return sorted(set(np.searchsorted(self._starts, ends).tolist()) - {low, high})


def isolate_joined(
    attempt: Callable[[Ranges], T], count: int, suspects: Suspects
) -> tuple[list[T], list[tuple[int, str]]]:
    """Isolate an attempt that is dear to call: the good items of a block are one call.

    `attempt` converts the items of some ranges, ascending, to one result.

    Returns:
        The results, in order, and the items that failed with the error's text.
    """
    done: list[T] = []
    failed: list[tuple[int, str]] = []
    if count == 0:
        return done, failed
    try:
        return [attempt([(0, count)])], failed
    except ValueError:
        ends = [0, *suspects.blocks(0, count), count]
    for low, high in pairwise(ends):
        results, refused = _block(attempt, low, high, suspects)
        done += results
        failed += refused
    return done, failed


def _block(
    attempt: Callable[[Ranges], T], low: int, high: int, suspects: Suspects
) -> tuple[list[T], list[tuple[int, str]]]:
    with contextlib.suppress(ValueError):
        return [attempt([(low, high)])], []
    bad = dict(_refused_alone(attempt, suspects.among(low, high)))
    edges = [low - 1, *bad, high]
    good = [(at + 1, following) for at, following in pairwise(edges) if at + 1 < following]
    with contextlib.suppress(ValueError):
        return [attempt(good)] if good else [], list(bad.items())

    # The guess missed an item: without guessing, then.
    results, refused = isolate(lambda first, end: attempt([(low + first, low + end)]), high - low)
    return results, [(low + item, why) for item, why in refused]


def _refused_alone(
    attempt: Callable[[Ranges], Any], items: Sequence[int]
) -> Iterator[tuple[int, str]]:
    for at in items:
        try:
            attempt([(at, at + 1)])
        except ValueError as error:
            yield at, str(error)
