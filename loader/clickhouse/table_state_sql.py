"""SQL that tells how a table is now: what came into it, its columns, and when it was altered.

Gives expressions, for questions about tables and for the conditions of an INSERT. Each is about the
table {database:String}.{name:String}, or {tables:Array(String)}, which whoever uses it binds, or
replaces by literals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay import names
from relay.clickhouse.quoting import quoted, quoted_table
from relay.clickhouse.table_engine import KEPT_SETTING, LISTED_HERE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from loader.core.table_rules import Counter

_COUNTERS = {
    # Inactive parts count too, they were inserted as well.
    "parts": "SELECT max(max_block_number) FROM system.parts",
    "log": "SELECT max(log_max_index) FROM system.replicas",
}
LOG_COUNTER = "if(zookeeper_exception = '', log_max_index, -1)"
"""SQL of a replica's insert counter: without Keeper it gives 0, and says why."""
ALL_COUNTERS = {
    "parts": "SELECT database || '.' || table, max(max_block_number) FROM system.parts "
    "WHERE database IN {databases:Array(String)} AND table IN {names:Array(String)} "
    "GROUP BY database, table",
    "log": f"SELECT database || '.' || table, {LOG_COUNTER} FROM system.replicas "  # noqa: S608 - constants
    "WHERE database IN {databases:Array(String)} AND table IN {names:Array(String)}",
}
"""The insert counters of several tables in one statement."""
INSERTABLE = (
    "default_kind NOT IN ('MATERIALIZED', 'ALIAS') "
    "AND NOT (name = {stamp:String} AND default_kind = 'EPHEMERAL')"
)
"""About a row of system.columns: an INSERT may name it. An EPHEMERAL column may be named, too, but
keeps nothing by which to count."""
THIS_TABLE = "database = {database:String} AND table = {name:String}"
"""SQL about a row of a system table."""
SHAPE = "toInt64(bitAnd(sum(cityHash64(name, type, default_kind)), 9223372036854775807))"
"""SQL over the rows of system.columns: a hash of a table's columns."""
ALTERED = "toUnixTimestamp(metadata_modification_time)"
"""SQL about a row of system.tables: Unix seconds of the last change of its definition."""
_CLAIM = "fromUnixTimestamp64Milli({since:Int64})"
_DAY = f"toDate32({_CLAIM}) - 1"
_SINCE = f"create_time >= {_CLAIM} - 1"
DELETES = (
    f"SELECT countIf({_SINCE} AND command NOT IN ('(DELETE WHERE 0)', 'DELETE WHERE 0') "  # noqa: S608 - constants
    "AND (command LIKE '%DELETE%' OR command LIKE '%_row_exists%' "
    "OR (position(command, {stamp:String}) > 0 AND command NOT LIKE '%MATERIALIZE %'))), "
    "countIf(is_done), toUnixTimestamp(minIf(create_time, is_done)) "
    f"FROM system.mutations WHERE {THIS_TABLE}"
)
"""Mutations since {since:Int64} of rows, or of the id of their block; an index of the ids takes
none. Nor does what no row meets: `relay rewind` waits with it for the deletions before it. And how
many finished ones the server shows, and when the oldest was made."""
MOST_REMOVING = 1000
REMOVING = (
    "SELECT query, current_database FROM system.query_log WHERE is_initial_query "  # noqa: S608 - constants
    "AND (type = 'QueryFinish' OR exception_code IN {stopped:Array(Int32)}) "
    f"AND event_date >= {_DAY} AND event_time >= {_CLAIM} - 1 "
    r"AND query_kind IN ('Alter', 'Delete', 'Update') AND (match(query, '(?i)\\bDELETE\\b') "
    "OR position(query, {stamp:String}) > 0) AND if(empty(tables), "
    "position(query, {name:String}) > 0, arrayExists(one -> "
    r"position(one, '\\') > 0 OR replaceAll(one, '`', '') = {place:String}, tables)) "
    f"LIMIT {MOST_REMOVING}"
)
"""Statements that may have made such a mutation: of one that was killed nothing else is left.

The log names the tables of one that did not fail, in quotes where a name needs them; of others it
has only the text. Texts are long (up to 100 kB), so no more are read."""
KEPT_MUTATIONS = (
    "SELECT engine, engine_full, "  # noqa: S608 - constants
    "(SELECT any(value) FROM system.merge_tree_settings WHERE name = '" + KEPT_SETTING + "') "
    "FROM system.tables WHERE database = {database:String} AND name = {name:String}"
)
"""What says how many finished mutations of the table the server shows at most."""
SHARED = (
    "SELECT countIf(startsWith(engine, 'Shared')), countIf(startsWith(engine, 'Replicated')) "
    "FROM system.tables WHERE database IN {databases:Array(String)} "
    "AND database || '.' || name IN {tables:Array(String)}"
)
"""Of these tables: how many share their rows in the cloud, and how many are replicated."""
ON_ONE_REPLICA = (
    "SELECT countIf(total_replicas = 1), countIf(total_replicas = 0) FROM system.replicas "
    "WHERE database || '.' || table IN {tables:Array(String)}"
)
"""Of these tables: how many replicated ones have no other replica, and of how many Keeper gives no
answer, which counts the replicas."""
_PARTITION = "(table_uuid, if(empty(table_uuid), concat(database, '.', table), ''), partition_id)"
_MICROS = "toUnixTimestamp64Micro(event_time_microseconds)"
_LATER = f"{_MICROS} > {{ended:Int64}}"
_COVERED = (
    "arrayExists(span -> toInt64OrZero(splitByChar('_', part_name)[-3]) "
    "BETWEEN span.1 AND span.2, spans)"
)


