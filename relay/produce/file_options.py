"""What a person says of the files of `relay produce`, and what it means for their values.

Receives batches as a reader made them, gives them with dates by the person's own format and the
table's names; and for a value that does not fit, the option that was probably missed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue, BatchOrigin, repeated, value_at
from relay.program.spelling import did_you_mean
from relay.schema.evolution import live_columns
from relay.schema.types.column_type import parse_type
from relay.schema.types.exact_cast import as_strings
from relay.schema.types.ticks import base_type
from relay.schema.types.variant import holds_null

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from relay.records_pb2 import Column, TableSchema
    from relay.rows.row_codec import RowCodec
    from relay.schema.types.column_type import ColumnType

NULL_TEXTS = frozenset({"", "na", "n/a", "nan", "null", "none", "nil", "-", "?", "\\n"})
"""What other programs write for null, in small letters."""

_DAY = 86_400
_OF_YEAR = re.compile(r"%[^A-Za-z%]*[EO]?[jUW]")
"""Directives that count from the beginning of a year."""
_DIRECTIVE = re.compile(r"%[^A-Za-z%]*[EO]?([A-Za-z])")
_YEAR, _DAYS = frozenset("YycxDFs"), frozenset("mbBhdejcxDFs")
_WEEK, _WEEK_READ, _WEEKDAY = frozenset("UWV"), frozenset("UW"), frozenset("aAwu")
_MONTH, _MONTH_DAY, _WHOLE = frozenset("mbBh"), frozenset("de"), frozenset("cxDFs")
_MIXED = (
    (frozenset("j"), _WEEKDAY),
    (frozenset("j"), _MONTH | _MONTH_DAY),
    (frozenset("U"), frozenset("W")),
    (_WEEK_READ, _MONTH | _MONTH_DAY),
)
"""What says a day in two ways, of which the C library makes one that neither says: of Sunday and
day 224 the first of January."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files are read.

    Attributes:
        nulls: of a CSV file: unquoted texts that mean null.
        allow_missing: columns that are not in the file take their DEFAULT.
        ignore_unknown: columns that the table does not have are left out.
        columns: of a file by its own name, with the table's name for it.
        date_format: of texts and whole numbers in columns of dates and times, as strptime has it;
            empty: ISO 8601 and other dates that can be meant in one way only, and numbers are
            those of the row message.

    Raises:
        ConfigError: the format says no year, a week without its day, a zone's name, or a day in two
            ways of which the C library makes a third one.
    """

    nulls: tuple[str, ...] = ("",)
    allow_missing: bool = False
    ignore_unknown: bool = False
    date_format: str = ""
    columns: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        says = set(_DIRECTIVE.findall(_without_percent(self.date_format)))
        problem = ""
        if self.date_format and not says & _YEAR:
            problem = "lacks a year that is read (%Y or %y)"
        elif says & _WEEK and not (says & _DAYS or (says & _WEEK_READ and says & _WEEKDAY)):
            problem = "lacks a day: of week numbers %U and %W are read, with %w, %u or %a"
        elif mixed := _mixed(says):
            problem = f"says the day in two ways: {' and '.join(f'%{letter}' for letter in mixed)}"
        if problem:
            raise ConfigError(
                f"--date-format {self.date_format!r} {problem}",
                "name year, month and day, as '%d/%m/%Y' does",
            )
        if "Z" in says:
            raise ConfigError(
                f"--date-format {self.date_format!r} has %Z, and the name of a zone is not read: "
                "times of any zone would be taken for UTC",
                "write offsets, as +0100, and name %z; where all times are UTC, name the letters: "
                "'%Y-%m-%d %H:%M UTC'",
            )

    def renamed(self, names: Iterable[str]) -> list[str]:
        """Return the table's names for these columns of a file."""
        table_names = dict(self.columns)
        return [table_names.get(name, name) for name in names]

    def check_names(self, schema: TableSchema, names: list[str], file: str) -> None:
        """Refuse unknown, missing and doubled columns of a file, all in one error.

        A file without any of the table's columns is refused whatever is allowed: of its rows
        nothing would be left but defaults.

        Raises:
            ConfigError: naming file, table and the columns.
        """
        absent = [name for name, _ in self.columns if name not in names]
        if absent:
            raise ConfigError(
                f"{file}: the file has no column {', '.join(map(repr, absent))}, which "
                f"--column renames{did_you_mean(absent[0], names)}",
                f"name columns as the file does: {', '.join(names)}",
            )
        names, columns = self.renamed(names), live_columns(schema)
        table_names = {column.name for column in columns}
        unknown = [name for name in names if name not in table_names]
        missing = [c.name for c in columns if is_required(c) and c.name not in names]
        foreign = table_names.isdisjoint(names)
        problems = []
        if doubled := repeated(names):
            problems.append(f"column {', '.join(map(repr, doubled))} occurs twice")
        if unknown and (foreign or not self.ignore_unknown):
            problems.append(f"{schema.table} has no column {', '.join(map(repr, unknown))}")
        if missing and (foreign or not self.allow_missing):
            problems.append(f"the file has no column {', '.join(map(repr, missing))}")
        if foreign and not problems:
            problems.append("the first object has no column")
        if problems:
            raise ConfigError(
                f"{file}: {'; '.join(problems)} (columns of {schema.table}: "
                f"{', '.join(c.name for c in columns)})",
                _foreign_next_step(names) if foreign else _SOME_DIFFER,
            )


