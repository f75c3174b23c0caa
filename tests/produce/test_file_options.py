"""Files as other programs take them: arrays, dates of people, extra columns, standard input."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from relay.cli import cli
from relay.config.settings_file import load
from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue
from relay.produce.codecs import codec_unproposed
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import BLOCK_BYTES, RowFile
from relay.produce.send_files import looks_like, spooled
from relay.rows.codecs_of_tables import table_refused, unknown_table, unsupported
from relay.schema.dead_reason import DeadKind, DeadReason
from relay.schema.evolution import ColumnDef
from tests.config.test_load import GOOD as MINIMAL
from tests.produce.codecs import encoder
from tests.schema.rows import decode_rows

ENCODER = encoder(
    ColumnDef("a", "Int64"),
    ColumnDef("d", "Nullable(Date)"),
    ColumnDef("t", "Nullable(DateTime('UTC'))"),
)
DAY = 10_957  # 2000-01-01
SECOND = DAY * 86_400


def rows_of(source: RowFile) -> list[dict[str, Any]]:
    pieces = list(source.rows(ENCODER))
    return [row for piece in pieces for row in decode_rows(ENCODER.codec, piece.rows).to_pylist()]


def read(path: Path, text: str, **options: Any) -> list[dict[str, Any]]:
    path.write_text(text, encoding="utf-8")
    return rows_of(RowFile.of(path, None, FileOptions(**options)))


def refused(path: Path, text: str, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        read(path, text, **options)
    return error.value


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}, {"a": 2}]',
        ' [\n  {\n    "a": 1\n  },\r\n  {"a":\n2}\n]\n',
        '[{"a": 1},{"a": 2}]  \n\n',
        '{"a": 1}\n{"a": 2}\n',
    ],
)
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_an_array_is_read_as_lines_are(tmp_path: Path, text: str, suffix: str) -> None:
    assert [row["a"] for row in read(tmp_path / f"f.{suffix}", text)] == [1, 2]


def test_a_large_array_is_read_by_pieces(tmp_path: Path) -> None:
    """Elements across the pieces that are read; a bad one is named with its number."""
    rows = [{"a": number, "x": "ü" * (number % 90)} for number in range(BLOCK_BYTES // 30)]
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    assert len(text) > 2 * BLOCK_BYTES
    found = read(tmp_path / "f.json", text, ignore_unknown=True)
    assert [row["a"] for row in found] == [row["a"] for row in rows]
    rows[-2]["a"] = "no number"
    error = refused(tmp_path / "f.json", json.dumps(rows), ignore_unknown=True)
    assert f"row {len(rows) - 1}" in error.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"a": 1} {"a": 2}]', "row 1: not an array of JSON objects: expected ',' or ']'"),
        ('[{"a": 1}, 2]', "expected '{', found '2]'"),
        ('[{"a": 1}', "found the end"),
        ('[{"a": 1}, {"a": ', "row 2: not an array of JSON objects: Expecting value"),
        ('[{"a": 1}] x', "text follows the array: 'x'"),
        ("[1]", "expected '{' or ']', found '1]'"),
        ("[", "found the end"),
    ],
)
def test_what_is_no_array_of_objects_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path / "f.json", text).message


def test_an_empty_array_has_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path / "f.json", "[ ]") == []


@pytest.mark.parametrize(
    "text",
    ["2000-01-01", "2000/01/01", "2000/1/1", "Jan 1 2000", "January 1, 2000", "Jan. 1 2000",
     "1 Jan 2000", "01-JAN-2000", "10957"],
)  # fmt: skip
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_dates_that_mean_one_day_are_taken(tmp_path: Path, text: str, suffix: str) -> None:
    """Beside ISO 8601 in the same column; texts alone, and with times."""
    lines = f'a,d\n1,"{text}"\n2,2000-01-02\n'
    if suffix == "jsonl":
        lines = "".join(json.dumps({"a": 1, "d": day}) + "\n" for day in (text, "2000-01-02"))
    assert [row["d"] for row in read(tmp_path / f"f.{suffix}", lines)] == [DAY, DAY + 1]


def test_times_behind_such_dates_are_taken(tmp_path: Path) -> None:
    text = "a,t\n1,Jan 1 2000 00:00:01\n2,2000/1/1 01:00:02+01:00\n3,2000-01-01T00:00:03Z\n"
    assert [row["t"] - SECOND for row in read(tmp_path / "f.csv", text)] == [1, 2, 3]


@pytest.mark.parametrize(
    "text", ["01/02/2000", "1.2.2000", "00/1/1", "2000/13/1", "2000/1/32", "Foo 1 2000", "Jan 2000"]
)
def test_others_are_refused_and_the_option_is_named(tmp_path: Path, text: str) -> None:
    """Nothing is guessed: two days could be meant, or none."""
    error = refused(tmp_path / "f.csv", f"a,d\n1,2000-01-01\n2,{text}\n")
    assert isinstance(error, BadValue)
    assert f"row 2, column 'd': '{text}'" in error.message
    assert "--date-format" in error.next_step
    lines = json.dumps({"a": 1, "d": text})
    assert "--date-format" in refused(tmp_path / "f.jsonl", lines).next_step


@pytest.mark.parametrize(
    ("date_format", "text"), [("%d/%m/%Y", "02/01/2000"), ("%m.%d.%Y", "1.2.2000")]
)
def test_a_format_says_what_is_meant(tmp_path: Path, date_format: str, text: str) -> None:
    """In CSV and JSON, read as columns and row by row; what is not written so is refused."""
    options = {"date_format": date_format}
    csv = read(tmp_path / "f.csv", f"a,d\n1,{text}\n2,\n", **options)
    assert [row["d"] for row in csv] == [DAY + 1, None]
    for blank in ("", "\n"):  # a blank line, and Arrow's reader does not read the block
        lines = f'{{"a": 1, "d": "{text}"}}\n{blank}{{"a": 2, "d": null}}\n'
        json_ = read(tmp_path / "f.jsonl", lines, **options)
        assert [row["d"] for row in json_] == [DAY + 1, None]
    error = refused(tmp_path / "f.csv", f"a,d\n1,{text}\n2,2000-01-01\n", **options)
    assert f"row 2, column 'd': '2000-01-01' is not written as {date_format!r}" in error.message


def test_a_format_of_times_may_have_a_zone(tmp_path: Path) -> None:
    options = {"date_format": "%d.%m.%Y %H:%M %z"}
    rows = read(tmp_path / "f.csv", "a,t\n1,01.01.2000 01:00 +0100\n", **options)
    assert [row["t"] for row in rows] == [SECOND]


def test_standard_input_that_has_no_room_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system says it only when the file is flushed; an OSError names no file."""
    full = Path("/dev/full").open("w+b")  # noqa: SIM115 - closed by what is tested
    monkeypatch.setattr("tempfile.NamedTemporaryFile", lambda **_: full)
    with pytest.raises(ConfigError) as error:
        spooled(io.BytesIO(b"a\n1\n"), None, FileOptions()).__enter__()
    assert f"cannot keep standard input in {tempfile.gettempdir()}: No space" in error.value.message
    assert "TMPDIR" in error.value.next_step