def _emptied(events: str) -> str:
    """Partitions of which a part without rows was made since the claim, by these events."""
    return (
        f"SELECT {_PARTITION} FROM system.part_log WHERE event_type IN ({events}) AND error = 0 "  # noqa: S608 - constants
        f"AND rows = 0 AND event_date >= {_DAY} AND event_time >= {_CLAIM} - 1"
    )


def _with_spans(more: str = "") -> str:
    """The part log, with the block numbers of the parts that hold rows now, of each partition."""
    return (
        "system.part_log LEFT JOIN (SELECT database, table, partition_id, "  # noqa: S608 - constants
        "groupArray((min_block_number, max_block_number)) AS spans FROM system.parts "
        f"WHERE active AND rows > 0{more} GROUP BY database, table, partition_id) AS shown "
        "USING (database, table, partition_id)"
    )


def _own(condition: str) -> str:
    """Of parts for which this holds: those of the block's own table, where its INSERTs made any."""
    return f"if(countIf(mine) > 0, countIf({condition} AND mine), countIf({condition}))"


_MERGES = "'MergeParts', 'MutatePart', 'DownloadPart'"
STAYS = (
    f"WITH tables AS (SELECT database, name, uuid, {ALTERED} AS altered FROM system.tables "  # noqa: S608 - constants
    f"WHERE {LISTED_HERE}), (SELECT groupArray(({_PARTITION}, {_MICROS})) FROM system.part_log "
    f"WHERE event_type = 'NewPart' AND error = 0 AND rows = 0 AND NOT ({_LATER}) "
    f"AND event_date >= {_DAY} AND event_time >= {_CLAIM} - 1) AS emptied "
    f"SELECT count(), {_own('there')}, {_own('uuid_there AND NOT there_by_name')}, "
    f"{_own('vanished')} "
    "FROM (SELECT (database, table, table_uuid) IN (SELECT database, name, uuid FROM tables) "
    "AS there_by_name, table_uuid IN (SELECT uuid FROM tables) AS uuid_there, "
    f"(there_by_name AND {_PARTITION} NOT IN (SELECT {_PARTITION} "
    "FROM system.part_log WHERE event_type = 'NewPart' AND error = 0 AND rows = 0 "
    f"AND {_LATER})) AS kept, "
    "(empty(table_uuid) AND (database, table) IN (SELECT database, name FROM tables "
    "WHERE (altered + 1) * 1000000 > {ended:Int64})) AS another, "
    f"kept AND (another OR NOT {_COVERED} "
    f"AND {_PARTITION} NOT IN ({_emptied(_MERGES)})) AND NOT dropped AS vanished, "
    "kept AND NOT (vanished OR dropped) AS there, "
    f"arrayExists(one -> one.1 = {_PARTITION} AND one.2 > {_MICROS}, emptied) AS dropped, "
    f"({THIS_TABLE}) AS mine "
    f"FROM {_with_spans()} "
    f"WHERE event_type = 'NewPart' AND error = 0 AND rows > 0 AND NOT ({_LATER}) "
    f"AND query_id IN {{queries:Array(String)}} AND event_date >= {_DAY})"
)
"""Of parts that INSERTs {queries:Array(String)} made up to {ended:Int64}, in any table: how many
there were; and of those in the block's own table, where the INSERTs made any there: how many are
there still; in a table that has another name since; and that went unexplained. What a view wrote
into its target says nothing of the rows that the view read, and others may empty it as a matter of
course. A table that keeps no parts, as Null, Buffer and Distributed, has only those of others.

A table that is restored from a backup is another one, or was emptied before: DROP, DETACH and
TRUNCATE leave an empty part. REPLACE PARTITION and MOVE PARTITION TO TABLE leave no entry of what
they take, nor does a Replicated table of what is dropped. So a part has to be among those of
now that have rows: the number in its name, the third from the end, within one of them. Merges and
mutations keep it; where they left no row, by a TTL or a DELETE, there is an entry. In a database
of the engine Ordinary no table has a UUID: one that was defined since may be another."""
PARTS = (
    "SELECT countIf(new AND rows > 0), countIf(new AND (rows = 0 OR NOT mine) OR vanished), "  # noqa: S608 - constants
    "countIf(patch), countIf(NOT new AND rows = 0), countIf(vanished) FROM ("
    "SELECT rows, event_type = 'NewPart' AS new, table_uuid IN (SELECT uuid FROM system.tables "
    "WHERE database = {database:String} AND name = {name:String}) AS mine, "
    "new AND rows > 0 AND startsWith(part_name, 'patch-') AS patch, "
    f"new AND rows > 0 AND mine AND NOT patch AND NOT {_COVERED} "
    f"""AND {_PARTITION} NOT IN ({_emptied(f"'NewPart', {_MERGES}")}) AS vanished """
    f"FROM {_with_spans(f' AND {THIS_TABLE}')} WHERE error = 0 "
    f"AND event_type IN ('NewPart', 'MergeParts', 'DownloadPart') AND {THIS_TABLE} "
    f"AND event_date >= {_DAY} AND event_time >= {_CLAIM} - 1)"
)
"""Parts that INSERTs made; and those that are gone, with their tokens. Empty ones cover what DROP
or DETACH PARTITION, TRUNCATE and the like take away; another table of this name took its own.
Others vanished, as at REPLACE and MOVE PARTITION (see STAYS), and the table may have their tokens.
Patches are what lightweight updates and deletes leave. Of some merges nothing is left."""
STARTED = "toUnixTimestamp(now()) - uptime()"
"""SQL: the Unix second when the server was started that answers."""


