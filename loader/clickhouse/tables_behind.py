"""Which tables an INSERT fills by views, and whether these still remember its token.

Receives a way to ask one server and a table, gives tables, and how many parts may follow. Never
writes; raises what `ask` raises. Each table that a view fills forgets tokens by a window of its
own: one that is partitioned by the hour gets many parts of one block, and one that other tables
fill, too, gets theirs.

Some tables take rows without an entry in the server's part log. A Distributed table sends rows to
other servers, which have them in logs of their own, under other query ids; Log, Memory, Kafka and
the like have no parts; and a view behind the table may write into any of these. Nor has a part of a
Replicated table an entry where Keeper did not answer its INSERT
(loader.clickhouse.unconfirmed_parts): it may be there.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from loader.clickhouse.table_state_sql import ALTERED, databases_of
from loader.core.table_rules import nature
from relay.clickhouse.quoting import unquoted
from relay.clickhouse.table_engine import LISTED_HERE, TableEngine, split_items, view_target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from loader.clickhouse.ledger import Claimed
    from loader.clickhouse.server_records import ServerRecords

    Ask = Callable[..., list[Sequence[Any]] | None]
    """Takes a statement, a Unix time in ms that it may not use, and its parameters by name; gives
    rows, or None where this user may not ask."""

KEEPS_NOTHING = "Null"
SHOWN_BY = "(the user may need SHOW TABLES on it)"
UNSEEN = f", which is not seen here {SHOWN_BY}"
"""Behind a name: whether it is a table that remembers tokens, and has views, is not known."""
_UNBOUND = 1 << 62
_GIVES_TO = {"Alias": 0, "Buffer": 0, "Distributed": 1}
"""Which of the engine's arguments is the database of the table that gets its rows; the next one is
that table."""
_UNKNOWN_STATUS = 319
_GIVEN_UP = frozenset({159, 394, 735})
"""What ends an INSERT of a Replicated table while Keeper is waited for: it took too long, was
killed, or its client went. After an error of Keeper itself (999, 225, 242) there is no part."""
_VIEW = "MaterializedView"
_TABLES = (
    "SELECT database, name, engine, toString(uuid), create_table_query, "  # noqa: S608 - a constant
    "arrayZip(dependencies_database, dependencies_table), engine_full, partition_key, "
    f"{ALTERED} FROM system.tables "
    "WHERE database IN {databases:Array(String)} "
    "AND database || '.' || name IN {tables:Array(String)}"
)
_VIEWS = (
    "SELECT database, name, toString(uuid), create_table_query FROM system.tables "  # noqa: S608 - a constant
    f"WHERE engine = '{_VIEW}' AND {LISTED_HERE}"
)
_NUMBERED = (
    "SELECT max(max_block_number) - maxIf(max_block_number, "
    "modification_time < fromUnixTimestamp64Milli({since:Int64}) - 1) FROM system.parts "
    "WHERE database = {database:String} AND table = {name:String}"
)
"""A MergeTree numbers the parts of INSERTs; those since the claim have greater numbers than any of
before, and are there, or in a part that they were merged into since."""


class ReachedTable(NamedTuple):
    """A table that takes rows of an INSERT; all but its name is empty where it is not seen.

    `altered`: Unix seconds, by the server's clock, of the last change of its definition; `ways`:
    the same of the views by which rows come here, by name.
    """

    database: str
    name: str
    engine: str = ""
    uuid: str = ""
    create: str = ""
    views: Sequence[tuple[str, str]] = ()
    full: str = ""
    partition: str = ""
    altered: int = 0
    ways: Mapping[str, int] = MappingProxyType({})

    @property
    def place(self) -> str:
        """As database.table, not quoted."""
        return f"{self.database}.{self.name}"

    @property
    def target(self) -> str:
        """Of a materialized view, the table that gets its rows."""
        return ".".join(view_target(self.database, self.name, self.uuid, self.create))

    @property
    def location(self) -> Mapping[str, str]:
        """As parameters of a statement."""
        return {"database": self.database, "name": self.name}


def reached(ask: Ask, table: str) -> Iterator[ReachedTable]:
    """Yield the table and each that a view behind it fills, and so on; not the views.

    A table that rows reach in several ways may come more than once, the last time with all.
    """
    ways: dict[str, Mapping[str, int]] = {table: {}}
    places = {table}
    while places:
        rows = ask(_TABLES, 0, tables=sorted(places), databases=databases_of(places))
        tables = [ReachedTable(*row) for row in rows or ()]
        for hidden in sorted(places - {taker.place for taker in tables}):
            database, _, name = hidden.partition(".")
            yield ReachedTable(database, name)
        places = set()
        for taker in tables:
            way, next_places = ways[taker.place], [".".join(view) for view in taker.views]
            if taker.engine == _VIEW:
                way = {**way, taker.place: taker.altered}
                next_places.append(taker.target)
            else:
                yield taker._replace(ways=way)
            for place in next_places:
                before = ways.get(place)
                ways[place] = {**(before or {}), **way}
                if ways[place] != before:
                    places.add(place)


def unlogged(ask: Ask, table: str, codes: Collection[int] = ()) -> str:
    """Return why the part log may lack what INSERTs into the table wrote; "": it has all.

    `codes`: ClickHouse's, of the errors that the INSERTs ended in.
    """
    if _UNKNOWN_STATUS in codes:
        return "Keeper did not answer one (UNKNOWN_STATUS_OF_INSERT, 319), and may have its rows"
    for taker in reached(ask, table):
        engine = TableEngine(taker.engine)
        if not taker.engine:
            return f"whether {taker.place} is a MergeTree is not known {SHOWN_BY}"
        if engine.is_replicated and (given_up := _GIVEN_UP.intersection(codes)):
            ended = f"one ended (error {min(given_up)}) while Keeper may have had its rows"
            return f"{taker.place} is a {taker.engine}, and {ended}"
        if taker.engine != KEEPS_NOTHING and not engine.is_merge_tree:
            return f"{taker.place} is a {taker.engine}, of whose rows the part log tells nothing"
    return ""


def with_unseen(ask: Ask, table: str, views: Sequence[str]) -> tuple[str, ...]:
    """Return the table's views, and what is not seen behind it, with the right that shows it."""
    hidden = {taker.place: UNSEEN for taker in reached(ask, table) if not taker.engine}
    return tuple(place + hidden.get(place, "") for place in dict.fromkeys([*views, *hidden]))


