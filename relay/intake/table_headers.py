"""Finds the table of each message, which only its header names.

Receives headers, gives numbers of tables. The same message always belongs to the same table,
whatever the catalogue says at the time; what has no readable header belongs to the table "".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relay import names
from relay.names import NO_TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

Headers = list[tuple[str, bytes | None]] | None
"""As the consumer gives them: in the order written, names possibly repeated."""

_LEAST_SLOTS = 64


@dataclass(frozen=True, slots=True)
class Names:
    """The tables known so far, as relay.intake.message_kernel looks one up.

    Attributes:
        joined: their names as bytes, one behind the other, by number.
        ends: of each in `joined`.
        slots: a hash table of numbers.
    """

    joined: npt.NDArray[np.uint8]
    ends: Integers
    slots: Integers


class TableHeaders:
    """Headers to table, remembered: a topic has few tables and many messages.

    Attributes:
        tables: by number; number 0 is NO_TABLE.
    """

    _REMEMBERED = 10_000

    def __init__(self) -> None:
        self.tables: list[str] = [NO_TABLE]
        self._numbers: dict[str, int] = {NO_TABLE: 0}
        self._plain: dict[tuple[tuple[str, bytes | None], ...], int] = {}
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        """All tables known so far."""
        if self._names is None or len(self._names.ends) != len(self.tables):
            self._names = _looked_up(self.tables)
        return self._names

    def numbers(self, headers: Sequence[Headers]) -> tuple[Integers, list[int]]:
        """Return each message's table by number, and which messages have other headers.

        Where all have the one header of a table seen before, no Python code runs per message.
        """
        try:
            known = map(self._plain.__getitem__, map(tuple, headers))  # type: ignore[arg-type]
            return np.fromiter(known, np.int64, len(headers)), []
        except (KeyError, TypeError):  # a new table, further headers, or none at all
            found = [self.number(one) for one in headers]
        others = [at for at, (_, plain) in enumerate(found) if not plain]
        return np.fromiter((number for number, _ in found), np.int64, len(found)), others

    def number(self, headers: Headers) -> tuple[int, bool]:
        """Return the table's number, and whether the header that names it stands alone."""
        key = tuple(headers or ())
        if key in self._plain:
            return self._plain[key], True
        table = self.table(headers)
        number = self._numbers.setdefault(table, len(self.tables))
        if number == len(self.tables):
            self.tables.append(table)
        plain = len(key) == 1 and table != NO_TABLE
        if plain:
            self._plain[key] = number
        return number, plain

    def table(self, headers: Headers) -> str:
        """Return the table that exactly one header `table` names in plain UTF-8, or NO_TABLE."""
        found = [value for key, value in headers or () if key == names.TABLE_HEADER]
        return self._parse(found[0]) if len(found) == 1 else NO_TABLE

    def trim(self) -> None:
        """Forget all, between polls, when too many were invented; a number may change then."""
        if len(self.tables) > self._REMEMBERED:
            self.tables, self._numbers, self._plain = [NO_TABLE], {NO_TABLE: 0}, {}
            self._names = None

    @staticmethod
    def _parse(raw: bytes | None) -> str:
        try:
            text = (raw or b"").decode("utf-8")
        except UnicodeDecodeError:
            return NO_TABLE
        return text if names.is_table_name(text) else NO_TABLE


def _looked_up(tables: Sequence[str]) -> Names:
    from relay.intake import message_kernel  # noqa: PLC0415 - compiled code, for those who use it

    written = [table.encode() for table in tables]
    joined = np.frombuffer(b"".join(written) + b"\0", np.uint8)
    ends = np.cumsum([len(name) for name in written])
    size = _LEAST_SLOTS
    while size < 2 * len(tables):
        size *= 2
    slots = np.full(size, message_kernel.UNKNOWN, np.int64)
    for number in range(1, len(tables)):
        start = int(ends[number - 1])
        at = joined.ctypes.data + start
        place = message_kernel.place_of(joined, ends, slots, at, int(ends[number]) - start)
        slots[place] = number
    return Names(joined, ends, slots)