def test_standard_input_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as unreadable, pytest.raises(ConfigError) as error:
        spooled(unreadable, None, FileOptions()).__enter__()
    assert "cannot read standard input" in error.value.message


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet"])
def test_extra_columns_are_left_out_by_choice(tmp_path: Path, suffix: str) -> None:
    """Also those that only a later line has; without the option they are refused."""
    file = tmp_path / f"f.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(pa.table({"a": [1, 2], "x": [1, 2], "y": [[1], []]}), file)
    else:
        lines = ['{"a": 1, "x": 1}', '{"a": 2, "y": [1]}']
        texts = {
            "csv": "a,x,y\n1,1,1\n2,2,2\n",
            "jsonl": "\n\n".join(lines),
            "json": f"[{','.join(lines)}]",
        }
        file.write_text(texts[suffix], encoding="utf-8")
    rows = rows_of(RowFile.of(file, None, FileOptions(ignore_unknown=True)))
    assert [row["a"] for row in rows] == [1, 2]
    with pytest.raises(ConfigError, match="has no column 'x'") as error:
        rows_of(RowFile.of(file))
    assert suffix == "jsonl" or "--ignore-unknown-columns" in error.value.next_step


NO_SHARED = "a first line that names columns, as the table does"
COMMAS = "separate the columns by commas"