def views_of_takers(ask: Ask, table: str) -> tuple[str, ...]:
    """Return the views that read what this table gives to others, or what is not known of them.

    Its own views are not meant. Each shard of a Distributed table is taken to have the tables and
    views of this server.
    """
    place, known = table, {table}
    while True:
        rows = ask(_TABLES, 0, tables=[place], databases=databases_of([place]))
        if not rows:
            return (f"any of {place}{UNSEEN}",)
        giver = ReachedTable(*rows[0])
        if giver.views and place != table:
            return tuple(".".join(view) for view in giver.views)
        if not nature(giver.engine, giver.full, {}).forwards:
            return ()
        place = _taker(giver)
        if not place or place in known:
            return (f"any of the tables behind {giver.place}, a {giver.engine}",)
        known.add(place)


def _taker(giver: ReachedTable) -> str:
    """The table that gets the rows of this one; empty: it is not known which."""
    if giver.engine == _VIEW:
        return giver.target
    _, _, arguments = giver.full.partition("(")
    names = [unquoted(item.strip(), "`'") for item in split_items(arguments)]
    if giver.engine == "Alias" and len(names) == 1:
        names.insert(0, giver.database)
    index = _GIVES_TO.get(giver.engine, len(names))
    pair = names[index : index + 2]
    return ".".join(pair) if len(pair) == 2 and all(pair) else ""


