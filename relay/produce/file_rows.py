"""Reads rows of one table from a Parquet, CSV or JSON file.

Receives a path and the table's encoder, gives the rows serialized, some ten thousand at a
time, with how far into the file they reach. Columns go through as columns; only a JSON block
that Arrow's reader refuses, or finds an infinity in, is read row by row. Never skips a row: what
does not fit is an error that names file, row, column and value.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from relay.errors import ConfigError
from relay.produce import parquet_times
from relay.produce.arrow_columns import BadValue, BatchOrigin, repeated, row_columns
from relay.produce.csv_lines import blank_lines_ahead, line_of
from relay.produce.file_options import FileOptions, advise, is_date, time_of, with_dates
from relay.produce.json_lines import TOO_DEEP, ArrayLines, are_objects, is_array, parse_object
from relay.produce.nested_conversion import holds_infinity
from relay.produce.row_encoder import unknown_columns

if TYPE_CHECKING:
    from relay.produce.row_encoder import RowEncoder

BLOCK_BYTES = 4 << 20  # of text read at a time
PARQUET_ROWS = 65_536

_CSV_LONG = "straddling object"
"""Arrow's word for a row that does not end in the block behind the one where it begins."""
_CSV_ERROR = re.compile(r"CSV parse error: Row #(\d+): (.*)")

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
"""Formats by suffix; jsonl is JSON Lines or an array of objects, whichever the file begins with."""
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class Piece(NamedTuple):
    """Some consecutive rows of a file."""

    rows: pa.BinaryArray
    done: int
    """Bytes of the file read so far."""


@dataclass(frozen=True)
class RowFile:
    """A file with rows of one table."""

    path: Path
    format: str
    """parquet, csv or jsonl"""
    options: FileOptions = field(default_factory=FileOptions)
    name: str = ""
    """For errors; empty: the path."""

    @classmethod
    def of(
        cls, path: Path, format_: str | None = None, options: FileOptions | None = None
    ) -> RowFile:
        """Make one from a path; the format is that of the suffix (before `.gz`), if not given.

        Raises:
            ConfigError: there is no such file, or its suffix is unknown.
        """
        if not path.is_file():
            raise ConfigError(f"{path} is not a file", "name a Parquet, CSV or JSON file")
        suffixes = [suffix for suffix in path.suffixes if suffix not in _PACKED]
        format_ = format_ or SUFFIXES.get(suffixes[-1].lower() if suffixes else "")
        if format_ is None:
            raise ConfigError(
                f"{path}: the suffix does not say the format (known: {', '.join(SUFFIXES)})",
                "name the format with --format",
            )
        return cls(path, format_, options or FileOptions())

    @property
    def label(self) -> str:
        """Return what errors call it."""
        return self.name or str(self.path)

    def rows(self, encoder: RowEncoder) -> Iterator[Piece]:
        """Yield all rows, in order.

        Raises:
            ConfigError: the file is damaged, has a column the table has not, or lacks one.
            BadValue: a value does not fit its column.
        """
        try:
            yield from _READERS[self.format](self, encoder)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0]
            next_step = f"check that the file is {self.format}, and correct it"
            if _CSV_LONG in reason:
                reason = f"a row is longer than {BLOCK_BYTES >> 20} MiB, or a quote is not closed"
                next_step = "close the quote, or write such rows as JSON lines or Parquet"
            raise ConfigError(f"{self.label}: {reason}", next_step) from error
        except BadValue as error:
            advise(error, self.options, csv=self.format == "csv")
            raise