def tables_parameters(tables: Collection[str]) -> dict[str, list[str]]:
    """Return `databases` and `names` of tables, to be bound in a statement."""
    pairs = [names.split_table(table) for table in sorted(tables)]
    return {"databases": [pair[0] for pair in pairs], "names": [pair[1] for pair in pairs]}


def databases_of(places: Iterable[str]) -> list[str]:
    """Return each name that the database of one of these tables can have.

    A question that names databases by themselves asks no other server for its tables. Names of a
    database or a table may have dots, as those of views' own tables do. `places`: as
    database.table, not quoted.
    """
    return sorted({place[:at] for place in places for at, c in enumerate(place) if c == "."})


def counter_sql(kind: Counter) -> str:
    """Return the insert counter of {database:String}.{name:String} as an SQL expression."""
    return f"({_COUNTERS[kind]} WHERE {THIS_TABLE})"


def shape_sql() -> str:
    """Return the hash of {database:String}.{name:String}'s columns as an SQL expression."""
    return f"(SELECT {SHAPE} FROM system.columns WHERE {THIS_TABLE})"  # noqa: S608 - constants


def rows_of_blocks(table: str, stamp: str, more: str) -> str:
    """Return the statement that counts a table's rows of {blocks:Array(String)}: (id, rows).

    `stamp`: name of the block-id column; `more`: SETTINGS.
    """
    column = quoted(stamp)
    return (
        f"SELECT (toString({column}), count()) AS one FROM {quoted_table(table)} "  # noqa: S608 - names are quoted, values bound
        f"WHERE {column} IN {{blocks:Array(String)}} GROUP BY {column}{more}"
    )


def altered_sql() -> str:
    """Return when {database:String}.{name:String} was last altered, in seconds, as SQL."""
    return f"(SELECT {ALTERED} FROM system.tables WHERE {THIS_TABLE})"  # noqa: S608 - constants