def is_required(column: Column) -> bool:
    """Return whether leaving the column out would put a value there that nobody chose."""
    return not column.default_kind and not holds_null(parse_type(column.type).kind)


_SOME_DIFFER = (
    "rename or drop the file's columns; --ignore-unknown-columns leaves out those that the table "
    "does not have, --allow-missing lets absent ones take their DEFAULT"
)


def _foreign_next_step(names: Collection[str]) -> str:
    """What to do with a file that shares no column with the table."""
    if len(names) == 1 and not {*";\t|"}.isdisjoint(*names):
        return "separate the columns by commas: other delimiters are not read"
    return (
        "check that the file is the table's; it needs a first line that names columns, as the "
        "table does (also in upper and lower case), or a first object that does; --column "
        "FILE=TABLE renames one"
    )


def _without_percent(date_format: str) -> str:
    """Return the format without its escaped percent signs, whose next letter is no directive."""
    return date_format.replace("%%", "")


def _mixed(says: set[str]) -> list[str]:
    """Return two directives that do not go together; none where month and day are said anyway."""
    if says & _WHOLE or (says & _MONTH and says & _MONTH_DAY):
        return []
    for some, others in _MIXED:
        if says & some and says & others:
            return [min(says & some), min(says & others)]
    return []


def is_date(type_: ColumnType) -> bool:
    """Return whether a column's own values, not parts of them, are dates or dates with a time."""
    return type_.scalar is not None and base_type(type_.scalar.text).startswith("Date")


def with_dates(
    batch: pa.RecordBatch, codec: RowCodec, options: FileOptions, origin: BatchOrigin
) -> pa.RecordBatch:
    """Return the batch with texts and whole numbers of date and time columns as times.

    Raises:
        BadValue: one is not written by the format named, or there is no such day or second.
    """
    if not options.date_format:
        return batch
    types = dict(zip(codec.column_names, codec.types, strict=True))
    for index, field in enumerate(batch.schema):
        type_ = types.get(field.name)
        if type_ is None or not is_date(type_):
            continue
        array = as_strings(batch.column(index))
        whole = pa.types.is_integer(array.type)
        if whole:
            array = array.cast(pa.string())
        if not pa.types.is_string(array.type):
            continue
        times = _times(array, options.date_format, whole=whole)
        if times.null_count > array.null_count:
            failed: Any = pc.and_(pc.is_null(times), pc.is_valid(array))
            row = pc.index(failed, value=True).as_py()
            where = origin.column(row, field.name)
            raise _misfit(where, value_at(array, row), options.date_format)
        batch = batch.set_column(index, field.name, times)
    return batch


@lru_cache(maxsize=1024)
def time_of(text: str, date_format: str, column: str, *, whole: bool = False) -> object:
    """Return one text of a date or time column as a datetime; `whole`: a number's digits.

    Raises:
        BadValue: it is not written so, or there is no such day or second.
    """
    times: list[object] = _times(pa.array([text]), date_format, whole=whole).to_pylist()
    if times[0] is None:
        raise _misfit(f"column {column!r}", text, date_format)
    return times[0]


