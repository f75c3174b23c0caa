"""What a request asks for, and how its data reaches an engine that has no request body."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.dev import httpquery


def _parse(arguments: dict[str, str], body: bytes = b"", **headers: str) -> httpquery.Query:
    return httpquery.parse(
        arguments, body, {key.replace("_", "-"): value for key, value in headers.items()}
    )


@pytest.mark.parametrize("data", [b"\n\n\x01", b"\t;\n FORMAT CSV\n", b"\xff\xfe", b" x"])
def test_data_behind_the_statement_is_kept_to_the_byte(data: bytes) -> None:
    """Only one line break stands between a statement and its data; the rest is data."""
    query = _parse({}, b"INSERT INTO t (a) FORMAT Native\n" + data)
    assert (query.sql, query.data, query.data_format) == ("INSERT INTO t (a)", data, "Native")
    assert not query.spools


def test_arguments_are_sorted_out() -> None:
    """Bound parameters, database and settings are told from the interface's own arguments."""
    query = _parse(
        {"query": "SELECT 1", "param_x": "a\\nb", "database": "d", "max_threads": "1"}
        | {"query_id": "q", "session_id": "s", "client_protocol_version": "1"}
    )
    assert query.parameters == {"x": "a\\nb"}
    assert query.settings == {"max_threads": "1"}
    assert query.database == "d"
    assert (query.data_format, query.result_format) == ("", "TabSeparated")
    assert _parse({}, b"SELECT 1 FORMAT JSON ").result_format == "JSON"


def test_input_becomes_the_file() -> None:
    """input('structure') reads the file in the data's format, quotes in the structure kept."""
    sql = "INSERT INTO t SELECT a FROM input('a Enum8(\\'x\\' = 1)') WHERE 1 FORMAT Arrow"
    query = _parse({"query": sql}, b"data")
    assert query.spools
    assert query.over_file(Path("/d/it's")) == (
        "INSERT INTO t SELECT a FROM file('/d/it\\'s', 'Arrow', 'a Enum8(\\'x\\' = 1)') WHERE 1"
    )


def test_names_and_values_are_quoted() -> None:
    """No setting, database or path ends its quotes."""
    assert httpquery.identifier("a`; DROP") == "`a\\`; DROP`"
    assert httpquery.assignments({"k": "v', x = '\\"}) == "`k` = 'v\\', x = \\'\\\\'"


@pytest.mark.parametrize(
    ("arguments", "body", "headers", "message"),
    [
        ({"query": "INSERT INTO t"}, b"1", {}, "Code: 62"),
        ({"query": "SELECT 1"}, b"nonsense", {"content_encoding": "zstd"}, "Code: 354"),
        ({"query": "SELECT 1"}, b"nonsense", {"content_encoding": "rot13"}, "Code: 354"),
        (
            {"query": "SELECT 1"},
            b'--B\r\nContent-Disposition: form-data; name="e"; filename="e"\r\n\r\n1\r\n--B--\r\n',
            {"content_type": "multipart/form-data; boundary=B"},
            "Code: 48",
        ),
    ],
)
def test_what_is_not_served_is_refused(
    arguments: dict[str, str], body: bytes, headers: dict[str, str], message: str
) -> None:
    """Data without a format, unreadable bodies and external tables are errors with a code."""
    with pytest.raises(ValueError, match=message):
        _parse(arguments, body, **headers)
