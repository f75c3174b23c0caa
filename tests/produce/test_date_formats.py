"""Dates of files: none that does not exist is sent as another, and every way of reading agrees."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue
from relay.produce.file_options import FileOptions, time_of
from relay.produce.file_rows import RowFile
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import encoder
from tests.schema.rows import decode_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TYPES = ("Date", "Date32", "DateTime", "DateTime('Asia/Tokyo')", "DateTime64(3)", "DateTime64(9)")
WAYS = ("csv", "parquet", "columns.jsonl", "rows.jsonl")


def read(
    folder: Path,
    way: str,
    texts: Sequence[str | int],
    date_format: str,
    type_: str = "DateTime64(0)",
) -> list[int]:
    """What is sent for texts or whole numbers; a blank line makes JSON be read row by row."""
    path = folder / f"f.{way}"
    if way == "csv":
        path.write_text("\n".join(["d,a", *(f'"{text}",1' for text in texts)]), encoding="utf-8")
    elif way == "parquet":
        pyarrow.parquet.write_table(pa.table({"d": texts, "a": [1] * len(texts)}), path)
    else:
        lines = "".join(json.dumps({"d": text, "a": 1}) + "\n" for text in texts)
        path.write_text(lines + "\n" * way.startswith("rows"), encoding="utf-8")
    table = encoder(ColumnDef("d", type_), ColumnDef("a", "Int8"))
    pieces = RowFile.of(path, None, FileOptions(date_format=date_format)).rows(table)
    return [
        row["d"] for piece in pieces for row in decode_rows(table.codec, piece.rows).to_pylist()
    ]


def second(*time: int) -> int:
    return int(dt.datetime(*time, tzinfo=dt.UTC).timestamp())  # type: ignore[misc,arg-type]


IMPOSSIBLE = [
    *((f"{day}/2024", "%d/%m/%Y") for day in ("31/04", "31/06", "31/09", "31/11", "30/02", "31/2")),
    ("29/02/2023", "%d/%m/%Y"),
    ("29/02/1900", "%e/%m/%Y"),
    ("02/30/24", "%D"),
    ("2024-02-30", "%F"),
    ("20230229", "%Y%m%d"),
    ("Feb 31 2024", "%b %d %Y"),
    ("2024-04-31 23:59 +0200", "%Y-%m-%d %H:%M %z"),
    ("2024-04-31 00:00 -0900", "%Y-%m-%d %H:%M %z"),
    ("2024-01-01 23:59:60", "%Y-%m-%d %H:%M:%S"),
    ("2024-01-01 23:59:61", "%F %T"),
    ("2024-01-01 11:59:60 PM", "%Y-%m-%d %r"),
    ("2023-366", "%Y-%j"),
    ("2023-53-6", "%Y-%U-%w"),
    ("0000-01-01", "%Y-%m-%d"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("text", "date_format"), IMPOSSIBLE)
def test_what_does_not_exist_is_refused(
    tmp_path: Path, way: str, text: str, date_format: str
) -> None:
    with pytest.raises(BadValue) as error:
        read(tmp_path, way, [text], date_format)
    assert "row 1" in error.value.message
    assert f"column 'd': {text!r}, read as {date_format!r}, is a day" in error.value.message


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("text", "date_format", "time"),
    [
        ("1/2/2024", "%d/%m/%Y", (2024, 2, 1)),
        (" 1/ 2/2024", "%e/%m/%Y", (2024, 2, 1)),
        ("1/2/2024", "%-d/%-m/%Y", (2024, 2, 1)),
        ("29/02/2024", "%d/%m/%Y", (2024, 2, 29)),
        ("31.12.99", "%d.%m.%y", (1999, 12, 31)),
        ("20240229", "%Y%m%d", (2024, 2, 29)),
        ("202402290102", "%Y%m%d%H%M", (2024, 2, 29, 1, 2)),
        ("2024366", "%Y%j", (2024, 12, 31)),
        ("2023-365", "%Y-%j", (2023, 12, 31)),
        ("2024-10-1", "%Y-%U-%w", (2024, 3, 11)),
        ("Mon 2024-W10", "%a %Y-W%W", (2024, 3, 4)),
        ("february 29 2024", "%b %d %Y", (2024, 2, 29)),
        ("Thu Feb 29 01:02:03 2024", "%c", (2024, 2, 29, 1, 2, 3)),
        ("2024", "%Y", (2024, 1, 1)),
        ("2024-02", "%Y-%m", (2024, 2, 1)),
        ("2024-01-31   5", "%Y-%m-%d %H", (2024, 1, 31, 5)),
        ("2024-01-31 5", "%Y-%m-%d %k", (2024, 1, 31, 5)),
        ("2024-01-31 12:30 am", "%Y-%m-%d %I:%M %p", (2024, 1, 31, 0, 30)),
        ("11:59:59 PM 31.1.2024", "%r %d.%m.%Y", (2024, 1, 31, 23, 59, 59)),
        ("2024-12-31 23:00 -0230", "%Y-%m-%d %H:%M %z", (2025, 1, 1, 1, 30)),
        ("2024-03-01 00:00 +14:00", "%Y-%m-%d %H:%M %z", (2024, 2, 29, 10)),
        ("2024-02-29T23:59:59Z", "%Y-%m-%dT%H:%M:%S%z", (2024, 2, 29, 23, 59, 59)),
        ("2024-01-31 00:00 UTC", "%Y-%m-%d %H:%M UTC", (2024, 1, 31)),
        ("Wed 2024-01-31 031 W05 04", "%a %Y-%m-%d %j W%W %U", (2024, 1, 31)),
        ("2024-366%j", "%Y-%j%%j", (2024, 12, 31)),
        ("100% 31.1.2024", "100%% %d.%m.%Y", (2024, 1, 31)),
        ("2024-02-01", "%Y-%d-%m", (2024, 1, 2)),
        ("2024-02-01 03:04:05", "%Y-%d-%m %S:%M:%H", (2024, 1, 2, 5, 4, 3)),
    ],
)
def test_every_directive_is_read(
    tmp_path: Path, way: str, text: str, date_format: str, time: tuple[int, ...]
) -> None:
    """Also the last two, which Arrow's reader of JSON takes for ISO 8601."""
    assert read(tmp_path, way, [text] * 2, date_format) == [second(*time)] * 2