class Repeat(NamedTuple):
    """A block's INSERT that may be sent again.

    Attributes:
        table: of the block.
        stamp: name of the block-id column.
        claimed: the oldest claim.
        inserted: the most parts that came into the table since.
        untouched: none did, and none went without a trace.
    """

    table: str
    stamp: str
    claimed: Claimed
    inserted: int
    untouched: bool


def room_behind(
    evidence: ServerRecords,
    repeat: Repeat,
    margin: Callable[[str, str], int],
    agree: Callable[[Collection[str]], bool],
) -> int:
    """Return how many parts may yet come while all tables that views fill remember a token.

    Or have nothing that it would keep out. Below 0: one of them may have forgotten it. `margin`:
    gives how many parts may follow an INSERT into a table of this engine and engine_full; `agree`:
    whether rows by way of these views have the same token on whichever replica.
    """
    rooms, claimed, ways, shared = [_UNBOUND], repeat.claimed, set[str](), False
    for table in reached(evidence.ask, repeat.table):
        engine = TableEngine(table.engine)
        if table.place == repeat.table:
            shared = engine.is_replicated  # else all rows come by this server
            continue
        if table.engine == KEEPS_NOTHING:
            continue
        if not engine.is_merge_tree:  # it has no tokens, or is not seen
            return -1
        if repeat.untouched and not table.partition:
            # An INSERT's last part waits in each table for the end of the one before.
            continue
        came = _came(evidence, table, repeat)
        if came == 0 and not engine.is_replicated:
            continue  # nor has it the block's rows; of a replica, Keeper may have them
        # Its rows have another token once a view's query is altered, or its name is another one.
        altered = max([table.altered, *table.ways.values()])
        if came is None or came < 0 or claimed.may_precede(altered):
            return -1
        if evidence.deletes(table.location, claimed.at_ms, repeat.stamp):
            return -1  # a part that a mutation empties goes, and its token with it
        ways.update(table.ways if engine.is_replicated else ())
        rooms.append(margin(table.engine, table.full) - came)
    room = min(rooms)
    if room >= 0 and shared and ways and not agree(ways):  # once, and last: it asks each replica
        return -1
    return room


def _came(evidence: ServerRecords, table: ReachedTable, repeat: Repeat) -> int | None:
    """The most parts that came into the table since the claim; None where nothing bounds them.

    -1: some may be gone, with their tokens.
    """
    logged = _logged(evidence, table, repeat.claimed.at_ms)
    if logged is not None:
        return logged
    if table.partition and not repeat.untouched:
        return None
    targets = [view_target(*view) for view in evidence.ask(_VIEWS, 0) or ()]
    if targets.count((table.database, table.name)) != 1:
        return None
    if table.partition and not TableEngine(table.engine).is_replicated:
        return _numbered(evidence, table, repeat.claimed.at_ms)
    # It gets a part of each that the first table gets. Where that got none, it has the block's own
    # at most, for whose partitions half of a replica's window is enough.
    return max(repeat.inserted, 1)


def _logged(evidence: ServerRecords, table: ReachedTable, since_ms: int) -> int | None:
    """Parts that came into the table since then; None where the log may lack some.

    -1: some may be gone, with their tokens.
    """
    engine = TableEngine(table.engine, table.full)
    parts = None
    if not (engine.is_replicated and evidence.elsewhere({table.place})):
        parts = evidence.parts(table.location, since_ms)
    if parts is None:
        # A view's table mostly sums, and a whole part of zeros is rare: only a log tells of that.
        return -1 if "Collapsing" in engine.merging else None
    rules = nature(table.engine, table.full, {})
    if parts.dropped or (parts.inserted and rules.forgets(parts.emptied)):
        return -1
    return parts.inserted


def _numbered(evidence: ServerRecords, table: ReachedTable, since_ms: int) -> int | None:
    """Parts that came into a MergeTree since then, by its parts; None where some may be gone."""
    rules = nature(table.engine, table.full, {})
    if rules.cancels or rules.expires:
        return None
    rows = evidence.ask(_NUMBERED, since_ms, **table.location)
    return int(rows[0][0]) if rows else None
