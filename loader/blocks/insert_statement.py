"""Blocks as one conditional INSERT, that ClickHouse takes as one server block.

Receives rows and the claim on their blocks, gives them to ClickHouse: one block under its id as
deduplication token, several of one table (loader.blocks.insert_groups says which) all or none of
them. Never retries and never decides: loader.core.plan does.

The statement travels in the body, before the rows: servers and proxies bound the length of a
URL, and a table may have a thousand columns. Its values are literals, since parameters would be
in the URL.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httpclient import HttpClient

from loader.clickhouse.client import failure, one_line, rows_written
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.table_state_sql import altered_sql, counter_sql, shape_sql
from loader.clickhouse.tables import Target
from loader.core import plan
from loader.core.retry_cause import RetryCause
from relay import names
from relay.clickhouse.error_text import error_line
from relay.clickhouse.errors import UNKNOWN_USERS, About, about, may_be_a_value, number
from relay.clickhouse.insert_settings import deduplicated
from relay.clickhouse.quoting import literal, quoted
from relay.records_pb2 import Block
from relay.schema.types.column_type import ColumnType, parse_type, recorded_type
from relay.schema.types.type_text import texts_for_enums

_WRAPPED = re.compile(
    r"(?:Nullable\(|LowCardinality\(|SimpleAggregateFunction\(\w+(?:\([^)]*\))?, )(.*)\)"
)
_DATE = "Date"
"""In a type's text: accurateCast wraps what such a type does not hold, but for a setting."""
_ENUM = "Enum"
_FEW_ELEMENTS = 50_000
"""Bytes. A shorter statement has fewer elements than a server takes by default: each is a byte or
more."""
_FEW_ROWS = 10_000
"""More rows may be worth a second thread."""
_ALTERED = "not the table that the statement was made for"
_TAKEN = "not all of these blocks are claimed by this loader any more"
_GROWN = "others inserted into the table meanwhile"
_UPGRADED = "not the version of ClickHouse that the statement was made for"
_CAUSES = {
    _ALTERED: RetryCause.TABLE_ALTERED,
    _UPGRADED: RetryCause.ERROR,
    _TAKEN: RetryCause.ANOTHER_LOADER,
    _GROWN: RetryCause.OTHERS_INSERTED,
}
"""Of what the statement's own throwIfs say. Their text tells them from those of the table."""
_ANOTHER_USER = "a view's definer, or the user of a cluster behind the table, is not let in"


def settings(blocks: Sequence[Block], claim: str, rows: int, token: int) -> dict[str, object]:
    """Return the INSERT's settings, each with its reason; a server gets only those it knows.

    A setting that is sent with the statement wins over the user's profile, and means the same on
    every version. `token` is which of the block's own tokens the claim says; 0: a token of the
    claim's, under which no other attempt repeats it.
    """
    first = blocks[0].id
    return {
        **deduplicated(first if token == 1 else f"{first} {token or claim}", rows),
        # A view that fails, or whose target was dropped, must fail the INSERT, or its rows would
        # be missing for ever.
        "materialized_views_ignore_errors": 0,
        "ignore_materialized_views_with_dropped_target_table": 0,
        # A block over more partitions than the default of 100 would be refused for ever.
        "max_partitions_per_insert_block": 0,
        # A field that a message does not carry takes the column's DEFAULT.
        "insert_null_as_default": 1,
        # Columns whose names differ in case alone are two columns.
        "input_format_arrow_case_insensitive_column_matching": 0,
        # A String in a Variant or Dynamic stays one, though it may read as a number or NULL.
        "cast_string_to_variant_use_inference": 0,
        "cast_string_to_dynamic_use_inference": 0,
        # What the server records of the statement is evidence (loader.clickhouse.server_records).
        "log_queries": 1,
        "log_queries_probability": 1,
        "log_queries_min_type": "QUERY_START",
        "log_queries_min_query_duration_ms": 0,
        # How other attempts see that this statement still runs (loader.clickhouse.tables), or ran.
        "log_comment": names.insert_comment((block.id for block in blocks), claim),
    }