@pytest.mark.parametrize("way", WAYS)
def test_iso_is_no_way_out_where_a_format_is_named(tmp_path: Path, way: str) -> None:
    """2024-05-31 has no month 31; that it is ISO 8601, too, does not count."""
    with pytest.raises(BadValue, match=r"row 2.*'2024-05-31' is not written as"):
        read(tmp_path, way, ["2024-02-01", "2024-05-31"], "%Y-%d-%m")


@pytest.mark.parametrize("way", ["parquet", "columns.jsonl", "rows.jsonl"])
@pytest.mark.parametrize(
    ("number", "date_format", "time"),
    [
        (20240131, "%Y%m%d", (2024, 1, 31)),
        (20240131010203, "%Y%m%d%H%M%S", (2024, 1, 31, 1, 2, 3)),
        (2024366, "%Y%j", (2024, 12, 31)),
        (10022024, "%d%m%Y", (2024, 2, 10)),
        (2024, "%Y", (2024, 1, 1)),
        (1706659323, "%s", (2024, 1, 31, 0, 2, 3)),
    ],
)
@pytest.mark.parametrize("type_", ["DateTime", "DateTime64(0)", "Nullable(DateTime)"])
def test_a_format_is_for_whole_numbers_too(
    tmp_path: Path, way: str, number: int, date_format: str, time: tuple[int, ...], type_: str
) -> None:
    """Red before: 20240131 was so many seconds, a day of August 1970."""
    assert read(tmp_path, way, [number] * 2, date_format, type_) == [second(*time)] * 2


