"""Tries rows on a table that is made like the block's, so that nothing is at stake.

Receives a table and rows, says whether such a table takes them: its CHECKs, its DEFAULT and
MATERIALIZED expressions, keys, TTL and indexes are the table's own. No view hangs on it. It lies in
the ledger's database and is dropped afterwards; one that a killed loader left, a day later.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httpclient import HttpClient

from loader.blocks.insert_statement import send, settings, trial_statement
from loader.clickhouse.client import TableRefused, one_line, table_failure
from loader.clickhouse.tables import Target
from loader.core.bad_messages import TableRefusal
from relay import names
from relay.clickhouse.errors import may_be_a_value
from relay.clickhouse.quoting import quoted, quoted_table
from relay.clickhouse.statement_settings import free_of
from relay.clickhouse.table_engine import split_items
from relay.errors import Unavailable
from relay.failpoints import reached
from relay.records_pb2 import Block

PREFIX = "scratch_"
_LEFT_BEHIND_SECONDS = 86_400
_OWN = f"^{PREFIX}[0-9a-f]{{32}}$"
"""Names of such tables alone: a user may have others that begin like this."""
_ROOM = ("parts_to_delay_insert = 1000000", "parts_to_throw_insert = 1000000")
"""Each trial leaves a part, and merges may not keep up with trials."""
_OVERRULED = frozenset(
    {
        "parts_to_delay_insert",
        "parts_to_throw_insert",
        "non_replicated_deduplication_window",
        "replicated_deduplication_window",
        "replicated_deduplication_window_seconds",
    }
)
_OWN_DISK = frozenset({"disk", "table_disk"})
"""Where the table lies: with `table_disk` no other may lie there, or the two overwrite each other's
parts, and the DROP of one takes the other's. And a disk that the table made is told with its values
hidden."""
_AS_MEANT: Mapping[str, object] = dict.fromkeys(
    (
        "allow_suspicious_low_cardinality_types",
        "allow_suspicious_fixed_string_types",
        "allow_suspicious_variant_types",
        "allow_suspicious_ttl_expressions",
        "allow_suspicious_primary_key",
        # Off by default in some of 25.8 to 26.5:
        "allow_experimental_time_time64_type",
        "allow_experimental_nullable_tuple_type",
        "allow_experimental_full_text_index",
        "allow_experimental_statistics",
    ),
    1,
)
"""What ClickHouse takes only from who says that it is meant: whoever made the table has said so."""
_REPLICATED = re.compile(
    # Path and replica come first, as texts; the engine's own arguments follow.
    r"^(?:Replicated|Shared)(\w*MergeTree)(?:(\()'(?:[^'\\]|\\.)*', '(?:[^'\\]|\\.)*'(?:, )?)?"
)
_NAMED_ROW = re.compile(r"is violated at row (\d+)\.")
"""From 1; of a CHECK."""
_NAMED_TABLE = re.compile(rf"\S*{PREFIX}[0-9a-f]{{32}}`?(?: \([0-9a-f-]{{36}}\))?")


class NoScratch(Exception):
    """The server does not let this user make such a table; the reason is in words."""


def engine_of(engine: str, engine_full: str) -> str:
    """Return the engine clause of a table on one server that judges rows as the table does.

    `engine` and `engine_full`: of the table in system.tables.
    """
    if not engine.endswith("MergeTree"):
        return "Null"  # CHECKs and DEFAULTs are judged before the engine gets the rows
    clauses, _, kept = engine_full.partition(" SETTINGS ")
    alone = _REPLICATED.sub(r"\1\2", clauses)
    by_name = {item.partition(" = ")[0]: item for item in map(str.strip, split_items(kept))}
    left_out = _OVERRULED | _OWN_DISK
    if "table_disk" in by_name:
        left_out |= {"storage_policy"}  # else it stays: a TTL may move parts to its volumes
    others = (item for name, item in by_name.items() if name not in left_out)
    return f"{alone} SETTINGS {', '.join(filter(None, [*others, *_ROOM]))}"


@contextlib.contextmanager
def like(
    client: HttpClient, database: str, block: Block, target: Target, stamp: str
) -> Iterator[Callable[[pa.RecordBatch], TableRefusal | None]]:
    """Give a function that tries rows of the block on a table like its own; drop that table then.

    Raises:
        NoScratch: such a table cannot be made.
        Unavailable, Refused: as the loader's other questions.
        ValueError: the table takes none of the rows' columns.
    """
    name = f"{quoted(database)}.{PREFIX}{uuid.uuid4().hex}"
    try:
        if not int(str(client.command(f"CHECK GRANT DROP TABLE ON {name}"))):
            raise NoScratch(
                "this user may not drop the trial table afterwards: GRANT DROP TABLE ON "
                f"{name[:-32]}*"
            )
        _drop_left_behind(client, database)
        engine = engine_of(*_engine(client, block.table))
        client.command(
            f"CREATE TABLE {name} AS {quoted_table(block.table)} ENGINE = {engine}",
            settings=dict(free_of(client, _AS_MEANT)),
        )
    except ClickHouseError as error:
        failed = table_failure(error, f"making a table like {block.table} to try rows on")
        if isinstance(failed, Unavailable):
            raise failed from error
        raise NoScratch(failed.message) from error

    reached("scratch_made")
    try:
        yield partial(_try_rows, client, name, block, target, stamp)
    finally:
        with contextlib.suppress(ClickHouseError):  # it goes a day later, then
            client.command(f"DROP TABLE IF EXISTS {name}")


def _engine(client: HttpClient, table: str) -> tuple[str, str]:
    database, name = names.split_table(table)
    rows = client.query(
        "SELECT engine, engine_full FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}",
        parameters={"database": database, "name": name},
    ).result_rows
    if not rows:
        raise TableRefused(
            f"{table} was dropped meanwhile",
            "Create the table again, or discard its blocks (`loader parked resolve --discard`).",
        )
    return str(rows[0][0]), str(rows[0][1])


def _drop_left_behind(client: HttpClient, database: str) -> None:
    old = client.query(
        "SELECT name FROM system.tables WHERE database = {database:String} "
        "AND match(name, {own:String}) "
        "AND metadata_modification_time < now() - {seconds:UInt32}",
        parameters={"database": database, "own": _OWN, "seconds": _LEFT_BEHIND_SECONDS},
    )
    for (name,) in old.result_rows:
        client.command(f"DROP TABLE IF EXISTS {quoted(database)}.{quoted(name)}")


def _try_rows(
    client: HttpClient, scratch: str, block: Block, target: Target, stamp: str, rows: pa.RecordBatch
) -> TableRefusal | None:
    sql = trial_statement(block, rows.schema, target, stamp, scratch)
    asked = settings([block], "", rows.num_rows, 1)
    # What the server records of a trial must not be taken for an INSERT of the block.
    asked["log_comment"] = f"trial of {block.id}"
    try:
        send(client, sql, rows, asked)
    except ClickHouseError as error:
        if not may_be_a_value(str(error)):
            raise table_failure(error, f"trying rows of {block.table} on {scratch}") from error
        text = _NAMED_TABLE.sub(block.table, one_line(error))
        row = _NAMED_ROW.search(text)
        return TableRefusal(text, int(row[1]) - 1 if row else None)
    return None