def statement(
    blocks: Sequence[Block],
    schema: pa.Schema,
    ledger: Ledger,
    target: Target,
    stamp: str,
    claim: str,
    limit: int | None,
) -> str:
    """Return the text of the INSERT, with names and values quoted.

    A column that the table no longer has is left out.

    Raises:
        ValueError: a column's type, as the relay recorded it, is not known here, or the table
            takes none of the block's columns.
    """
    database, table = names.split_table(blocks[0].table)
    into, rows = _selection(schema, target, stamp, blocks)
    claimed = ledger.holds
    if len(blocks) > 1:  # said loudly: who inserts nothing of a claim that holds, has to know
        other = f"length({{blocks:Array(String)}}) NOT IN {ledger.holding}"
        claimed = f"throwIf({other}, {literal(_TAKEN)}) = 0"
    # ClickHouse takes the table as it is when the statement begins, and evaluates this later:
    # what it casts, and what not, was decided for just these columns. By IN, the
    # statement's own pipeline asks; for a comparison ClickHouse first runs another, 0.7 ms each.
    bound = f" AND throwIf({target.shape:d} NOT IN {shape_sql()}, {literal(_ALTERED)}) = 0"
    counter = target.nature.window.counter
    if limit is not None:
        version = f"version() != {literal(target.version)}"  # it may have been upgraded since
        bound += f" AND throwIf({version}, {literal(_UPGRADED)}) = 0"
    if limit is not None and counter != "none":
        bound += f" AND throwIf({counter_sql(counter)} > {limit:d}, {literal(_GROWN)}) = 0"
        if counter == "parts":
            # A smaller window forgets tokens at once. (Keeper keeps those of replicas a while.)
            bound += f" AND throwIf({altered_sql()} != {target.altered:d}, {literal(_ALTERED)}) = 0"
    values = {
        "{app:String}": literal(ledger.app),
        "{table:String}": literal(blocks[0].table),
        "{tables:Array(String)}": f"[{literal(blocks[0].table)}]",
        "{block:String}": literal(blocks[0].id),
        "{blocks:Array(String)}": f"[{', '.join(literal(block.id) for block in blocks)}]",
        "{claim:String}": literal(claim),
        "{database:String}": literal(database),
        "{name:String}": literal(table),
    }
    condition = f"{claimed}{bound}"
    for place, value in values.items():
        condition = condition.replace(place, value)
    return (
        f"INSERT INTO {quoted(database)}.{quoted(table)} {into} {rows} "
        f"WHERE {condition} FORMAT Arrow\n"
    )


def trial_statement(
    block: Block, schema: pa.Schema, target: Target, stamp: str, scratch: str
) -> str:
    """Return the text of an INSERT of the block's rows into a scratch table, given quoted.

    Raises:
        ValueError: as `statement`.
    """
    into, rows = _selection(schema, target, stamp, [block])
    return f"INSERT INTO {scratch} {into} {rows} FORMAT Arrow\n"


def _selection(
    schema: pa.Schema, target: Target, stamp: str, blocks: Sequence[Block]
) -> tuple[str, str]:
    """Return the columns to fill and the SELECT that makes them from the rows sent."""
    columns, selects, structure = [], [], []
    dates = False
    for field in schema:
        kind = parse_type(recorded_type(field))
        name = quoted(field.name)
        structure.append(f"{name} {kind.input_type}")
        if field.name in target.columns:
            now = target.columns[field.name]
            columns.append(name)
            selects.append(_strictly(name, kind, now))
            dates |= now != kind.clickhouse and _DATE in now
    if not columns or columns == [quoted(stamp)]:
        raise ValueError(f"it has none of the block's columns {', '.join(schema.names)}")
    if stamp in target.columns and len(blocks) == 1:
        columns.append(quoted(stamp))
        selects.append(literal(blocks[0].id))
    sent = f"input({literal(', '.join(structure))})"
    into = f"({', '.join(columns)})"
    if not dates:
        return into, f"SELECT {', '.join(selects)} FROM {sent}"  # noqa: S608 - quoted
    # For these casts alone: what the table's expressions and views do stays as its owner had it.
    aliases = _aliases(len(selects), schema.names)
    named = ", ".join(f"{one} AS {alias}" for one, alias in zip(selects, aliases, strict=True))
    casts = f"SELECT {named} FROM {sent} SETTINGS date_time_overflow_behavior = 'throw'"  # noqa: S608 - quoted
    return into, f"SELECT {', '.join(aliases)} FROM ({casts})"  # noqa: S608 - quoted


def _aliases(count: int, columns: Sequence[str]) -> list[str]:
    """Return so many names that no column has: an expression would read the alias instead of it."""
    prefix = "cast_"
    while any(column.startswith(prefix) for column in columns):
        prefix += "_"
    return [f"{prefix}{at}" for at in range(count)]


def _strictly(name: str, recorded: ColumnType, now: str) -> str:
    """Return SQL for a column as its present type, which may differ from the one recorded.

    Left to itself, an INSERT of a value that does not fit wraps it around (300 into UInt8: 44)
    or stores the default ('x': 0), and reads a Date's days as the seconds of a DateTime.
    """
    value = recorded.select(name)
    if now == recorded.clickhouse:
        return value
    if not recorded.input_type.startswith("Nullable("):
        return _accurately(value, recorded.clickhouse, now)
    cast = _accurately(f"assumeNotNull({value})", _bare(recorded.clickhouse), _bare(now))
    return f"if(isNull({value}), NULL, {cast})"


def _accurately(value: str, recorded: str, now: str) -> str:
    """Return SQL of the cast.

    An Enum's value goes by its name: from Enum to Enum ClickHouse casts the number. Of a number it
    makes a value that may have no name, and fails to read that: as text it is an error at once.
    """
    if _ENUM not in now:
        return _cast(value, recorded, now)
    named = _cast(value, texts_for_enums(recorded, now), now)
    return _cast(named, texts_for_enums(now, now), now)