@pytest.mark.parametrize("way", ["parquet", "columns.jsonl", "rows.jsonl"])
@pytest.mark.parametrize(
    ("number", "date_format", "reason"),
    [
        (20240230, "%Y%m%d", "is a day or second that does not exist"),
        (1706659323, "%Y-%m-%d", "is not written as"),
        (-20240131, "%Y%m%d", "is not written as"),
        (1022024, "%d%m%Y", "has too few digits"),
        (2024210, "%Y%m%d", "has too few digits"),
        (40131, "%y%m%d", "is not written as"),
    ],
)
def test_a_whole_number_that_the_format_does_not_say_is_refused(
    tmp_path: Path, way: str, number: int, date_format: str, reason: str
) -> None:
    """As a text; a number has lost its zeros, without which the first of February is the 10th."""
    with pytest.raises(BadValue) as error:
        read(tmp_path, way, [number], date_format)
    assert "row 1" in error.value.message
    assert f"column 'd': '{number}'" in error.value.message
    assert reason in error.value.message


def test_a_format_is_for_whole_numbers_beside_texts(tmp_path: Path) -> None:
    """Which JSON alone can have in one column, and are read row by row."""
    assert read(tmp_path, "columns.jsonl", [20240131, "20240201"], "%Y%m%d") == [
        second(2024, 1, 31),
        second(2024, 2, 1),
    ]


