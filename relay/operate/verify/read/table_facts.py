"""Reads what a table is, and which rows of it were removed.

All but the table's own definition is optional, as a user may lack the rights and a server the logs.
Never writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from relay import names
from relay.clickhouse.hidden_rows import PLAN, condition
from relay.clickhouse.quoting import quoted_table
from relay.clickhouse.removing_statements import STOPPED_WAITING, may_lack, target
from relay.clickhouse.replicas import is_shared
from relay.clickhouse.table_engine import KEPT_SETTING, TableEngine
from relay.clickhouse.table_keys import TableKeys
from relay.operate.verify.judge.table_facts import Removal, TableFacts, removal
from relay.operate.verify.read.optional import Optional

_TABLE = """
SELECT engine, engine_full, create_table_query, toString(uuid),
    arrayMap((d, t) -> d || '.' || t, dependencies_database, dependencies_table),
    sorting_key, partition_key
FROM system.tables WHERE database = {database:String} AND name = {name:String}
"""
_DEFAULTS = """
SELECT name, default_expression FROM system.columns
WHERE database = {database:String} AND table = {name:String}
"""
_EARLIEST = 86_400
"""ClickHouse does not read 0 as a time."""
_REPLICAS = """
SELECT total_replicas FROM system.replicas
WHERE database = {database:String} AND table = {name:String}
"""
_MUTATIONS = """
SELECT toUnixTimestamp(create_time) * 1000 + 999, command, mutation_id FROM system.mutations
WHERE database = {database:String} AND table = {name:String}
"""
_FINISHED = """
SELECT countIf(is_done), toUnixTimestamp(minIf(create_time, is_done)) FROM system.mutations
WHERE database = {database:String} AND table = {name:String}
"""
_KEEPS = "SELECT any(value) FROM system.merge_tree_settings WHERE name = {setting:String}"
# Of one that failed the log names no tables: its text does.
_STATEMENTS = """
SELECT toUnixTimestamp64Milli(event_time_microseconds), query, type = 'QueryFinish',
    current_database
FROM system.query_log
WHERE is_initial_query AND event_date >= toDate({since:DateTime}) - 1
AND query_kind IN ('Alter', 'Delete', 'Drop', 'Truncate', 'Rename', 'Create', 'Restore', 'Update',
    'Optimize')
AND (query_kind != 'Create' OR match(query, '(?i)REPLACE'))
AND (query_kind != 'Optimize' OR match(query, '(?i)DEDUPLICATE'))
AND ((exception_code IN {stopped:Array(Int32)} AND position(query, {name:String}) > 0)
    OR (type = 'QueryFinish' AND (has(tables, {table:String})
        OR (empty(tables) AND has(databases, {database:String}))
        OR (query_kind = 'Restore' AND position(query, {name:String}) > 0))))
"""
# The rows of a part that was merged or mutated are in another, which has its block numbers; those
# of one that was dropped, detached or moved away are not, whoever did it, on whichever replica.
_PARTS = """
SELECT toUnixTimestamp64Milli(max(event_time_microseconds)), partition_id, sum(rows)
FROM (
    SELECT event_time_microseconds, partition_id, rows, splitByChar('_', part_name) AS numbers
    FROM system.part_log
    WHERE event_type = 'RemovePart' AND rows > 0 AND error = 0
    AND event_date >= toDate({since:DateTime}) - 1
    AND database = {database:String} AND table = {name:String} AND table_uuid = {uuid:UUID}
    AND part_name NOT IN (
        SELECT arrayJoin(merged_from) FROM system.part_log
        WHERE event_type IN ('MergeParts', 'MutatePart') AND error = 0
        AND event_date >= toDate({since:DateTime}) - 1
        AND database = {database:String} AND table = {name:String} AND table_uuid = {uuid:UUID})
) AS removed
LEFT JOIN (
    SELECT partition_id, groupArray(min_block_number) AS mins, groupArray(max_block_number) AS maxs
    FROM system.parts
    WHERE active AND rows > 0 AND database = {database:String} AND table = {name:String}
    GROUP BY partition_id
) AS now USING (partition_id)
WHERE NOT arrayExists(
    (low, high) -> low <= toInt64OrZero(numbers[2]) AND high >= toInt64OrZero(numbers[3]),
    mins, maxs)
