"""Types that say of themselves what they hold: Nullable(Tuple) and Variant.

As relay.schema.types.nested: whole arrays, however deep. In blocks both are structs whose first
column tells, because Arrow's own nulls would lose the defaults behind them, and ClickHouse reads no
unions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from relay.clickhouse.quoting import literal
from relay.schema.types.kind import Narrowed, TypeKind
from relay.schema.types.nested import (
    Tuple,
    Wrapped,
    any_bad,
    element,
    first_bad,
    struct_of,
)
from relay.schema.types.proto_shape import ProtoMessage, Shape


@dataclass(frozen=True)
class NullableTuple(TypeKind):
    """Nullable(Tuple(...)). In blocks a struct: whether it is given (1 or 0), and the tuple.

    A nullable struct would lose the defaults in its NULLs, and INSERT parses them all the same.
    """

    inner: Tuple
    optional: ClassVar[bool] = True

    @staticmethod
    def of(text: str, inner: Tuple) -> NullableTuple:
        """Return `inner` with NULL; `text` is the whole type's."""
        arrow = pa.struct([pa.field("given", pa.uint8()), pa.field("tuple", inner.arrow)])
        return NullableTuple(
            text, inner.shape, inner.wire, arrow, f"Tuple(UInt8, {inner.input_type})", inner
        )

    def block(self, array: Any) -> Narrowed:
        """Convert as TypeKind says; a null is one wherever it stands."""
        block, bad = self.inner.block(array)
        given = array.is_valid().cast(pa.uint8())
        return Narrowed(struct_of(self.arrow, [given, block]), bad)

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says."""
        inner = self.inner.sql(f"tupleElement({value}, 2)", depth)
        whole = f"CAST({inner}, {literal(self.inner.text)})"
        return f"if(tupleElement({value}, 1) = 1, {whole}, NULL)"

    def why(self, array: Any) -> str:
        """Explain as the tuple does."""
        return self.inner.why(array)


@dataclass(frozen=True)
class Variant(TypeKind):
    """Variant(T, ...), Geometry and Dynamic: a message with a `oneof`; none set is NULL.

    In blocks a struct: which of the alternatives it is (from 1; 0: NULL), and all of them.
    """

    parts: tuple[TypeKind, ...]
    names: tuple[str, ...]

    @staticmethod
    def of(text: str, names: Sequence[str], kinds: Sequence[TypeKind]) -> Variant:
        """Return a choice of `kinds` under the names `names`; `text` is the whole type's."""
        every = Tuple.of(text, names, [element(kind) for kind in kinds])
        assert every.shape.message is not None
        alternatives = (every.arrow.field(at) for at in range(len(names)))
        return Variant(
            text,
            Shape(message=ProtoMessage(every.shape.message.fields, "oneof")),
            every.wire,
            arrow=pa.struct([pa.field("which", pa.uint8()), *alternatives]),
            input_type=f"Tuple(UInt8, {', '.join(part.input_type for part in every.parts)})",
            parts=every.parts,
            names=every.names,
        )

    def block(self, array: Any) -> Narrowed:
        """Convert as TypeKind says; two alternatives at once are bad."""
        columns = array.flatten()
        which = np.zeros(len(array), np.uint8)
        given = np.zeros(len(array), np.uint8)
        inner = []
        for number, (part, column) in enumerate(zip(self.parts, columns, strict=True), 1):
            is_given = column.is_valid().to_numpy(zero_copy_only=False)
            which[is_given] = number
            given += is_given
            inner.append(part.block(column))
        block = struct_of(self.arrow, [pa.array(which), *(part.array for part in inner)])
        several = pa.array(given > 1) if given.max(initial=0) > 1 else None
        return Narrowed(block, any_bad([several, *(part.bad for part in inner)]))

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says: each alternative to its own type, then to Variant."""
        whole = literal(self.text)
        cases = []
        for at, part in enumerate(self.parts, 1):
            one = part.sql(f"tupleElement({value}, {at + 1})", depth)
            cases.append(
                f"tupleElement({value}, 1) = {at}, CAST(CAST({one}, {literal(part.text)}), {whole})"
            )
        return f"multiIf({', '.join(cases)}, CAST(NULL, {whole}))"

    def why(self, array: Any) -> str:
        """Return the alternative that is bad, or which were given at once."""
        columns = array.flatten()
        pairs = zip(self.names, columns, strict=True)
        given = [name for name, column in pairs if column.null_count == 0]
        if len(given) > 1:
            return f"{' and '.join(given)} at once in {self.text}"
        return first_bad(self.names, self.parts, array)


def holds_null(kind: TypeKind) -> bool:
    """Return whether null is a value where this kind stands in an Array, a Map or a Tuple."""
    if isinstance(kind, Wrapped):
        return holds_null(kind.inner)
    return kind.optional or isinstance(kind, Variant)
