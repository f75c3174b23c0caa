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
from relay.produce.leaf_conversion import leaf
from relay.produce.nested_conversion import to_wire
from relay.rows.judgement import narrow
from relay.rows.row_codec import left_out
from relay.schema.dead_reason import DeadKind
from relay.schema.evolution import live_columns
from relay.schema.types.column_type import parse_type
from relay.schema.types.variant import holds_null

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from relay.records_pb2 import Column, TableSchema
    from relay.rows.judgement import UnfitValues
    from relay.rows.row_codec import RowCodec
    from relay.schema.types.column_type import ColumnType

    Array = pa.Array[Any]

NOT_CONVERTED = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What `convert` raises."""


class BatchOrigin(NamedTuple):
    """Where a batch came from, for errors."""

    file: str
    first_row: int  # number of the batch's first row in the file, from 1
    line_of_row: Callable[[int], int] | None = None  # where lines are not simply rows

    def place(self, at: int) -> str:
        """Return file and row of row `at` (from 0) of the batch; and the line, if not row + 1."""
        row = self.first_row + at
        line = row + 1 if self.line_of_row is None else self.line_of_row(row)
        return f"{self.file}, row {row}" + (f" (line {line})" if line != row + 1 else "")


class BadValue(ConfigError):
    """A value does not fit its column.

    Attributes:
        value: which; None where it is not known.
        type: of the column, as ClickHouse writes it.
    """

    value: object = None
    type: str = ""


def is_required(column: Column) -> bool:
    """Return whether leaving the column out would put a value there that nobody chose."""
    return not column.default_kind and not holds_null(parse_type(column.type).kind)


def check_names(
    schema: TableSchema,
    names: Collection[str],
    file: str,
    *,
    allow_missing: bool,
    ignore_unknown: bool = False,
) -> None:
    """Refuse unknown, missing and doubled columns of a file, all in one error.

    A file without any of the table's columns is refused whatever is allowed: of its rows nothing
    would be left but defaults.

    Raises:
        ConfigError: naming file, table and the columns.
    """
    columns = live_columns(schema)
    known = {column.name for column in columns}
    doubled = repeated(names)
    unknown = [name for name in names if name not in known]
    missing = [c.name for c in columns if is_required(c) and c.name not in names]
    foreign = known.isdisjoint(names)
    problems = []
    if doubled:
        problems.append(f"column {', '.join(map(repr, doubled))} occurs twice")
    if unknown and (foreign or not ignore_unknown):
        problems.append(f"{schema.table} has no column {', '.join(map(repr, unknown))}")
    if missing and (foreign or not allow_missing):
        problems.append(f"the file has no column {', '.join(map(repr, missing))}")
    if foreign and not problems:
        problems.append("the first object has no column")
    if problems:
        raise ConfigError(
            f"{file}: {'; '.join(problems)} (columns of {schema.table}: "
            f"{', '.join(c.name for c in columns)})",
            _next_of_foreign(names) if foreign else _SOME_DIFFER,
        )


_SOME_DIFFER = (
    "rename or drop the file's columns; --ignore-unknown-columns leaves out those that the table "
    "does not have, --allow-missing lets absent ones take their DEFAULT"
)


def _next_of_foreign(names: Collection[str]) -> str:
    """What to do with a file that shares no column with the table."""
    if len(names) == 1 and not {*";\t|"}.isdisjoint(*names):
        return "separate the columns by commas: other delimiters are not read"
    return (
        "check that the file is the table's; it needs a first line that names columns, as the "
        "table does (also in upper and lower case), or a first object that does; --column "
        "FILE=TABLE renames one"
    )


def repeated(names: Iterable[str]) -> list[str]:
    """Return those that stand there more than once."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def twice(fields: Iterable[pa.Field[Any]]) -> Iterator[str]:
    """Yield names that stand twice among the fields, or in a struct, with a dot."""
    listed = list(fields)
    yield from repeated(field.name for field in listed)
    for field in listed:
        inner = [field.type.field(at) for at in range(field.type.num_fields)]
        yield from (f"{field.name}.{name}" for name in twice(inner))