GROUP BY partition_id, toUnixTimestamp(event_time_microseconds)
"""
_EXPIRED = """
SELECT toUnixTimestamp64Milli(max(event_time_microseconds)) FROM system.part_log
WHERE merge_reason IN ('TTLDeleteMerge', 'TTLDropMerge') AND event_type = 'MergeParts'
AND event_date >= toDate({since:DateTime}) - 1
AND database = {database:String} AND table = {name:String}
HAVING count() > 0
"""
_RECORDS = ("system.mutations", "system.query_log (statements)", "system.part_log (parts)")


class TableAsking:
    """Questions about tables.

    Raises (every method):
        ClickHouseError: the server did not answer at all.
    """

    def __init__(self, optional: Optional, block_column: str) -> None:
        self._optional, self._block_column = optional, block_column

    def facts(self, table: str, since_ms: int, *, acknowledged: bool = False) -> TableFacts:
        """Return what the server says of a table; removals before `since_ms` touched no block."""
        database, name = names.split_table(table)
        place = {"database": database, "name": name}
        rows = self._optional.ask("system.tables", _TABLE, **place)
        if not rows:
            return TableFacts(filtered=None, acknowledged=acknowledged)
        engine, full, create, uuid, views, sorting, partition = rows[0]
        defaults = self._optional.ask("system.columns", _DEFAULTS, **place)
        since = {"since": max(since_ms // 1000, _EARLIEST)}
        definition, replicas = TableEngine(engine, full), self._replicas(engine, place)
        found = self._removals(table, definition, {**place, "uuid": uuid, **since})
        removals = tuple(sorted(filter(None, found), key=lambda removal: removal.at_ms))
        return TableFacts(
            engine,
            full,
            create,
            self._filtered(table),
            tuple(views),
            replicas,
            removals,
            acknowledged,
            TableKeys(sorting, partition, dict(defaults or ())),
            self._forgotten(definition, place, replicas),
        )

    def unasked(self) -> str:
        """Return why removals may not be known; empty: they are, as far as the server knows."""
        unanswered = self._optional.unanswered
        return "; ".join(unanswered[what] for what in _RECORDS if what in unanswered)

    def _forgotten(
        self, definition: TableEngine, place: dict[str, str], replicas: int | None
    ) -> int:
        """Return TableFacts.forgotten_ms.

        The query log has the statements of this server alone, and the server may keep none.
        """
        mutations, statements, _ = _RECORDS
        if replicas == 1 and statements not in self._optional.unanswered:
            return 0
        rows = self._optional.ask(mutations, _FINISHED, **place)
        finished, oldest = map(int, rows[0]) if rows else (0, 0)
        if not finished:
            return 0
        default = self._optional.ask("system.merge_tree_settings", _KEEPS, setting=KEPT_SETTING)
        keeps = definition.kept_mutations(default[0][0] if default else "")
        return oldest * 1000 + 999 if may_lack(finished, oldest, 0, keeps) else 0

    def _filtered(self, table: str) -> bool | None:
        rows = self._optional.ask("EXPLAIN", PLAN + quoted_table(table))
        return None if rows is None else bool(condition(row[0] for row in rows))

    def _replicas(self, engine: str, place: dict[str, str]) -> int | None:
        if not is_shared(engine):
            return 1
        rows = self._optional.ask("system.replicas", _REPLICAS, **place)
        return int(rows[0][0]) if rows else None

    def _removals(
        self, table: str, definition: TableEngine, place: dict[str, object]
    ) -> Iterator[Removal | None]:
        read = partial(
            removal, block_column=self._block_column, ttl_only_moves=definition.ttl_only_moves
        )
        mutations, statements, parts = _RECORDS
        for at_ms, command, name in self._optional.ask(mutations, _MUTATIONS, **place) or ():
            yield read(at_ms, command, mutation=name)
        about = {**place, "table": table, "stopped": list(STOPPED_WAITING)}
        this = place["database"], place["name"]
        for at_ms, text, done, ran_in in self._optional.ask(statements, _STATEMENTS, **about) or ():
            if done or target(text, ran_in) == this:
                yield read(at_ms, text)
        for at_ms, partition, rows in self._optional.ask(parts, _PARTS, **place) or ():
            yield Removal(at_ms, f"parts of partition {partition} with {rows} rows were removed")
        for (at_ms,) in self._optional.ask("system.part_log (TTL)", _EXPIRED, **place) or ():
            yield Removal(at_ms, "rows expired by a TTL")
