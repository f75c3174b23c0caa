"""Tell whether a value holds a row's bytes: a text that nothing else in a process has.

Receives any value, looks into it, and changes nothing. Foreign types are known by where they are
from: this is loaded into every program, and must not import what that would not.

Not seen are bytes to which a value has nothing but an address, as a full poll's columns have, and
what a function would have if it were called: a closure has nothing in its hands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any

DEPTH = 4
"""Steps from a value to what it refers to. What a buffer became has one to its list of chunks, one
to a chunk and its rows, and one to the bytes; a poll has as many. Of walks with other depths, two
lost files that have just these in their hands, and all from three to twelve found the same."""
_PLAIN = (int, float, complex, type, type(None))
_SERIES = (list, tuple, set, frozenset, deque)
_PRODUCT = ("relay.", "loader.")


class Holding:
    """Of one row.

    Args:
        text: that the row's bytes contain.
        depth: as DEPTH.
    """

    def __init__(self, text: str, depth: int = DEPTH) -> None:
        self._text, self._bytes, self._depth = text, text.encode(), depth

    def of(self, value: object) -> bool:
        """Return whether the value holds the row's bytes."""
        level, seen = [value], {id(value)}
        for _ in range(self._depth):
            if any(map(self._is, level)):
                return True
            below = []
            for one in chain.from_iterable(map(_inside, level)):
                if id(one) not in seen:
                    seen.add(id(one))
                    below.append(one)
            level = below
        return any(map(self._is, level))

    def _is(self, value: Any) -> bool:
        """Whether the value is made of the bytes, and not of other values that may be."""
        if isinstance(value, _PLAIN):
            return False
        if isinstance(value, str):
            return self._text in value
        with suppress(TypeError, ValueError, BufferError):  # it has no memory to be looked at
            return self._bytes in memoryview(value).tobytes()
        kind = type(value)
        home = kind.__module__.partition(".")[0]
        if home == "pyarrow":
            return self._in_arrow(value)
        # Not of the value: a proxy of something elsewhere may have whatever it is asked for.
        if home == "confluent_kafka" and hasattr(kind, "headers"):
            parts = value.value(), value.key(), *chain.from_iterable(value.headers() or ())
            return any(map(self._is, parts))
        if hasattr(kind, "SerializePartialToString"):
            return self._bytes in value.SerializePartialToString()
        return False

    def _in_arrow(self, value: Any) -> bool:
        for parts in ("columns", "chunks"):
            if hasattr(value, parts):
                return any(map(self._in_arrow, getattr(value, parts)))
        if hasattr(value, "buffers"):
            return any(map(self._is, value.buffers()))
        return hasattr(value, "as_py") and self._is(value.as_py())


def _inside(value: Any) -> Iterable[object]:
    """What the value refers to, where that is known without running anybody's code."""
    kind = type(value)
    if isinstance(value, _SERIES):
        return list(value)
    if isinstance(value, dict):
        return [*dict.keys(value), *dict.values(value)]
    if kind.__module__.startswith("google.") and kind.__name__.startswith("Repeated"):
        return list(value)
    if not kind.__module__.startswith(_PRODUCT):
        return ()
    names = chain.from_iterable(vars(base).get("__slots__", ()) for base in kind.__mro__)
    slots = [getattr(value, name) for name in names if hasattr(value, name)]
    return [*slots, *getattr(value, "__dict__", {}).values()]
