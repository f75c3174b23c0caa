"""Makes a file's or program's columns into the Arrow columns of a table's row message.

Receives a record batch with whatever types its reader chose and the table's codec; gives a
record batch in protobuf-side types, checked by the relay's own judgement so that it accepts every
row, but for one too large for the table's block topic. Never guesses:
a column the table does not have, one it needs and does not get, and a value that does not fit
are errors that name file, row, column and value.

What is accepted, beside the type itself: numbers as text; text as ISO 8601 for Date, DateTime
and DateTime64 (without a zone: UTC), and dates as 2012/1/31 and Jan 31 2012; integers there as what
is on the wire (days since the epoch, Unix seconds, ticks); floats without a fraction for integers,
and for a Decimal floats whose shortest decimal text it holds. Fractions that a DateTime cannot
hold, numbers for a String column, and times for a number, are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from relay.errors import ConfigError
from relay.produce.nested_conversion import NOT_CONVERTED, to_wire
from relay.rows.judgement import narrow
from relay.rows.row_codec import left_out
from relay.schema.dead_reason import DeadKind
from relay.schema.types.kind import TypeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from relay.rows.judgement import UnfitValues
    from relay.rows.row_codec import RowCodec
    from relay.schema.types.column_type import ColumnType

    Array = pa.Array[Any]


class BatchOrigin(NamedTuple):
    """Where a batch came from, for errors."""

    file: str
    first_row: int  # number of the batch's first row in the file, from 1
    line_of_row: Callable[[int], int] | None = None  # where lines are not simply rows

    def column(self, index: int, name: str) -> str:
        """Return where a value is, in row `index` from 0; the line, too, if it is not row + 1."""
        row = self.first_row + index
        line = row + 1 if self.line_of_row is None else self.line_of_row(row)
        line_text = f" (line {line})" if line != row + 1 else ""
        return f"{self.file}, row {row}{line_text}, column {name!r}"


class BadValue(ConfigError):
    """A value does not fit its column."""

    value: object = None
    """None where it is not known."""
    type: str = ""
    """The column's, as ClickHouse writes it."""


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def _repeated_fields(fields: list[pa.Field[Any]]) -> Iterator[str]:
    """Yield names that occur twice among the fields, or in a struct, with a dot."""
    yield from repeated(field.name for field in fields)
    for field in fields:
        inner = [field.type.field(index) for index in range(field.type.num_fields)]
        yield from (f"{field.name}.{name}" for name in _repeated_fields(inner))


def row_columns(codec: RowCodec, batch: pa.RecordBatch, origin: BatchOrigin) -> pa.RecordBatch:
    """Return the batch as columns of `codec.wire_schema`, which `encode_rows` takes.

    A null, and a column the batch does not have, is a field left out: null in a Nullable
    column, the DEFAULT in any other but an EPHEMERAL one, which has to be given.

    Raises:
        BadValue: naming file, row, column, value and the type it does not fit.
        ConfigError: a column, or a field of one, occurs twice.
    """
    if doubled := sorted(_repeated_fields(list(batch.schema))):
        raise ConfigError(
            f"{origin.file}: column {', '.join(map(repr, doubled))} occurs twice",
            "rename or drop one of them: nothing says which is meant",
        )
    arrays = []
    for name, type_ in zip(codec.column_names, codec.types, strict=True):
        if (index := batch.schema.get_field_index(name)) < 0:
            arrays.append(left_out(batch.num_rows, type_.wire))
        else:
            arrays.append(_converted(batch.column(index), name, type_, origin))
    _, misfits = narrow(arrays, codec)
    if misfits:
        first = min(misfits, key=lambda misfit: (int(misfit.rows[0]), misfit.column))
        raise _misfit_error(first, codec, batch, origin)
    return pa.RecordBatch.from_arrays(arrays, schema=codec.wire_schema)


def _converted(array: Array, name: str, type_: ColumnType, origin: BatchOrigin) -> Array:
    """One column in its wire type."""
    try:
        return to_wire(array, type_.kind)
    except NOT_CONVERTED as error:
        row = _first_failing(array, type_.kind)
        value = value_at(array, row) if len(array) else None
        reason = f"{type_.complaint(value)}: {_reason(array, row, type_.kind, error)}"
        raise bad_value(origin.column(row, name), reason, value, type_) from error


def _misfit_error(
    misfit: UnfitValues, codec: RowCodec, batch: pa.RecordBatch, origin: BatchOrigin
) -> BadValue:
    """What the relay would refuse, with the value as it was given."""
    row, type_ = int(misfit.rows[0]), codec.types[misfit.column]
    index = batch.schema.get_field_index(misfit.field)
    value = value_at(batch.column(index), row) if index >= 0 else None
    plain = misfit.kind == DeadKind.DOES_NOT_FIT and type_.scalar is not None
    reason = type_.complaint(value) if plain else misfit.why(row)
    return bad_value(origin.column(row, misfit.field), reason, value, type_)


def value_at(array: Array, row: int) -> object:
    """Return a value for an error, also one with a text that is not UTF-8."""
    single: Any = array.slice(row, 1)
    try:
        value: object = single[0].as_py()
    except UnicodeDecodeError:
        nested = single.type.num_fields or pa.types.is_dictionary(single.type)
        value = str(single) if nested else single.cast(pa.large_binary())[0].as_py()
    return value


def _reason(array: Array, row: int, kind: TypeKind, error: Exception) -> str:
    """What is wrong with that value: the error of the whole column may name another one."""
    try:
        to_wire(array.slice(row, 1), kind)
    except NOT_CONVERTED as own:
        error = own
    return str(error).splitlines()[0]


def bad_value(where: str, reason: str, value: object, type_: ColumnType) -> BadValue:
    """Return the error for a value that does not fit its column; `where` names row and column."""
    next_step = "correct the value, or change the column's type in ClickHouse"
    error = BadValue(f"{where}: {reason}", next_step)
    error.value, error.type = value, type_.clickhouse
    return error


def _first_failing(array: Array, kind: TypeKind) -> int:
    """Index of the first value that does not convert; by bisection, as only errors come here."""
    low, high = 0, len(array)  # array[:low] converts, array[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            to_wire(array.slice(low, middle - low), kind)
        except NOT_CONVERTED:
            high = middle
        else:
            low = middle
    return low