def _cast(value: str, recorded: str, now: str) -> str:
    return f"accurateCast(CAST({value}, {literal(recorded)}), {literal(now)})"


def _bare(text: str) -> str:
    """Return the type of the value, without Nullable and LowCardinality."""
    while match := _WRAPPED.fullmatch(text):
        text = match[1]
    return text


class Body(bytes):
    """An INSERT with its data, which is never decoded as a whole.

    clickhouse-connect decodes all data of a command, to see whether it were a SELECT: as long
    as ClickHouse takes to insert it. The beginning tells as well.
    """

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the beginning as text."""
        return self[:16].decode(encoding, errors)


def body(sql: str, batch: pa.RecordBatch) -> Body:
    """Return the statement and the batch as an Arrow file with a single record batch."""
    sink = io.BytesIO()
    sink.write(sql.encode())
    with pa.ipc.new_file(pa.PythonFile(sink), batch.schema) as writer:
        writer.write_batch(batch)
    return Body(sink.getvalue())


def send(client: HttpClient, sql: str, batch: pa.RecordBatch, asked: Mapping[str, object]) -> Any:
    """Send an INSERT with its rows, however long it is; return clickhouse-connect's answer.

    Settings that the server does not know are left out.

    Raises:
        ClickHouseError: the server refused it, or did not answer.
    """
    known = client.server_settings
    longest = int(known["max_query_size"].value) if "max_query_size" in known else 0
    length, sent = len(sql.encode()), dict(asked)
    if length > _FEW_ELEMENTS:
        sent["max_ast_elements"] = 0  # 50 000 by default; a column that is cast takes a dozen
    if length > longest:  # 256 KiB by default
        # No more than it needs: before it parses, the server copies as much of what is sent.
        sent["max_query_size"] = length + 1
    return client.command(
        "", data=body(sql, batch), settings={k: v for k, v in sent.items() if k in known}
    )


def insert(  # noqa: PLR0913 - the statement needs them all
    client: HttpClient,
    ledger: Ledger,
    blocks: Sequence[Block],
    batch: pa.RecordBatch,
    claim: str,
    target: Target,
    *,
    stamp: str,
    limit: int | None,
    token: int,
) -> plan.Answer:
    """Insert blocks of one table once; return loader.core.plan's answer for each of them.

    Where the server took the statement, that is a plan.Wrote of all of them. Rows of several blocks
    have a column `stamp` with the id of each row's block, and so has the table. `target` is the
    table as it was before the claim; `limit`, for a single block only, is of its insert counter;
    `token`, as in `settings`, is 0 for several blocks.

    Raises:
        Refused: the server no longer accepts this user.
    """
    table = blocks[0].table
    try:
        sql = statement(blocks, batch.schema, ledger, target, stamp, claim, limit)
    except ValueError as error:
        return plan.Impossible(f"{table}: {error}")
    asked = settings(blocks, claim, batch.num_rows, token)
    if batch.num_rows <= _FEW_ROWS and not target.nature.views:  # a view may read any table
        asked |= ledger.for_few_rows
    try:
        summary = send(client, sql, batch, asked)
    except ClickHouseError as error:
        for thrown, cause in _CAUSES.items():
            if f"Exception: {thrown}" in str(error):  # elsewhere it may be the statement's text
                altered = f"{table} was altered meanwhile"
                return plan.NoAnswer(altered if thrown == _ALTERED else thrown, cause=cause)
        return _failed(client, error, table)
    if (written := rows_written(summary)) is None:
        return plan.NoAnswer(
            "the server did not say how many rows it wrote; check whether a proxy removes the "
            "header X-ClickHouse-Summary"
        )
    return plan.Wrote(written)


def _failed(client: HttpClient, error: ClickHouseError, table: str) -> plan.Answer:
    """Translate the error of an INSERT for the plan."""
    what, reason = about(str(error)), error_line(error, f"INSERT into {table}")[:500]
    if what is About.USER:
        if number(str(error)) not in UNKNOWN_USERS or _is_refused(client):
            raise failure(error, f"INSERT into {table}") from error
        return plan.NoAnswer(f"{_ANOTHER_USER}: {reason}", About.TABLE)
    if may_be_a_value(str(error)):
        return plan.Rejected(one_line(error))
    return plan.NoAnswer(reason, what)


def _is_refused(client: HttpClient) -> bool:
    """Return whether the server refuses the loader's own user.

    Else the user that it does not accept is that of something behind the table: the definer of a
    view, or the one by whom the server asks another one of a cluster.

    Raises:
        Unavailable: it does not answer.
    """
    try:
        client.command("SELECT 1")
    except ClickHouseError as error:
        if number(str(error)) in UNKNOWN_USERS:
            return True
        raise failure(error, "SELECT 1") from error
    return False
