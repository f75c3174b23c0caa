"""What a person says of the files of `relay produce`, and what it means for their values.

Receives batches as a reader made them, gives them with dates by the person's own format and the
table's names; and for a value that does not fit, the option that was probably missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from relay.produce.arrow_columns import BadValue, BatchOrigin, value_at
from relay.schema.types.ticks import base_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relay.rows.row_codec import RowCodec

NULL_TEXTS = frozenset({"", "na", "n/a", "nan", "null", "none", "nil", "-", "?", "\\n"})
"""What other programs write for null, in small letters."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files are read.

    Attributes:
        nulls: of a CSV file: unquoted texts that mean null.
        allow_missing: columns that are not in the file take their DEFAULT.
        ignore_unknown: columns that the table does not have are left out.
        columns: of a file by its own name, with the table's name for it.
        date_format: of text in columns of dates and times, as strptime has it; empty: ISO 8601
            and other dates that can be meant in one way only.
    """

    nulls: tuple[str, ...] = ("",)
    allow_missing: bool = False
    ignore_unknown: bool = False
    date_format: str = ""
    columns: tuple[tuple[str, str], ...] = ()

    def renamed(self, names: Iterable[str]) -> list[str]:
        """Return the table's names for these columns of a file."""
        table_names = dict(self.columns)
        return [table_names.get(name, name) for name in names]


def with_dates(
    batch: pa.RecordBatch, codec: RowCodec, options: FileOptions, origin: BatchOrigin
) -> pa.RecordBatch:
    """Return the batch with texts of date and time columns as times, by the format named.

    Raises:
        BadValue: a text is not written so.
    """
    if not options.date_format:
        return batch
    types = dict(zip(codec.column_names, codec.types, strict=True))
    for place, field in enumerate(batch.schema):
        type_ = types.get(field.name)
        if type_ is None or not base_type(type_.clickhouse).startswith("Date"):
            continue
        array = batch.column(place)
        if not pa.types.is_string(array.type):
            continue
        times = _times(array, options.date_format)
        if times.null_count > array.null_count:
            failed: Any = pc.and_(pc.is_null(times), pc.is_valid(array))
            row = pc.index(failed, value=True).as_py()
            value = value_at(array, row)
            error = BadValue(
                f"{origin.place(row)}, column {field.name!r}: "
                f"{value!r} is not written as {options.date_format!r}",
                "correct the value, or name another --date-format",
            )
            error.value = value
            raise error
        batch = batch.set_column(place, field.name, times)
    return batch


def time_of(text: str, date_format: str) -> object:
    """Return one text as a datetime; as it is, where it is not written so."""
    (found,) = _times(pa.array([text]), date_format).to_pylist()
    return text if found is None else found


def _times(texts: Any, date_format: str) -> Any:
    return pc.strptime(texts, format=date_format, unit="s", error_is_null=True)


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
    elif base_type(error.type).startswith("Date") and not options.date_format:
        error.next_step = (
            "if all are written like this, say how with --date-format, as '%d/%m/%Y' or "
            "'%m/%d/%Y %H:%M'; else correct the value"
        )
