"""One ClickHouse type on its way from protobuf to the table: what every kind of type does.

A kind receives whole Arrow arrays as rows decode to and gives the arrays of blocks, with a
mask of the values that do not fit; and it gives the SQL that turns its block column into the
table's. Here: the base, and types without parts. relay.schema.types.nested has the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay.schema.types import value_checks
from relay.schema.types.proto_shape import Shape
from relay.schema.types.type_text import TypeText

Maker = Callable[[str, TypeText], "Scalar"]


_SHOWN_CHARACTERS = 60


class Narrowed(NamedTuple):
    """A block column, and which of its rows do not fit (None: all fit)."""

    array: pa.Array[Any]
    bad: pa.BooleanArray | None


@dataclass(frozen=True)
class TypeKind:
    """A type. Nullable and LowCardinality around it are in `text`, as ClickHouse prints it."""

    text: str
    shape: Shape
    """Of its protobuf field."""
    wire: pa.DataType
    """Arrow type as rows decode to and are encoded from."""
    arrow: pa.DataType
    """Arrow type in blocks."""
    input_type: str
    """ClickHouse type in the INSERT's input structure."""
    optional: ClassVar[bool] = False
    """Whether a field left out is a value of its own, NULL, rather than the default."""

    def block(self, array: pa.Array[Any]) -> Narrowed:
        """Return the block's array of a wire array; a null is a field left out.

        It becomes the type's default value, as in nested messages, unless the type has NULL.
        """
        raise NotImplementedError

    def sql(self, value: str, depth: int = 0) -> str:
        """Return SQL that turns `value`, of `input_type`, into what the table's column takes.

        `depth` is that of the lambdas around it, so that their arguments differ.
        """
        raise NotImplementedError

    def why(self, array: pa.Array[Any]) -> str:
        """Return what is wrong with the single value of a wire array that is bad."""
        raise NotImplementedError

    @property
    def trivial(self) -> bool:
        """Whether INSERT itself converts the input column."""
        return self.sql("v") == "v"


@dataclass(frozen=True)
class Scalar(TypeKind):
    """A type without parts."""

    meaning: str = ""
    """Unit and range; empty where the type says it all."""
    convert: Callable[[str], str] | None = field(default=None, repr=False, compare=False)
    """SQL of a value that is not null; None: INSERT converts by itself."""
    check: value_checks.Check | None = field(default=None, repr=False, compare=False)
    """Which values of the wire array do not fit; None: all do."""
    unit: str = ""
    """Of a count of days, seconds or ticks: the same number means another value in another."""
    default: object = 0
    """Of the type, in `arrow`, where a field is left out in a nested message."""
    prepare: Callable[[pa.Array[Any]], pa.Array[Any]] | None = field(
        default=None, repr=False, compare=False
    )
    """What is done to the wire array before it becomes the block's."""

    def block(self, array: pa.Array[Any], *, keep_nulls: bool = False) -> Narrowed:
        """Convert as TypeKind says; a bad value becomes null, so that its row can be left out.

        Nulls stay where `keep_nulls` is set: Nullable has them.
        """
        bad = None if self.check is None else self.check(array)
        if bad is not None:
            array = pc.if_else(bad, pa.scalar(None, array.type), array)
        if self.prepare is not None:
            array = self.prepare(array)
        if array.type != self.arrow:
            # Checked already where it could not hold every value.
            array = array.cast(self.arrow, safe=False)
        if not keep_nulls and array.null_count:
            array = array.fill_null(pa.scalar(self.default, self.arrow))
        return Narrowed(array, bad)

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says."""
        del depth
        return value if self.convert is None else self.convert(value)

    def why(self, array: pa.Array[Any]) -> str:
        """Return the value, the type and its range."""
        return self.complaint(array[0].as_py())

    def complaint(self, value: object) -> str:
        """Return why `value` does not fit."""
        limits = f" ({self.meaning})" if self.meaning else ""
        return f"{value_text(value)} does not fit {self.text}{limits}"


@dataclass(frozen=True)
class Nullable(TypeKind):
    """A type without parts, or NULL: a field left out is NULL wherever it stands."""

    inner: Scalar
    optional: ClassVar[bool] = True

    @staticmethod
    def of(text: str, inner: Scalar) -> Nullable:
        """Return `inner` with NULL; `text` is the whole type's."""
        wrapped = f"Nullable({inner.input_type})"
        return Nullable(text, inner.shape, inner.wire, inner.arrow, wrapped, inner)

    def block(self, array: pa.Array[Any]) -> Narrowed:
        """Convert as TypeKind says; nulls stay."""
        return self.inner.block(array, keep_nulls=True)

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says."""
        if self.inner.trivial:
            return value
        # Most conversions know no Nullable.
        return f"if(isNull({value}), NULL, {self.inner.sql(f'assumeNotNull({value})', depth)})"

    def why(self, array: pa.Array[Any]) -> str:
        """Explain as the inner type does."""
        return self.inner.why(array)


def value_text(value: object) -> str:
    """Return a value for a reason, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        text = f"{type(value).__name__} of too many digits"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
