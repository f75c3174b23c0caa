"""Values that follow from a row's number, once as Arrow columns and once as SQL of its `event`.

Receives row numbers, gives columns in the protobuf-side types: numbers, texts made of parts, lists
and maps of texts. Never talks to a server.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.clickhouse.quoting import literal
from relay.schema.types.nested import list_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.uint64]
    Column: TypeAlias = Any
    """An Arrow array: its type stubs know no mix of arrays and scalars."""

_TEXT = pa.string()
_HEX = pa.array([f"{n:04x}" for n in range(1 << 16)])


@dataclass(frozen=True, slots=True)
class Spread:
    """A number of 31 bits that jumps from row to row.

    Attributes:
        name: another one jumps in another way.
    """

    name: str

    @property
    def _factor(self) -> int:
        """Odd: no two numbers of rows have the same product in 64 bits."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) | 1

    def numbers(self, rows: Numbers) -> Numbers:
        """Of these rows."""
        return (rows * np.uint64(self._factor)) >> np.uint64(33)

    @property
    def sql(self) -> str:
        """The same of `event`; there, too, the product wraps."""
        return f"bitShiftRight(toUInt64(event) * toUInt64({self._factor}), 33)"


class Value(ABC):
    """What a column holds; the spreads of different columns and places differ by `name`."""

    @abstractmethod
    def column(self, rows: Numbers, name: str, wire: pa.DataType) -> Column:
        """Of these rows, in the protobuf-side type."""

    @abstractmethod
    def sql(self, name: str) -> str:
        """The same, of `event`."""


@dataclass(frozen=True, slots=True)
class Number(Value):
    """From `least` to below `least + many`, divided by `per`."""

    many: int
    least: int = 0
    per: int = 1

    def column(self, rows: Numbers, name: str, wire: pa.DataType) -> Column:
        found = (Spread(name).numbers(rows) % np.uint64(self.many)).astype(np.int64) + self.least
        return pa.array(found / self.per if self.per > 1 else found).cast(wire)

    def sql(self, name: str) -> str:
        whole = f"(toInt64({Spread(name).sql} % {self.many}) + {self.least})"
        return f"{whole} / {self.per}" if self.per > 1 else whole


@dataclass(frozen=True, slots=True)
class Counted(Value):
    """`first`, and one more every so many rows.

    Attributes:
        as_type: SQL of the column's type, with `{}` where the number stands.
    """

    first: int
    every: int
    as_type: str

    def column(self, rows: Numbers, name: str, wire: pa.DataType) -> Column:
        del name
        return pa.array((rows // np.uint64(self.every)).astype(np.int64) + self.first).cast(wire)

    def sql(self, name: str) -> str:
        del name
        return self.as_type.format(f"toInt64(intDiv(event, {self.every}) + {self.first})")


class Pick:
    """One of these texts."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def column(self, spread: Numbers) -> Column:
        return pa.array(self._texts).take(pa.array(spread % np.uint64(len(self._texts))))

    def sql(self, spread: str) -> str:
        return f"[{', '.join(map(literal, self._texts))}][{spread} % {len(self._texts)} + 1]"


@dataclass(frozen=True, slots=True)
class Digits:
    """A number below this, with zeros before it."""

    below: int

    def column(self, spread: Numbers) -> Column:
        found: Any = pa.array(spread % np.uint64(self.below)).cast(_TEXT)
        return pc.utf8_lpad(found, self._width, "0")

    def sql(self, spread: str) -> str:
        return f"leftPad(toString({spread} % {self.below}), {self._width}, '0')"

    @property
    def _width(self) -> int:
        return len(str(self.below - 1))


@dataclass(frozen=True, slots=True)
class Hex:
    """Four random characters."""

    def column(self, spread: Numbers) -> Column:
        return _HEX.take(pa.array(spread & np.uint64(0xFFFF)))

    def sql(self, spread: str) -> str:
        return f"leftPad(lower(hex(toUInt16(bitAnd({spread}, 65535)))), 4, '0')"


Part: TypeAlias = str | Pick | Digits | Hex


class Text(Value):
    """These parts, one behind the other."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts

    def column(self, rows: Numbers, name: str, wire: pa.DataType = _TEXT) -> Column:
        made: list[Any] = [
            pa.scalar(part)
            if isinstance(part, str)
            else part.column(Spread(f"{name} {at}").numbers(rows))
            for at, part in enumerate(self._parts)
        ]
        if len(made) == 1:
            return made[0].cast(wire)
        join: Any = pc.binary_join_element_wise
        return join(*made, pa.scalar("")).cast(wire)

    def sql(self, name: str) -> str:
        made = [
            literal(part) if isinstance(part, str) else part.sql(Spread(f"{name} {at}").sql)
            for at, part in enumerate(self._parts)
        ]
        return made[0] if len(made) == 1 else f"concat({', '.join(made)})"


@dataclass(frozen=True, slots=True)
class Sometimes(Value):
    """NULL in one of so many rows."""

    value: Value
    many: int

    def column(self, rows: Numbers, name: str, wire: pa.DataType) -> Column:
        is_null = pa.array(Spread(f"{name} null").numbers(rows) % np.uint64(self.many) == 0)
        choose: Any = pc.if_else
        return choose(is_null, pa.scalar(None, wire), self.value.column(rows, name, wire))

    def sql(self, name: str) -> str:
        return f"if({Spread(f'{name} null').sql} % {self.many} = 0, NULL, {self.value.sql(name)})"


@dataclass(frozen=True, slots=True)
class Several(Value):
    """The first of these texts, how many differs from row to row; with keys it is a map."""

    texts: Sequence[Text]
    least: int = 0
    keys: Sequence[str] = ()

    def column(self, rows: Numbers, name: str, wire: pa.DataType) -> Column:
        spread = Spread(f"{name} size").numbers(rows) % np.uint64(self._sizes)
        lengths = spread.astype(np.int64) + self.least
        ends = np.concatenate([[0], np.cumsum(lengths)])
        of_row = np.repeat(np.arange(len(rows)), lengths)
        place = np.arange(ends[-1]) - ends[of_row]
        made = [text.column(rows, self._item(name, at)) for at, text in enumerate(self.texts)]
        # All first ones, then all second ones: a row's lie so many rows apart.
        items = pa.concat_arrays(made).take(pa.array(place * len(rows) + of_row))
        if self.keys:
            keys = pa.array(self.keys).take(pa.array(place))
            items = pa.StructArray.from_arrays([keys, items], fields=list(wire.value_type))
        return list_of(lengths, items, wire)

    def sql(self, name: str) -> str:
        made = ", ".join(text.sql(self._item(name, at)) for at, text in enumerate(self.texts))
        size = f"toUInt8({Spread(f'{name} size').sql} % {self._sizes} + {self.least})"
        items = f"arraySlice([{made}], 1, {size})"
        if not self.keys:
            return items
        keys = ", ".join(map(literal, self.keys))
        return f"mapFromArrays(arraySlice([{keys}], 1, {size}), {items})"

    @property
    def _sizes(self) -> int:
        """How many different ones there are."""
        return len(self.texts) + 1 - self.least

    @staticmethod
    def _item(name: str, at: int) -> str:
        return f"{name}[{at}]"