@pytest.mark.parametrize(
    ("name", "text", "step"),
    [
        ("f.csv", "a;d;t\n1;2000-01-01;\n", COMMAS),
        ("f.csv", "a\td\n1\t2000-01-01\n", COMMAS),
        ("f.csv", "a|d\n1|2000-01-01\n", COMMAS),
        ("f.csv", "1,2000-01-01\n2,2000-01-02\n", NO_SHARED),
        ("f.jsonl", '{"A": 1}\n{"a": 1}\n', NO_SHARED),
        ("f.json", '[{"A": 1}]', NO_SHARED),
        ("f.jsonl", "{}\n{}\n", NO_SHARED),
    ],
)
@pytest.mark.parametrize("chosen", [False, True])
def test_a_file_that_shares_no_column_with_the_table_is_no_file_of_its(
    tmp_path: Path, name: str, text: str, step: str, *, chosen: bool
) -> None:
    """Whatever may be left out: else each row would be nothing but defaults."""
    error = refused(tmp_path / name, text, ignore_unknown=chosen, allow_missing=chosen)
    assert "the file has no column 'a'" in error.message
    assert step in error.next_step
    assert "--allow-missing" not in error.next_step


@pytest.mark.parametrize("blank", ["", "\n"])
def test_a_later_object_that_shares_no_column_is_refused(tmp_path: Path, blank: str) -> None:
    """By columns and row by row; one with a null, or with nothing in it, has no wrong name."""
    text = '{"a": 1, "x": 2}\n' + blank
    error = refused(tmp_path / "f.jsonl", text + '{"A": 2}\n', ignore_unknown=True)
    assert f"row {2 + len(blank)}: d.t has no column 'A'" in error.message
    rows = read(tmp_path / "f.jsonl", text + '{"a": null, "x": 1}\n{}\n', ignore_unknown=True)
    assert [row["a"] for row in rows] == [1, None, None]


def written(file: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows in the format of the file's suffix; all columns are those of the first."""
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), file)
    elif file.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


FORMATS = ("csv", "jsonl", "parquet")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("ignore", [False, True])
def test_columns_are_renamed(tmp_path: Path, suffix: str, *, ignore: bool) -> None:
    """Also a date, which JSON's reader must not guess, and two that change places."""
    rows = [{"Order ID": at, "day": f"2000-01-0{at}"} for at in (1, 2)]
    options = FileOptions(columns=(("Order ID", "a"), ("day", "d")), ignore_unknown=ignore)
    found = rows_of(RowFile.of(written(tmp_path / f"f.{suffix}", rows), None, options))
    assert [(row["a"], row["d"]) for row in found] == [(1, DAY), (2, DAY + 1)]

    swapped = written(tmp_path / f"g.{suffix}", [{"d": 5, "a": "2000-01-01"}])
    options = FileOptions(columns=(("a", "d"), ("d", "a")), ignore_unknown=ignore)
    (row,) = rows_of(RowFile.of(swapped, None, options))
    assert (row["a"], row["d"]) == (5, DAY)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_format_of_dates_goes_by_the_tables_name(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path / f"f.{suffix}", [{"a": 1, "day": "02.01.2000"}])
    options = FileOptions(date_format="%d.%m.%Y", columns=(("day", "d"),))
    assert [row["d"] for row in rows_of(RowFile.of(file, None, options))] == [DAY + 1]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((("idd", "a"),), "the file has no column 'idd', which --column renames; did you mean id?"),
        ((("id", "z"),), "d.t has no column 'z'"),
        ((("id", "a"), ("x", "a")), "column 'a' occurs twice"),
        ((("x", "id"),), "column 'id' occurs twice"),
    ],
)
def test_a_renaming_that_cannot_be_is_refused(
    tmp_path: Path, suffix: str, columns: tuple[tuple[str, str], ...], said: str
) -> None:
    file = written(tmp_path / f"f.{suffix}", [{"id": 1, "x": 2}])
    for ignore in (False, True):
        if ignore and "has no column 'z'" in said:
            continue  # it is left out as any other column that the table does not have
        options = FileOptions(columns=columns, ignore_unknown=ignore, allow_missing=True)
        with pytest.raises(ConfigError) as error:
            rows_of(RowFile.of(file, None, options))
        assert said in error.value.message


