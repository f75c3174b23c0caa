from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import BLOCK_BYTES, RowFile
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import encoder
from tests.schema.rows import decode_rows

ENCODER = encoder(
    ColumnDef("a", "Int8"),
    ColumnDef("b", "Nullable(UInt64)"),
    ColumnDef("c", "LowCardinality(Nullable(String))"),
    ColumnDef("e", "DateTime('UTC')"),
    ColumnDef("k", "String", "DEFAULT"),
)
CSV = 'a,b,c,e\n1,,NA,1970-01-01T00:01:00Z\n2,18446744073709551615,"",1970-01-01 00:02:00\n'
JSONL = (
    '{"a": 1, "e": "1970-01-01T00:01:00Z"}\n'
    '{"a": 2, "b": 18446744073709551615, "c": "", "e": "1970-01-01 00:02:00"}\n'
)
ROWS = [
    {"a": 1, "b": None, "c": None, "e": 60, "k": None},
    {"a": 2, "b": 2**64 - 1, "c": "", "e": 120, "k": None},
]


def read(path: Path, **options: Any) -> list[dict[str, Any]]:
    pieces = list(RowFile.of(path, None, FileOptions(**options)).rows(ENCODER))
    assert [p.done for p in pieces] == sorted(p.done for p in pieces)
    assert not pieces or pieces[-1].done == path.stat().st_size
    return [row for p in pieces for row in decode_rows(ENCODER.codec, p.rows).to_pylist()]


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_csv_is_read_by_the_tables_types_not_by_guesses(tmp_path: Path) -> None:
    """Nulls are the texts named so, quoted text is text, 64 bits stay 64 bits."""
    assert read(written(tmp_path / "f.csv", CSV), nulls=("", "NA")) == ROWS


def test_compressed_files_are_seen_through(tmp_path: Path) -> None:
    """`.csv.gz` is CSV."""
    path = written(tmp_path / "f.csv.gz", gzip.compress(CSV.encode()))
    assert read(path, nulls=("", "NA")) == ROWS


def test_json_lines_with_keys_left_out(tmp_path: Path) -> None:
    """A key left out is a null; numbers beyond 2^53 stay exact."""
    assert read(written(tmp_path / "f.jsonl", JSONL)) == ROWS


def test_json_lines_with_values_of_several_kinds(tmp_path: Path) -> None:
    """Times as text and as numbers in one column, and blank lines, are read row by row."""
    text = '{"a": 1, "e": 60}\n\n{"a": 1.0, "e": "1970-01-01T00:01:00Z"}'
    assert [(row["a"], row["e"]) for row in read(written(tmp_path / "f.jsonl", text))] == [
        (1, 60),
        (1, 60),
    ]