def row_columns(codec: RowCodec, batch: pa.RecordBatch, origin: BatchOrigin) -> pa.RecordBatch:
    """Return the batch as columns of `codec.wire_schema`, which `encode_rows` takes.

    A null, and a column the batch does not have, is a field left out: null in a Nullable
    column, the DEFAULT in any other but an EPHEMERAL one, which has to be given.

    Raises:
        BadValue: naming file, row, column, value and the type it does not fit.
        ConfigError: a column, or a field of one, occurs twice.
    """
    if doubled := sorted(twice(batch.schema)):
        raise ConfigError(
            f"{origin.file}: column {', '.join(map(repr, doubled))} occurs twice",
            "rename or drop one of them: nothing says which is meant",
        )
    arrays = []
    for name, type_ in zip(codec.column_names, codec.types, strict=True):
        if (place := batch.schema.get_field_index(name)) < 0:
            arrays.append(left_out(batch.num_rows, type_.wire))
        else:
            arrays.append(_converted(batch.column(place), name, type_, origin))
    _, misfits = narrow(arrays, codec)
    if misfits:
        raise _refused(min(misfits, key=_first), codec, batch, origin)
    return pa.RecordBatch.from_arrays(arrays, schema=codec.wire_schema)


def _converted(array: Array, name: str, type_: ColumnType, origin: BatchOrigin) -> Array:
    """One column in its wire type."""
    try:
        return convert(array, type_)
    except NOT_CONVERTED as error:
        row = _first_failing(lambda part: convert(part, type_), array)
        value = value_at(array, row) if len(array) else None
        reason = f"{type_.complaint(value)}: {_why(array, row, type_, error)}"
        raise _bad_value(row, name, origin, reason, value, type_) from error


def _first(misfit: UnfitValues) -> tuple[int, int]:
    return int(misfit.rows[0]), misfit.column


def _refused(
    misfit: UnfitValues, codec: RowCodec, batch: pa.RecordBatch, origin: BatchOrigin
) -> BadValue:
    """What the relay would refuse, with the value as it was given."""
    row, type_ = int(misfit.rows[0]), codec.types[misfit.column]
    place = batch.schema.get_field_index(misfit.field)
    value = value_at(batch.column(place), row) if place >= 0 else None
    plain = misfit.kind == DeadKind.DOES_NOT_FIT and type_.scalar is not None
    reason = type_.complaint(value) if plain else misfit.why(row)
    return _bad_value(row, misfit.field, origin, reason, value, type_)


def value_at(array: Array, row: int) -> object:
    """Return a value for an error, also one with a text that is not UTF-8."""
    one: Any = array.slice(row, 1)
    try:
        found: object = one[0].as_py()
    except UnicodeDecodeError:
        nested = one.type.num_fields or pa.types.is_dictionary(one.type)
        found = str(one) if nested else one.cast(pa.large_binary())[0].as_py()
    return found


def _why(array: Array, row: int, type_: ColumnType, error: Exception) -> str:
    """What is wrong with that value: the error of the whole column may name another one."""
    try:
        convert(array.slice(row, 1), type_)
    except NOT_CONVERTED as own:
        error = own
    return str(error).splitlines()[0]


def _bad_value(
    row: int, name: str, origin: BatchOrigin, reason: str, value: object, type_: ColumnType
) -> BadValue:
    error = BadValue(
        f"{origin.place(row)}, column {name!r}: {reason}",
        "correct the value, or change the column's type in ClickHouse",
    )
    error.value, error.type = value, type_.clickhouse
    return error


def _first_failing(attempt: Callable[[Array], object], array: Array) -> int:
    """Index of the first value that does not convert; by bisection, as only errors come here."""
    low, high = 0, len(array)  # array[:low] converts, array[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(array.slice(low, middle - low))
        except NOT_CONVERTED:
            high = middle
        else:
            low = middle
    return low


def convert(array: Array, type_: ColumnType) -> Array:
    """Return one column in its protobuf-side type; ranges narrower than that are not checked.

    Raises:
        ArrowInvalid, ArrowNotImplementedError: some value does not convert.
    """
    return to_wire(array, type_.kind, leaf)