def _misfit(where: str, value: object, date_format: str) -> BadValue:
    reason = f"{value!r} is not written as {date_format!r}"
    if isinstance(value, str) and not _parsed(pa.array([value]), date_format).null_count:
        reason = f"{value!r}, read as {date_format!r}, is a day or second that does not exist"
        if not _times(pa.array([value]), date_format).null_count:
            reason = (
                f"{value!r} has too few digits for {date_format!r}: a number has no zeros ahead"
            )
    error = BadValue(f"{where}: {reason}", "correct the value, or name another --date-format")
    error.value = value
    return error


def _times(texts: Any, date_format: str, *, whole: bool = False) -> Any:
    """Null where a text is not written so, or says a day or second that does not exist.

    Of a whole number the format has to make the same digits again: without the zero ahead that
    numbers lose, 1022024 would be the tenth, by %d%m%Y, and not the first of February.

    The C library makes 1 May of 31 April, and takes a second 60. The same text with another day
    and second behind it, of which the last one counts, is at the beginning of the text's own
    month, whatever its zone; how much later the time itself is shows day and second as written.
    """
    times = _parsed(texts, date_format)
    counted = times.cast(pa.int64())
    month = _parsed(_joined(texts, " 1 0"), f"{date_format} %d %S").cast(pa.int64())
    since: Any = pc.subtract(counted, month)
    days: Any = pc.divide(since, _DAY)
    seconds: Any = pc.subtract(since, pc.multiply(days, _DAY))
    within = _middle(month)
    end: Any = pc.ceil_temporal(within, unit="month")
    begin: Any = pc.floor_temporal(within, unit="month")
    length: Any = pc.divide(pc.subtract(end.cast(pa.int64()), begin.cast(pa.int64())), _DAY)
    exists: Any = pc.and_(pc.less(days, length), pc.less(seconds, pa.scalar(60)))
    # Python's years, in which errors show a value, begin with 1.
    exists = pc.and_(exists, pc.greater_equal(pc.year(_naive(times)), pa.scalar(1)))
    if _OF_YEAR.search(_without_percent(date_format)):
        # Day 366 and week 53 end in another year than the text's own.
        new_year = _parsed(_joined(texts, " 1 1"), f"{date_format} %m %d")
        year: Any = pc.year(_middle(new_year.cast(pa.int64())))
        exists = pc.and_(exists, pc.equal(pc.year(within), year))
    # Arrow does not write seconds since the epoch; they have no zeros ahead.
    if whole and "s" not in _DIRECTIVE.findall(_without_percent(date_format)):
        again: Any = pc.strftime(_naive(times), format=date_format)
        exists = pc.and_(exists, pc.equal(again, texts))
    return pc.if_else(exists, times, pa.scalar(None, times.type))


def _parsed(texts: Any, date_format: str) -> Any:
    return pc.strptime(texts, format=date_format, unit="s", error_is_null=True)


def _joined(texts: Any, more: str) -> Any:
    return pc.binary_join_element_wise(texts, more, "")


def _naive(times: Any) -> Any:
    return times.cast(pa.int64()).cast(pa.timestamp("s"))


def _middle(begin_of_month: Any) -> Any:
    """A time in the same month, also where the zone has put the beginning a day aside."""
    return pc.add(begin_of_month, 15 * _DAY).cast(pa.timestamp("s"))


def advise(error: BadValue, options: FileOptions, *, csv: bool) -> None:
    """Name the option that was probably missed, as the next step of an error."""
    text = error.value
    if not isinstance(text, str):
        return
    if csv and text.lower() in NULL_TEXTS and text not in options.nulls:
        also = " --null ''" if "" in options.nulls else ""
        error.next_step = (
            f"if {text!r} means null, say so: --null '{text}'{also}; else correct the value"
        )
    elif error.type and is_date(parse_type(error.type)) and not options.date_format:
        error.next_step = (
            "if all are written like this, say how with --date-format, as '%d/%m/%Y' or "
            "'%m/%d/%Y %H:%M'; else correct the value"
        )