@pytest.mark.parametrize(
    "column", [pa.array(["20240201"], kind) for kind in (pa.large_string(), pa.binary())]
    + [pa.array(["20240201"]).dictionary_encode()]
    + [pa.array([20240201]).dictionary_encode()]
    + [pa.array([20240201], kind) for kind in (pa.int32(), pa.uint64())]
)  # fmt: skip
def test_a_format_is_for_every_type_of_parquet(tmp_path: Path, column: Any) -> None:
    pyarrow.parquet.write_table(pa.table({"d": column}), tmp_path / "f.parquet")
    table = encoder(ColumnDef("d", "Date"))
    source = RowFile.of(tmp_path / "f.parquet", None, FileOptions(date_format="%Y%d%m"))
    (piece,) = source.rows(table)
    assert decode_rows(table.codec, piece.rows).to_pylist() == [{"d": second(2024, 1, 2) // 86_400}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "type_",
    [
        "SimpleAggregateFunction(max, DateTime)",
        "SimpleAggregateFunction(anyLast, Nullable(DateTime))",
    ],
)
def test_an_aggregate_of_times_is_a_column_of_times(tmp_path: Path, way: str, type_: str) -> None:
    assert read(tmp_path, way, ["01/02/2024"], "%d/%m/%Y", type_) == [second(2024, 2, 1)]
    with pytest.raises(BadValue) as error:
        read(tmp_path, way, ["01/02/2024"], "", type_)
    assert "--date-format" in error.value.next_step


@pytest.mark.parametrize(
    "date_format", ["%d/%m", "%H:%M", "%G-W%V-%u", "%Y-W%V-%u", "%Y-W%W", "%%Y %m", "%C-%m-%d"]
)
def test_a_format_that_says_no_day_of_a_year_is_refused(date_format: str) -> None:
    """What is not said, or not read, would be 1900 or the first of January."""
    with pytest.raises(ConfigError, match=r"--date-format .* lacks a (year|day)"):
        FileOptions(date_format=date_format)


@pytest.mark.parametrize(
    ("date_format", "pair"),
    [
        ("%a %Y-%j", "%j and %a"),
        ("%Y-%j %A", "%j and %A"),
        ("%w %j %Y", "%j and %w"),
        ("%Y-%j-%u", "%j and %u"),
        ("%Y-%-j-%Ou", "%j and %u"),
        ("%Y-%U-%W-%w", "%U and %W"),
        ("%Y-%j %m", "%j and %m"),
        ("%d %Y-%j", "%j and %d"),
        ("%Y-%m %U %w", "%U and %m"),
    ],
)
def test_a_day_said_in_two_ways_is_refused(date_format: str, pair: str) -> None:
    """Red before: Sunday, day 224 of 2001, was sent as 2001-01-01."""
    with pytest.raises(ConfigError, match=f"says the day in two ways: {pair}"):
        FileOptions(date_format=date_format)


def test_the_name_of_a_zone_is_refused() -> None:
    """Red before: 10:00 CET was sent as 10:00 UTC."""
    with pytest.raises(ConfigError, match="%Z, and the name of a zone is not read") as error:
        FileOptions(date_format="%Y-%m-%d %H:%M %Z")
    assert "name %z" in error.value.next_step
    FileOptions(date_format="%Y-%m-%d %%Z")


FUZZED = ("m", "b", "d", "j", "U", "W", "a", "w", "u")
FUZZED_DAYS = [dt.date(2001, 8, 12), dt.date(2024, 2, 29), dt.date(2024, 12, 31)]


def test_what_is_accepted_is_read_as_python_reads_it() -> None:
    """Each order of up to three directives beside the year."""
    chosen = (some for count in (1, 2, 3) for some in permutations(FUZZED, count))
    accepted, wrong = 0, []
    for some in chosen:
        date_format = " ".join(f"%{one}" for one in ("Y", *some))
        with contextlib.suppress(ConfigError):
            FileOptions(date_format=date_format)
            accepted += 1
            for day in FUZZED_DAYS:
                text = day.strftime(date_format)
                python = dt.datetime.strptime(text, date_format)  # noqa: DTZ007
                if time_of(text, date_format, "d") != python:
                    wrong.append((date_format, text))
    assert wrong == []
    assert accepted > 100


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("text", "type_", "sent"),
    [
        ("2024-02-01 00:00:00", "Date", second(2024, 2, 1) // 86_400),
        ("2024-02-01T00:00:00Z", "Date", second(2024, 2, 1) // 86_400),
        ("2024/2/1 00:00", "Date32", second(2024, 2, 1) // 86_400),
        ("2024-02-01 02Z", "DateTime", second(2024, 2, 1, 2)),
        ("2024-02-01T02+01", "DateTime64(3)", second(2024, 2, 1, 1) * 1000),
        ("2024-02-01 02", "DateTime", second(2024, 2, 1, 2)),
    ],
)
def test_iso_is_read_alike_in_every_file(
    tmp_path: Path, way: str, text: str, type_: str, sent: int
) -> None:
    assert read(tmp_path, way, [text], "", type_) == [sent]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("text", ["20240131", "19991231", "20240131235959"])
def test_digits_that_look_like_a_day_are_refused(
    tmp_path: Path, way: str, text: str, type_: str
) -> None:
    """Red before: 20240131 seconds, a day of August 1970, though ISO 8601 has such dates."""
    with pytest.raises(BadValue, match=rf"'{text}' may be a day or a number") as error:
        read(tmp_path, way, ["2024-01-01", text], "", type_)
    assert "row 2" in error.value.message
    assert "--date-format" in error.value.next_step


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("digits", ["20241301", "1706659323", "18991231", "-20240131", "240131"])
def test_other_digits_are_the_number_of_the_row_message(
    tmp_path: Path, way: str, digits: str
) -> None:
    assert read(tmp_path, way, [digits], "", "DateTime64(3)") == [int(digits)]


@pytest.mark.parametrize("way", WAYS)
def test_a_time_of_day_is_more_than_a_date(tmp_path: Path, way: str) -> None:
    with pytest.raises(BadValue, match="a time of day is more than the type holds"):
        read(tmp_path, way, ["2024-02-01 00:00:01"], "", "Date")


DAYS = ("2024-02-01", "2024-12-31", "2024-02-30", "1900-01-01", "2300-05-06", "1969-12-31",
        "2024/2/1", "Feb 1 2024", "24-02-01", "20240201", "60", "")  # fmt: skip
CLOCKS = ("", "", " 00:00:00", "T00:00", " 01", "T01:02:03", " 23:59:60", "T24:00:00", " 01:02:03")
ENDS = ("", "", "", "Z", "+01:00", "-0230", "+01", ".5", ".123Z", ".123456789", ".0", " +01:00")
TEXTS = st.builds("{}{}{}".format, *(st.sampled_from(some) for some in (DAYS, CLOCKS, ENDS)))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=3),
    type_=st.sampled_from(TYPES),
    date_format=st.sampled_from(["", "", "%Y-%d-%m", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]),
)
def test_every_way_of_reading_agrees(
    tmp_path: Path, texts: list[str], type_: str, date_format: str
) -> None:
    """The same numbers, or a refusal."""
    results: dict[str, list[int] | None] = {}
    for way in WAYS:
        try:
            results[way] = read(tmp_path, way, texts, date_format, type_)
        except ConfigError:
            results[way] = None
    assert all(result == results["csv"] for result in results.values()), results
