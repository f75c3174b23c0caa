"""Whether a replica may yet drop rows that it shows, or show rows that it has still to fetch.

Receives a way to ask one server, a table and a block; gives why. Never writes; raises what `ask`
raises. Where Keeper does not answer an INSERT, the replica keeps the part, and the statement ends
in UNKNOWN_STATUS_OF_INSERT (319), or as one that was killed or took too long: whoever asks this
replica sees the rows. Some 300 s later it asks Keeper, and drops the part if Keeper does not have
it. Until then the part is one of its `parts_to_check`. Of rows that a table such as Distributed
gave to others no replica is known that could be asked: they are no proof until it has looked,
however many there are. And to a replica that lags behind, is new, or was set up anew on an empty
disk, rows of others are still to come: that it shows fewer than a block has proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loader.clickhouse.table_state_sql import LOG_COUNTER, THIS_TABLE
from loader.core.entries import earliest
from relay import names
from relay.clickhouse.http_pool import in_urls
from relay.clickhouse.quoting import quoted, quoted_table, table_parameters
from relay.clickhouse.replica_log import MAY_HAVE_READ_LOG, READ_WHOLE_LOG, SEES_LOGS, empty_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loader.clickhouse.ledger import Claimed
    from loader.core.plan import Human
    from relay.records_pb2 import Block

    Ask = Callable[..., list[Sequence[Any]] | None]
    """Takes a statement, and parameters by name; gives rows, None where this user may not ask."""

_STATE = (
    f"SELECT {LOG_COUNTER}, multiIf("  # noqa: S608 - constants
    "zookeeper_exception != '' OR is_session_expired, 'has no session with Keeper', "
    "is_readonly, 'is read-only', parts_to_check > 0, 'has still to check a part', '') "
    f"FROM system.replicas WHERE {THIS_TABLE}"
)
MAY_DROP = (
    "SELECT count() FROM system.replicas WHERE (is_session_expired OR is_readonly "  # noqa: S608 - constants
    f"OR parts_to_check > 0) AND {THIS_TABLE}"
)
"""SQL: 1 where a replica may drop rows of a table that it shows. It asks nothing of Keeper."""
_CLOCKS_SECONDS = 60
"""By how much a replica's clock may be behind the one that dates claims."""
LOOKED_SECONDS = 600
"""After an INSERT's end, as long as a replica takes to look for its part in Keeper, and as long
again: it may be busy, and the INSERT's end is not known to the second."""
_LAST = (
    "SELECT toFloat64(now64(3)) - toFloat64(event_time_microseconds) FROM system.query_log "  # noqa: S608 - constants
    f"WHERE {names.is_of_block('log_comment')} AND query_kind = 'Insert' "
    "AND event_date >= toDate32(fromUnixTimestamp64Milli({since:Int64})) - 1 ORDER BY 1 LIMIT 1"
)
"""Seconds since an INSERT of the block began or ended last; the log was flushed just before."""
_UNKNOWN = (
    "whether the replica keeps its rows, and has fetched all of them, is not known (the user needs "
    "SELECT on system.replicas)"
)
_DATES_SECONDS = 27 * 3600
"""By how much the date of a queue's entry may be wrong. ClickHouse keeps it as text without a time
zone, in that of the server or session that inserts, and reads it in that of the one that asks."""
FRUITLESS_SECONDS = 3600
"""After an INSERT: for its part, if it cannot be fetched by then, a person's word does not wait."""
_FETCHED = f"""
SELECT
    (SELECT groupArray(({READ_WHOLE_LOG}, {MAY_HAVE_READ_LOG}, zookeeper_name, zookeeper_path))
     FROM system.replicas WHERE {THIS_TABLE}),
    (SELECT groupArray(one) FROM (QUEUE)),
    (SELECT groupArray(one) FROM (ROWS))
"""  # noqa: S608 - constants
"""ClickHouse answers the subqueries one after the other: the log is read whole, no part of what was
in it is left to fetch, and these are the rows then. One statement, so that one server answers,
whichever stands behind the address. An entry stays in the queue until its part is there."""
_DATED_QUEUE = f"""
SELECT (new_part_name, toString(create_time, 'UTC')) AS one FROM system.replication_queue
WHERE {THIS_TABLE} AND type IN ('GET_PART', 'ATTACH_PART')
    AND (toUnixTimestamp(create_time) >= {{since:Int64}} OR toUnixTimestamp(create_time) = 0)
    AND NOT ({{vain:Int64}} >= 0 AND last_exception != '' AND create_time <= now() - {{vain:Int64}})
ORDER BY create_time LIMIT 1
"""  # noqa: S608 - constants
"""The oldest part to fetch of those that may have rows of the blocks. An entry has the date of the
INSERT. One that a replica makes itself, for a part that it lost or as it is new, has that of the
part in Keeper, which is not older than its rows, or none. So what is dated before the blocks were
sealed, such as a part that a replica has which is gone, has none of theirs."""
_WHOLE_QUEUE = f"""
SELECT (oldest_part_to_get, toString(inserts_oldest_time, 'UTC')) AS one
FROM system.replicas WHERE {THIS_TABLE} AND inserts_in_queue > 0
"""  # noqa: S608 - constants
"""The oldest part to fetch of all, for a user who may not read system.replication_queue."""