def _parquet(source: RowFile, encoder: RowEncoder) -> Iterator[Piece]:
    size = source.path.stat().st_size
    with pyarrow.parquet.ParquetFile(source.path) as file:
        source.options.check_names(encoder.codec.schema, file.schema_arrow.names, source.label)
        row, total = 0, max(file.metadata.num_rows, 1)
        for batch in parquet_times.batches(source.path, file, PARQUET_ROWS, source.label):
            rows = _encode(source, encoder, batch, row)
            row += batch.num_rows
            yield Piece(rows, size * row // total)


def _csv(source: RowFile, encoder: RowEncoder) -> Iterator[Piece]:
    """Every column as text: what it means is for the table's types to say, not for a guess."""
    with (
        _lines_in_errors(source.path, columns=0),
        _stream(source.path) as (_, text),
        _open_csv(source, text, [], 0) as reader,
    ):
        names = reader.schema.names
    source.options.check_names(encoder.codec.schema, names, source.label)
    with _stream(source.path) as (_, text):
        blank = blank_lines_ahead(text)
    with (
        _lines_in_errors(source.path, len(names)),
        _stream(source.path) as (raw, text),
        _open_csv(source, text, names, blank) as reader,
    ):
        row = 0
        for batch in reader:
            rows = _encode(source, encoder, batch, row, _csv_line(source.path, len(names)))
            row += batch.num_rows
            yield Piece(rows, raw.tell())


@contextlib.contextmanager
def _lines_in_errors(path: Path, columns: int) -> Iterator[None]:
    """Arrow's errors of a row count the header and no blank lines; people look for a line."""
    try:
        yield
    except pa.ArrowInvalid as error:
        match = _CSV_ERROR.match(str(error))
        if match is None:
            raise
        line = _csv_line(path, columns)(int(match[1]) - 1)
        raise pa.ArrowInvalid(f"line {line}: {match[2]}") from error


def _csv_line(path: Path, columns: int) -> Callable[[int], int]:
    def line(row: int) -> int:
        with _stream(path) as (_, text):
            return line_of(text, row, blank_is_row=columns == 1)

    return line


def _open_csv(source: RowFile, stream: Any, names: list[str], blank_ahead: int) -> Any:
    """With one column, a blank line is a row with an empty value; with several it is none."""
    return pyarrow.csv.open_csv(
        stream,
        read_options=pyarrow.csv.ReadOptions(
            block_size=BLOCK_BYTES, use_threads=False, skip_rows=blank_ahead
        ),
        parse_options=pyarrow.csv.ParseOptions(
            newlines_in_values=True, ignore_empty_lines=len(names) != 1
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            check_utf8=False,  # done where row and column are known
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list(source.options.nulls),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _jsonl(source: RowFile, encoder: RowEncoder) -> Iterator[Piece]:
    pinned = _json_schema(source, encoder)
    row = 0
    with _stream(source.path) as (_, ahead):
        array = is_array(ahead.read(BLOCK_BYTES))
    with _stream(source.path) as (raw, plain):
        text = ArrayLines(plain, source.label) if array else plain
        rest = b""
        while True:
            data = text.read(BLOCK_BYTES)
            # A block ends behind a line; the last one may lack its newline.
            block, newline, rest = (rest + data).rpartition(b"\n") if data else (rest, b"", b"")
            if block.strip():
                if row == 0:
                    _check_first_line(source, encoder, block)
                rows, lines = _json_block(source, encoder, block + newline, pinned, row)
                row += lines
                yield Piece(rows, raw.tell())
            if not data:
                return


def _json_block(
    source: RowFile, encoder: RowEncoder, block: bytes, pinned: list[Any], first: int
) -> tuple[pa.BinaryArray, int]:
    """The block's rows, and how many lines it has."""
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if are_objects(block, lines):
        # A value that does not fit is found again below, with what the line holds.
        with contextlib.suppress(pa.ArrowInvalid, ConfigError, RecursionError):
            batch = _json_columns(block, pinned)
            if batch.num_rows == lines:
                ignore = source.options.ignore_unknown
                if not ignore:
                    encoder.check_names(source.options.renamed(batch.schema.names))
                if not ignore or _each_has_a_value(source, encoder, batch):
                    return _encode(source, encoder, batch, first), lines
    # Blank lines, values of several kinds in a column, an error, or an object that may have no
    # column of the table: row by row finds out which.
    return _json_rows(source, encoder, block, first), lines


def _each_has_a_value(source: RowFile, encoder: RowEncoder, batch: pa.RecordBatch) -> bool:
    """Whether each row has a value in a column of the table; one that has may have a null there."""
    table_columns = {*encoder.codec.column_names}
    columns = zip(source.options.renamed(batch.schema.names), batch.columns, strict=True)
    valid = [pc.is_valid(column) for name, column in columns if name in table_columns]
    return bool(valid) and bool(pc.all(reduce(pc.or_, valid)).as_py())


def _json_columns(block: bytes, pinned: list[Any]) -> pa.RecordBatch:
    """The block as columns; Arrow's guess at texts that look like times is not taken.

    Elsewhere such texts mean something else: Arrow knows no --date-format. From then on `pinned`
    says that these columns are text.
    """
    batch = _read_json(block, pinned)
    guessed = [field.name for field in batch.schema if pa.types.is_temporal(field.type)]
    if not guessed:
        return batch
    pinned.extend(pa.field(name, pa.string()) for name in guessed)
    return _read_json(block, pinned)


def _read_json(block: bytes, pinned: list[Any]) -> pa.RecordBatch:
    text: Any = pa.BufferReader(block)
    table = pyarrow.json.read_json(
        text,
        read_options=pyarrow.json.ReadOptions(block_size=len(block) + 1, use_threads=False),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=pa.schema(pinned)),
    )
    batch: pa.RecordBatch = table.combine_chunks().to_batches()[0]
    if any(map(holds_infinity, batch.columns)):
        raise pa.ArrowInvalid("Infinity, or a number that is too large: the text says which")
    return batch


def _json_rows(source: RowFile, encoder: RowEncoder, block: bytes, first: int) -> pa.BinaryArray:
    """Row by row; slower, and errors are exact."""
    rows = []
    for number, line in enumerate(block.rstrip(b"\n").split(b"\n"), first + 1):
        if not line.strip():
            continue
        try:
            rows.append(encoder.encode(_table_row(source, encoder, parse_object(line))))
        except (ValueError, RecursionError) as error:
            reason = TOO_DEEP if isinstance(error, RecursionError) else error
            raise ConfigError(
                f"{source.label}, row {number}: {reason}", "correct the line"
            ) from error
        except ConfigError as error:
            error.message = f"{source.label}, row {number}: {error.message}"
            raise
    return pa.array(rows, pa.binary())


def _table_row(source: RowFile, encoder: RowEncoder, row: dict[str, object]) -> dict[str, object]:
    """The row by the table's names, as the person wants it: columns left out, texts as times."""
    options = source.options
    names = options.renamed(row)
    if doubled := repeated(names):
        raise ConfigError(
            f"column {', '.join(map(repr, doubled))} occurs twice, once by --column",
            "rename or drop one of them",
        )
    row = dict(zip(names, row.values(), strict=True))
    if not (options.ignore_unknown or options.date_format):
        return row
    types = dict(zip(encoder.codec.column_names, encoder.codec.types, strict=True))
    if row and types.keys().isdisjoint(row):
        raise unknown_columns(encoder.codec, list(row))
    chosen: dict[str, object] = {}
    for name, value in row.items():
        type_ = types.get(name)
        if type_ is None and options.ignore_unknown:
            continue
        whole = type(value) is int
        dated = options.date_format and type_ and is_date(type_)
        if dated and (whole or isinstance(value, str)):
            chosen[name] = time_of(str(value), options.date_format, name, whole=whole)
        else:
            chosen[name] = value
    return chosen


@contextlib.contextmanager
def _stream(path: Path) -> Iterator[tuple[Any, Any]]:
    """The file as it lies there, whose position shows progress, and its text, unpacked."""
    with pa.OSFile(str(path), "rb") as raw:
        packed: Any = _PACKED.get(path.suffix)
        yield raw, pa.CompressedInputStream(raw, packed) if packed else raw


def _check_first_line(source: RowFile, encoder: RowEncoder, block: bytes) -> None:
    """A file's first object shows its columns; in later ones a key left out is a null."""
    try:
        row = json.loads(block.lstrip().partition(b"\n")[0])
    except (ValueError, RecursionError):
        return  # said with its row number when the block is read
    if isinstance(row, dict):
        source.options.check_names(encoder.codec.schema, list(row), source.label)


def _json_schema(source: RowFile, encoder: RowEncoder) -> list[Any]:
    """Types that Arrow's reader must not guess; dates and times may be text or numbers."""
    codec = encoder.codec
    file_names = {of_table: of_file for of_file, of_table in source.options.columns}
    # The file's column of such a name is another one of the table.
    elsewhere = file_names.values() - file_names.keys()
    return [
        pa.field(
            file_names.get(name, name), pa.string() if type_.wire == pa.binary() else type_.wire
        )
        for name, type_ in zip(codec.column_names, codec.types, strict=True)
        if name not in elsewhere and not is_date(type_)
    ]


def _encode(
    source: RowFile,
    encoder: RowEncoder,
    batch: pa.RecordBatch,
    rows_before: int,
    line_of_row: Callable[[int], int] | None = None,
) -> pa.BinaryArray:
    batch = batch.rename_columns(source.options.renamed(batch.schema.names))
    origin = BatchOrigin(source.label, rows_before + 1, line_of_row)
    wire = row_columns(
        encoder.codec, with_dates(batch, encoder.codec, source.options, origin), origin
    )
    return encoder.codec.encode_rows(wire)


_READERS: dict[str, Callable[[RowFile, RowEncoder], Iterator[Piece]]] = {
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
}