def test_a_later_object_with_both_names_is_refused(tmp_path: Path) -> None:
    """Nothing says which of two values is meant."""
    text = '{"id": 1}\n{"id": 2, "a": 3}\n'
    for ignore in (False, True):
        error = refused(tmp_path / "f.jsonl", text, columns=(("id", "a"),), ignore_unknown=ignore)
        assert "row 2" in error.message
        assert "'a' occurs twice" in error.message


def test_a_later_object_without_the_column_has_a_null(tmp_path: Path) -> None:
    text = '{"a": 1, "day": "2000-01-01"}\n{"a": 2}\n'
    rows = read(tmp_path / "f.jsonl", text, columns=(("day", "d"),))
    assert [row["d"] for row in rows] == [DAY, None]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--column", "a"), "write FILE=TABLE"),
        (("--column", "=a"), "write FILE=TABLE"),
        (("--column", "a="), "write FILE=TABLE"),
        (("--column", "a=b", "--column", "a=c"), "--column renames 'a' twice"),
    ],
)
def test_the_option_says_what_is_wrong_with_it(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    config = tmp_path / "relay.toml"
    config.write_text(MINIMAL, encoding="utf-8")
    rows = tmp_path / "f.csv"
    rows.write_text("a\n1\n", encoding="utf-8")
    done = CliRunner().invoke(cli, ["produce", str(config), str(rows), "--table", "d.t", *words])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (unknown_table("d.t"), "create the table in ClickHouse (http://localhost:8123)"),
        (table_refused("d.t is not among source.tables"), "widen `source.tables`, or name another"),
        (unsupported(["d.t: AggregateFunction"]), "change the column's type, or name another"),
        (DeadReason(DeadKind.NO_BLOCK_TOPIC, "no right"), "correct what the reason names, or name"),
    ],
)
def test_a_table_without_a_codec_is_created_only_where_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: DeadReason, step: str
) -> None:
    monkeypatch.setattr("relay.produce.codecs.codecs_unproposed", lambda *_: {"d.t": found})
    path = tmp_path / "relay.toml"
    path.write_text(MINIMAL, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        codec_unproposed(load(path), "d.t")
    assert error.value.message == found.text
    assert error.value.next_step.startswith(step)


@pytest.mark.parametrize("text", ["NA", "null", "-", "N/A"])
def test_a_text_that_often_means_null_names_the_option(tmp_path: Path, text: str) -> None:
    """For CSV alone, and not where the option has been given."""
    error = refused(tmp_path / "f.csv", f"a,d\n{text},\n")
    assert f"--null '{text}' --null ''" in error.next_step
    rows = read(tmp_path / "f.csv", f"a,d\n1,{text}\n", nulls=(text,))
    assert [row["d"] for row in rows] == [None]
    assert "--null" not in refused(tmp_path / "f.csv", "a,d\nnothing,\n").next_step
    assert "--null" not in refused(tmp_path / "f.jsonl", f'{{"a": "{text}"}}').next_step


@pytest.mark.parametrize(("format_", "text"), [("csv", "a\n1\n"), ("jsonl", ' [{"a": 1}]')])
def test_standard_input_is_a_file(format_: str, text: str) -> None:
    """It says itself what it is, errors call it by its name, and nothing stays."""
    for named in (None, format_):
        with spooled(io.BytesIO(text.encode()), named, FileOptions()) as source:
            assert source.format == format_
            assert [row["a"] for row in rows_of(source)] == [1]
        assert not source.path.exists()
    bad = text.replace("1", '"x"')
    with (
        spooled(io.BytesIO(bad.encode()), None, FileOptions()) as source,
        pytest.raises(ConfigError, match=r"^standard input, row 1"),
    ):
        rows_of(source)


def test_parquet_says_what_it_is() -> None:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"a": [1]}), buffer)
    assert looks_like(buffer.getvalue()) == "parquet"
    assert looks_like(b"") == "csv"