class ReplicaState(NamedTuple):
    """What a replica says of a table.

    Attributes:
        newest: the insert counter; -1: it is not known.
        doubt: why it may have rows that Keeper does not; "": it has none.
        passing: whether it finds out by itself.
    """

    newest: int
    doubt: str = ""
    passing: bool = True


def replica_state(ask: Ask, table: str, since: int) -> ReplicaState:
    """Return the insert counter of a Replicated table, and whether all of its rows are Keeper's.

    Ask before the rows are counted: what is checked by now was dropped, or stays.

    `since`: the insert counter before the oldest claim; -1: it is not known.
    """
    rows = ask(_STATE, **table_parameters(table))
    if rows is None:
        return ReplicaState(-1, _UNKNOWN, passing=False)
    if not rows:  # a SharedMergeTree, whose parts are Keeper's
        return ReplicaState(-1)
    newest, doubt = int(rows[0][0]), str(rows[0][1])
    if not doubt and 0 < since == newest:  # 0: of an empty log, and of one with a single entry
        return ReplicaState(newest, "has no entry of any INSERT since in its replication log")
    return ReplicaState(newest, doubt)


def why_unconfirmed(
    ask: Ask, state: ReplicaState, table: str, block: str, stamp: str, since_ms: int
) -> str:
    """Return why rows of the block may yet be dropped; "": they stay.

    `state`: before the rows were counted; `stamp`: name of the block-id column; `since_ms`: Unix
    time of the oldest claim.
    """
    if not state.doubt or not state.passing:
        return state.doubt
    since = since_ms // 1000 - _CLOCKS_SECONDS
    rows = ask(_recent(table, stamp), block=block, since=since, **table_parameters(table))
    if rows is not None and not rows[0][0]:
        return ""
    return (
        f"its rows are there, but the replica that shows them {state.doubt}: it drops them if "
        "Keeper does not have them"
    )