def test_parquet(tmp_path: Path) -> None:
    """Columns keep their meaning, dictionary encoded or not."""
    table = pa.table(
        {
            "a": [1, 2],
            "b": pa.array([None, 2**64 - 1], pa.uint64()),
            "c": pa.array([None, ""]).dictionary_encode(),
            "e": pa.array([60_000, 120_000], pa.timestamp("ms", "UTC")),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "f.parquet")
    assert read(tmp_path / "f.parquet") == ROWS


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_rows_are_counted_across_blocks(tmp_path: Path, suffix: str) -> None:
    """A bad value in the second block of a large file is named with its row in the file."""
    rows = BLOCK_BYTES // 20
    lines = [f"{n % 100},{60 + n},{'x' * 20}" for n in range(rows)]
    if suffix == "jsonl":
        lines = [json.dumps({"a": n % 100, "e": 60 + n, "c": "x" * 20}) for n in range(rows)]
        lines[-2] = lines[-2].replace('"a": ', '"a": 9')
        lines[-2] = '{"a": 1000, "e": 1}'
    else:
        lines[-2] = "1000,1,x"
        lines.insert(0, "a,e,c")
    path = written(tmp_path / f"f.{suffix}", "\n".join(lines))
    with pytest.raises(BadValue) as refused:
        read(path)
    assert f"{path}, row {rows - 1}" in refused.value.message
    assert "1000" in refused.value.message
    assert "'a'" in refused.value.message


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("f.csv", "a,e,x,y\n1,1,1,1\n", "d.t has no column 'x', 'y'"),
        ("f.csv", "a,c\n1,1\n", "the file has no column 'e'"),
        ("f.csv", "a,e\n1,1\n1\n", "f.csv: line 3: Expected 2 columns, got 1"),
        ("f.csv", "\n\na,e\n1,1\n\n\n1\n", "f.csv: line 7: Expected 2 columns, got 1"),
        ("f.csv", "\na\n1\n\n\n1,1\n", "f.csv: line 6: Expected 1 columns, got 2"),
        ("f.csv", "a,e,e\n1,1,1\n", "column 'e' occurs twice"),
        ("f.csv", "", "Empty CSV file"),
        ("f.jsonl", '{"a": 1, "e": 1, "a": 2}\n', "row 1: 'a' occurs twice"),
        ("f.jsonl", '{"a": 1, "e": 1}\n{"a": 1, "e": 2, "e": 2}\n', "row 2: 'e' occurs twice"),
        ("f.jsonl", '{"e": 1}\n', "the file has no column 'a'"),
        ("f.jsonl", '{"a": 1, "e": 1}\n{"a": 1, "e": 1, "x": 1}\n', "row 2: d.t has no column 'x'"),
        ("f.jsonl", '{"a": 1, "e": 1}\n[1]\n', "row 2: not a JSON object: b'[1]'"),
        ("f.jsonl", '{"a": 1, "e": 1}\n{"a": 1', "row 2: Expecting"),
        ("f.jsonl", '{"a": 1, "e": 1}\n{"a": 1, "e": 1, "c": 5}', "row 2: d.t, column 'c': 5 does"),
        ("f.parquet", "no parquet", "f.parquet: Parquet magic bytes not found"),
        ("f.txt", "a\n", "does not say the format"),
        ("none", None, "is not a file"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    """Unknown and missing columns, damage, and formats that nobody knows."""
    if text is not None:
        written(tmp_path / name, text)
    with pytest.raises(ConfigError) as refused:
        read(tmp_path / name)
    assert refused.value.message.startswith(str(tmp_path / name))
    assert said in refused.value.message


def test_missing_columns_can_be_allowed(tmp_path: Path) -> None:
    """With allow_missing an absent column is left to its DEFAULT."""
    rows = read(written(tmp_path / "f.csv", "a\n1\n"), allow_missing=True)
    assert rows == [{"a": 1, "b": None, "c": None, "e": None, "k": None}]


def test_a_file_without_rows_gives_none(tmp_path: Path) -> None:
    """A header alone, no lines, no row groups: nothing, and no error."""
    pyarrow.parquet.write_table(
        pa.table({"a": pa.array([], pa.int8()), "e": pa.array([], pa.int64())}),
        tmp_path / "f.parquet",
    )
    assert read(tmp_path / "f.parquet") == []
    assert read(written(tmp_path / "f.jsonl", "")) == []
    assert read(written(tmp_path / "f.csv", "a,e\n")) == []


NOTES = encoder(ColumnDef("note", "Nullable(String)"))


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("note\na\n\nb\n", ["a", None, "b"]),
        ("note\r\n\r\nb\r\n\r\n", [None, "b", None]),
        ("\n\nnote\na\n\nb", ["a", None, "b"]),
        ("\ufeff\r\n\r\nnote\r\na\r\n\r\n", ["a", None]),
        ("note\n\n\n", [None, None]),
        ('note\n""\n\n"x\n\ny"\n', ["", None, "x\n\ny"]),
        ("note\n", []),
    ],
)
def test_a_blank_line_of_one_column_is_a_row(
    tmp_path: Path, text: str, notes: list[str | None]
) -> None:
    """Its only value is empty, as that of a field with nothing in it; not so before the header."""
    rows = RowFile.of(written(tmp_path / "f.csv", text)).rows(NOTES)
    found = [one for p in rows for one in decode_rows(NOTES.codec, p.rows).to_pylist()]
    assert [one["note"] for one in found] == notes


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a,e\n1,1\n\n\n\nx,1\n\n", "row 2 (line 6), column 'a'"),
        ("\n\na,e\n1,1\nx,1\n", "row 2 (line 5), column 'a'"),
        ('a,e,c\n1,1,"x\n\ny"\nx,1,z\n', "row 2 (line 5), column 'a'"),
        ("a,e\r\n1,1\r\nx,1\r\n\r\n", "row 2, column 'a'"),
        ("a,e\n1,1\n\n1,soon\n", "row 2 (line 4), column 'e'"),
    ],
)
@pytest.mark.parametrize("date_format", ["", "%Y"])
def test_blank_lines_of_several_columns_are_no_rows_but_lines(
    tmp_path: Path, text: str, place: str, date_format: str
) -> None:
    """The error says the line, where it is another one than header and rows make it."""
    if date_format:
        text = text.replace(",1", ",1970")
    path = written(tmp_path / "f.csv.gz", gzip.compress(text.encode()))
    with pytest.raises(BadValue) as refused:
        read(path, date_format=date_format)
    assert f"{path}, {place}" in refused.value.message


def test_a_damaged_row_far_into_a_file_of_one_column_is_named_by_its_line(tmp_path: Path) -> None:
    """Behind blank lines and behind the first block."""
    lines = BLOCK_BYTES // 2
    path = written(tmp_path / "f.csv", "note\n" + "1\n\n" * lines + "1,1\n")
    with pytest.raises(ConfigError, match=f"line {2 * lines + 2}: Expected 1 columns, got 2"):
        list(RowFile.of(path).rows(NOTES))


@pytest.mark.parametrize("quote", ['"', ""])
def test_a_row_of_csv_that_is_too_long_is_told_as_that(tmp_path: Path, quote: str) -> None:
    """What is valid, and a quote that is never closed, look alike."""
    text = f'c,a,e\n1,1,1\n"{"x" * 2 * BLOCK_BYTES}{quote},1,1\n'
    with pytest.raises(ConfigError, match="a row is longer than 4 MiB, or a quote is not closed"):
        read(written(tmp_path / "f.csv", text))
