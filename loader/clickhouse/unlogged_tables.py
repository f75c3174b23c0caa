"""Which tables take rows of an INSERT without an entry in the server's part log.

Receives a way to ask one server and a table, gives why no entry proves nothing. Never writes. A
Distributed table sends rows to other servers, which have them in logs of their own, under other
query ids; Log, Memory, Kafka and the like have no parts; and a view behind the table may write
into any of these. Nor has a part of a Replicated table an entry where Keeper did not answer its
INSERT (loader.clickhouse.unconfirmed_parts): it may be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relay.clickhouse.table_engine import TableEngine
from relay.clickhouse.view_target import view_target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    Ask = Callable[..., list[Sequence[Any]] | None]

_TABLES = (
    "SELECT database, name, engine, toString(uuid), create_table_query, "
    "arrayZip(dependencies_database, dependencies_table) FROM system.tables "
    "WHERE database || '.' || name IN {tables:Array(String)}"
)
_KEEPS_NOTHING = "Null"
_UNKNOWN_STATUS = 319
_GIVEN_UP = frozenset({159, 394, 735})
"""What ends an INSERT of a Replicated table while Keeper is waited for: it took too long, was
killed, or its client went. After an error of Keeper itself (999, 225, 242) there is no part."""
_UNASKED = "and one ended (error {}) while Keeper may have had its rows"


def unlogged(ask: Ask, table: str, codes: Collection[int] = ()) -> str:
    """Return why the part log may lack what INSERTs into the table wrote; "": it has all.

    Args:
        ask: a statement, a Unix time in ms that it does not use, and its parameters by name; gives
            rows, or None where this user may not ask.
        table: as database.table.
        codes: ClickHouse's, of the errors that the INSERTs ended in.

    Raises:
        Unavailable, Refused: as `ask`.
    """
    if _UNKNOWN_STATUS in codes:
        return "Keeper did not answer one (UNKNOWN_STATUS_OF_INSERT, 319), and may have its rows"
    seen: set[str] = set()
    reached = {table}
    while reached:
        rows = ask(_TABLES, 0, tables=sorted(reached)) or []
        if hidden := reached - {f"{database}.{name}" for database, name, *_ in rows}:
            listed = ", ".join(sorted(hidden))
            return f"whether {listed} is a MergeTree is not known (this user does not see it)"
        seen |= reached
        reached = set()
        for database, name, engine, uuid, create, dependents in rows:
            if engine == "MaterializedView":
                reached.add(".".join(view_target(database, name, uuid, create)))
            elif TableEngine(engine).is_replicated and (given_up := _GIVEN_UP.intersection(codes)):
                return f"{database}.{name} is a {engine}, {_UNASKED.format(min(given_up))}"
            elif engine != _KEEPS_NOTHING and not TableEngine(engine).is_merge_tree:
                return f"{database}.{name} is a {engine}, of whose rows the part log tells nothing"
            reached |= {f"{of}.{view}" for of, view in dependents}
        reached -= seen
    return ""
