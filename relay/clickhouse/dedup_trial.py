"""Tries whether ClickHouse drops an INSERT that is repeated under its token.

Receives a client, makes tables of its own, inserts twice as the loader does, gives how many rows
are there then; each function raises ClickHouseError where the server refuses or does not answer.
Only a trial holds for every version and every user's profile: which setting decides about INSERT …
SELECT, and what its default means, has changed three times.
"""

from __future__ import annotations

import contextlib
import io
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from relay.clickhouse.insert_settings import deduplicated, known
from relay.clickhouse.quoting import quoted

ROWS = 2
"""In each INSERT; with one, a merging engine would be hard to tell from deduplication."""
WINDOW = 1000
TABLE = "trial"
"""The loader's, in the ledger's database. It stays, so that no right to drop tables is needed."""
_COLUMNS = "token String, at DateTime DEFAULT now()"


class TrialTables(NamedTuple):
    """A table to insert into, and that which a view behind it writes to, or empty; quoted."""

    table: str
    behind: str = ""


class Copies(NamedTuple):
    """How often each row is in both after two INSERTs: 1 is right; None: there is no view."""

    table: float
    behind: float | None = None


def lasting(client: Client, database: str) -> TrialTables:
    """Return the loader's own table, made where it is not there; its rows expire."""
    name = f"{quoted(database)}.{TABLE}"
    if not int(str(client.command(f"EXISTS TABLE {name}"))):
        client.command(
            f"CREATE TABLE IF NOT EXISTS {name} ({_COLUMNS}) ENGINE = MergeTree ORDER BY token "
            f"TTL at + INTERVAL 1 DAY SETTINGS non_replicated_deduplication_window = {WINDOW}"
        )
    return TrialTables(name)


@contextlib.contextmanager
def passing(client: Client, database: str, engine: str, settings: str) -> Iterator[TrialTables]:
    """Yield a table and a view behind it; drop both afterwards, also after a failure.

    Args:
        client: of a user who may make and drop tables and views there.
        database: to make them in; made where it is not there.
        engine: as in CREATE TABLE; {path} in it becomes the table's own.
        settings: of both tables, as in CREATE TABLE.
    """
    stem = f"{TABLE}_{uuid.uuid4().hex}"
    prefix = quoted(database)
    tables = TrialTables(f"{prefix}.{stem}", f"{prefix}.{stem}_behind")
    view = f"{prefix}.{stem}_view"
    client.command(f"CREATE DATABASE IF NOT EXISTS {prefix}")
    try:
        for name in tables:
            path = f"/relay/{name.rpartition('.')[2]}"
            client.command(
                f"CREATE TABLE {name} ({_COLUMNS}) ENGINE = {engine.replace('{path}', path)} "
                f"ORDER BY token SETTINGS {settings}"
            )
        client.command(
            f"CREATE MATERIALIZED VIEW {view} TO {tables.behind} "  # noqa: S608 - quoted
            f"AS SELECT token FROM {tables.table}"
        )
        yield tables
    finally:
        for name in (view, *tables):
            client.command(f"DROP TABLE IF EXISTS {name}")


def tried(client: Client, made: TrialTables) -> Copies:
    """Insert the same rows twice under one token, with the loader's statement and settings."""
    token = f"trial {uuid.uuid4().hex}"
    sent = known(deduplicated(token, ROWS), client.server_settings)
    # The loader's statement asks the ledger in its WHERE; this asks what is always so.
    condition = f"(SELECT count() FROM {made.table} WHERE token = '') = 0"  # noqa: S608 - quoted
    sql = (
        f"INSERT INTO {made.table} (token) SELECT token FROM input('token String') "  # noqa: S608 - quoted
        f"WHERE {condition} FORMAT Arrow"
    )
    for _ in range(2):
        client.command(sql, data=_arrow(token), settings=sent)
    return Copies(
        _copies(client, made.table, token),
        _copies(client, made.behind, token) if made.behind else None,
    )


def _copies(client: Client, table: str, token: str) -> float:
    sql = f"SELECT count() FROM {table} WHERE token = {{token:String}}"  # noqa: S608 - quoted
    return float(client.query(sql, parameters={"token": token}).result_rows[0][0]) / ROWS


def _arrow(token: str) -> bytes:
    batch = pa.RecordBatch.from_pydict({"token": pa.array([token] * ROWS, pa.string())})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