def count_fetched(
    ask: Ask, counting: str, blocks: Sequence[Block], human: Human
) -> tuple[dict[str, int], str]:
    """Count rows by block id, and return why the replica that did may have others to fetch.

    "": it has all that was inserted before, so that none are missing. What others insert just now
    is in its queue for a moment, too: ask again. `counting`:
    loader.clickhouse.table_state_sql.rows_of_blocks. A person's word (`human`) does not wait for a
    part which is an hour old and cannot be fetched, as no replica that runs has it.
    """
    is_settling = human in {"absent", "loaded", "discard"}
    parameters: dict[str, Any] = {
        "since": min(map(earliest, blocks)) // 1000 - _DATES_SECONDS,
        "vain": FRUITLESS_SECONDS if is_settling else -1,
        **table_parameters(blocks[0].table),
    }
    total: dict[str, int] = {}
    for some in in_urls([block.id for block in blocks], len):
        for queue in (_DATED_QUEUE, _WHOLE_QUEUE):
            sql = _FETCHED.replace("QUEUE", queue).replace("ROWS", counting)
            if (rows := ask(sql, blocks=some, **parameters)) is not None:
                break
        else:
            return {}, _UNKNOWN
        ((replicas, queued, counted),) = rows
        total |= dict(counted)
        # There is none of a SharedMergeTree, whose parts are Keeper's.
        if doubt := _why_behind(ask, queued, *replicas[0]) if replicas else "":
            return {}, f"rows of it are missing, but the replica that was asked {doubt}"
    return total, ""


def _why_behind(
    ask: Ask,
    queued: Sequence[tuple[str, str]],
    has_read: int,
    may_have_read: int,
    keeper: str,
    path: str,
) -> str:
    """Return what a replica lacks of what others inserted; "": nothing."""
    if queued:
        part, since = queued[0]
        return (
            f"has still to fetch parts, {part} since {since} UTC for the longest "
            "(system.replication_queue tells why)"
        )
    if has_read:
        return ""
    if not may_have_read:
        return "has no session with Keeper, or has not read its replication log to the end"
    # An empty log shows the same numbers as one with a single entry that is not read.
    if ask(empty_logs(keeper), paths=[path], keeper=keeper):
        return ""
    return (
        "may not have read the first entry of its replication log (the user needs "
        f"{SEES_LOGS} on system.zookeeper to tell)"
    )


def compare_counts(
    block: str,
    counted: int,
    whole: tuple[Mapping[str, int], str],
    count: Callable[[], Mapping[str, int]],
) -> tuple[str, str]:
    """Return why a count of fewer rows than a block has proves nothing, and why others may come.

    "": it proves it, and none come. Masked rows stay masked; what was fetched between the two
    counts is shown from then on. `counted`: the block's rows, as queries show them; `whole`: what
    was counted next, masked rows too, as of `count_fetched`; `count`: counts once more as at first.
    """
    again, lacks = whole
    if lacks or again.get(block, 0) == counted:
        return "", lacks
    came = count().get(block, 0) > counted
    return (
        "queries now show other rows of it than a moment ago, or masked ones",
        "more of its rows are shown than a moment ago" if came else "",
    )


def why_unlooked(ask: Ask, block: str, claimed: Claimed) -> str:
    """Return why rows that a table gave to others may yet be dropped; "": they stay.

    Where no log tells of the block's INSERTs, its oldest claim has to be old enough: a later one
    may have inserted nothing, as each attempt that waits here claims the block.

    `ask`: takes a Unix time in ms behind the statement.
    """
    rows = ask(_LAST, claimed.at_ms, block=block)
    seconds = min([claimed.seconds, *(float(row[0]) for row in rows or ())])
    if seconds >= LOOKED_SECONDS:
        return ""
    return (
        "its rows are there, but in tables behind this one, whose replicas may yet drop rows of an "
        f"INSERT that Keeper did not answer: they count {LOOKED_SECONDS / 60:.0f} minutes after it"
    )


def _recent(table: str, stamp: str) -> str:
    """SQL that counts rows of a block in parts that INSERTs since the claim may have left.

    What was merged since was in Keeper before.
    """
    return (
        f"SELECT count() FROM {quoted_table(table)} WHERE {quoted(stamp)} = {{block:String}} "  # noqa: S608 - names are quoted, values bound
        "AND _part IN (SELECT name FROM system.parts WHERE database = {database:String} "
        "AND table = {name:String} AND active AND level = 0 "
        "AND toUnixTimestamp(modification_time) >= {since:Int64})"
    )
