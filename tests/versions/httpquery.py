"""What one HTTP request asks of ClickHouse: pure text, no engine, no socket.

Receives: URL arguments, body and headers. Gives: a Query. The one thing done to
SQL: the engine has no `input('…')` and no request body, so the data is read from a
file, of `INSERT … SELECT … FROM input('…')` through `file()`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any

import pyarrow as pa

# Arguments of the interface itself; every other one is a setting.
_RESERVED = frozenset(
    {"query", "database", "default_format", "query_id", "role", "wait_end_of_query"}
    | {"user", "password", "quota_key", "session_id", "session_timeout", "session_check"}
    | {"buffer_size", "compress", "decompress", "client_protocol_version"}
)
_INSERT = re.compile(rb"\s*INSERT\s", re.IGNORECASE)
# The statement ends with its format; one line break between it and the data is not data.
_FORMAT_THEN_DATA = re.compile(rb"\sFORMAT\s+(\w+)[ \t]*;?[ \t]*\r?\n", re.IGNORECASE)
_LAST_FORMAT = re.compile(r"\sFORMAT\s+(\w+)\s*;?\s*\Z", re.IGNORECASE)
_INPUT = re.compile(r"\binput\s*\(\s*('(?:[^'\\]|\\.|'')*')\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Query:
    """One query; `data_format` is empty where there is no data."""

    sql: str
    data: bytes
    data_format: str
    default_format: str
    database: str
    settings: dict[str, str]
    parameters: dict[str, str]

    @property
    def spools(self) -> bool:
        """Whether the data is read by a SELECT, and so has to be a file."""
        return bool(self.data_format) and _INPUT.search(self.sql) is not None

    @property
    def inserts(self) -> bool:
        """Whether it is an INSERT, which has no result."""
        return _INSERT.match(self.sql.encode()) is not None

    @property
    def result_format(self) -> str:
        """In which the result comes."""
        found = None if self.data_format else _LAST_FORMAT.search(self.sql)
        return found[1] if found else self.default_format

    def over_file(self, path: Path) -> str:
        """The statement with its data, or what `input('…')` gives, in the file."""
        if not self.spools:
            return f"{self.sql} FROM INFILE {quote(str(path))} FORMAT {self.data_format}"
        source = f"file({quote(str(path))}, {quote(self.data_format)}, "
        return _INPUT.sub(lambda found: f"{source}{found[1]})", self.sql)


def parse(arguments: Mapping[str, str], body: bytes, headers: Mapping[str, str]) -> Query:
    """The query that a request asks for; names of headers in lower case.

    Raises:
        ValueError: data without a format, an external table, an unreadable body; the
            text begins as ClickHouse's errors do.
    """
    fields = dict(arguments)
    if body and headers.get("content-encoding"):
        body = _decompress(body, headers["content-encoding"])
    if headers.get("content-type", "").startswith("multipart/form-data"):
        fields |= _form_fields(headers["content-type"], body)
        body = b""
    sql, data, data_format = _split(fields.get("query", ""), body)
    return Query(
        sql=sql,
        data=data,
        data_format=data_format,
        default_format=fields.get("default_format")
        or headers.get("x-clickhouse-format")
        or "TabSeparated",
        database=fields.get("database") or headers.get("x-clickhouse-database") or "",
        settings={
            key: value
            for key, value in fields.items()
            if key not in _RESERVED and not key.startswith("param_")
        },
        parameters={
            key.removeprefix("param_"): value
            for key, value in fields.items()
            if key.startswith("param_")
        },
    )


def _split(sql: str, body: bytes) -> tuple[str, bytes, str]:
    """(statement without its input format, data, input format)."""
    if not sql:
        found = _FORMAT_THEN_DATA.search(body) if _INSERT.match(body) else None
        if found is None:
            return body.decode(), b"", ""
        return body[: found.start()].decode(), body[found.end() :], found[1].decode()
    if not body:
        return sql, b"", ""
    if not _INSERT.match(sql.encode()):
        return f"{sql}\n{body.decode()}", b"", ""
    format_clause = _LAST_FORMAT.search(sql)
    if format_clause is None:
        raise ValueError("Code: 62. DB::Exception: data, but no FORMAT clause. (SYNTAX_ERROR)")
    return sql[: format_clause.start()], body, format_clause[1]


def _decompress(body: bytes, encoding: Any) -> bytes:
    source = pa.BufferReader(body)
    try:
        with pa.CompressedInputStream(source, encoding) as stream:
            return bytes(stream.read())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(
            f"Code: 354. DB::Exception: body is not {encoding}: {error}. (CANNOT_DECOMPRESS)"
        ) from error


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    message = BytesParser(policy=HTTP).parsebytes(
        b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body
    )
    fields: dict[str, str] = {}
    for part in message.iter_parts():
        if part.get_filename() is not None:
            raise ValueError("Code: 48. DB::Exception: no external tables. (NOT_IMPLEMENTED)")
        payload = part.get_payload(decode=True)
        name = part.get_param("name", header="content-disposition")
        fields[str(name)] = payload.decode() if isinstance(payload, bytes) else ""
    return fields


def quote(text: str) -> str:
    """As an SQL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(name: str) -> str:
    """As an SQL identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def assignments(settings: Mapping[str, str]) -> str:
    """As the list behind SET."""
    return ", ".join(f"{identifier(key)} = {quote(value)}" for key, value in settings.items())
