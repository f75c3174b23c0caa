"""Which blocks wait in the ledger: the questions in SQL, and what the answers say; pure.

Receives rows of the answers, gives values. A table may have a hundred thousand blocks that stand
aside, for days: so a loader asks for a few at a time, in the order in which they were set aside,
and goes round. Every one has its turn, wherever new ones come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loader.core import left_out
from loader.core.entries import ParkedEntry
from relay.names import LEFT_OUT
from relay.records_pb2 import Block

LETTERS = " dead letters"
"""Behind the table's name, of those of its blocks that take their turns apart."""
RESTS = "state IN ('parked', 'aside')"
_ORDER = "(state = 'loaded', state IN ('discarded', 'dead'), attempt, state != 'prepared', claim)"
_STATES = f"""
SELECT table, block, argMax(state, {_ORDER}) AS st,
    if(st = 'prepared' AND rested != '', rested, st) AS now,
    argMax(rows, {_ORDER}) AS n, argMaxIf(record, {_ORDER}, {RESTS}) AS rec,
    argMaxIf(record != '', {_ORDER}, {RESTS}) AS told,
    argMaxIf(reason, {_ORDER}, {RESTS}) AS why,
    argMaxIf(state, {_ORDER}, {RESTS}) AS rested, rested = 'aside' AS rest,
    groupUniqArrayIf(claim, state = 'prepared') AS claims,
    uniqExactIf(attempt, state = 'aside') AS nth,
    toUnixTimestamp64Milli(maxIf(at, {RESTS})) AS last,
    if(rest, toUnixTimestamp64Milli(minIf(at, state = 'aside')), last) AS since
FROM LEDGER WHERE app = {{app:String}} AND state != 'position' AND WHICH GROUP BY table, block
"""  # noqa: S608 - constants
_WAITING = _STATES.replace(
    "WHICH",
    f"block IN (SELECT block FROM LEDGER WHERE app = {{app:String}} AND {RESTS})",  # noqa: S608 - constants
)
_WAITS = "any(told) AND any(now) IN ('parked', 'aside')"
_ENTRY = (
    "any(rec), any(why), any(since), any(st) = 'prepared', any(rest), any(nth), any(last), "
    "any(claims)"
)
_ANY = _STATES.replace("WHICH", "1")
COUNTS = f"SELECT table, now, count(), sum(n) FROM ({_ANY}) GROUP BY table, now"  # noqa: S608 - constants
"""(table, state, blocks, rows); a block that is tried again stays what it was."""
ALL = f"SELECT {_ENTRY} FROM ({_WAITING}) GROUP BY block HAVING {_WAITS}"  # noqa: S608 - constants
"""Blocks parked or set aside, and not settled since, as `parse_entries` reads them."""
PARKED = f"{ALL} AND NOT any(rest)"
RECORDS = f"SELECT any(rec) FROM ({_WAITING}) GROUP BY block HAVING {_WAITS}"  # noqa: S608 - constants
_AT = "[indexOf({turns:Array(String)}, turn)]"
NEXT = f"""
SELECT turn, rest, count(), if(rest,
    arraySlice(arraySort(groupArray((behind, since, block))), 1, {{each:UInt32}}), []) AS found
FROM (
    SELECT table || if(endsWith(block, '{LEFT_OUT}'), '{LETTERS}', '') AS turn, rest, since,
        block, (since, block) <= ({{times:Array(Int64)}}{_AT}, {{ids:Array(String)}}{_AT}) AS behind
    FROM ({_WAITING}) WHERE told AND now IN ('parked', 'aside')
) GROUP BY turn, rest
"""  # noqa: S608 - constants
"""Of each turn how many blocks stand aside, and which are next; and how many blocks are parked."""
_CHOSEN = _STATES.replace("WHICH", f"block IN (SELECT arrayJoin(found).3 FROM ({NEXT}))")  # noqa: S608 - constants
NEXT_ENTRIES = f"SELECT {_ENTRY} FROM ({_CHOSEN}) GROUP BY block HAVING {_WAITS}"  # noqa: S608 - constants
"""The blocks that are next, as `parse_entries` reads them."""
Place = tuple[int, str]
"""When a block was set aside first, Unix ms by the server's clock, and its id."""


@dataclass(frozen=True, slots=True)
class Resting:
    """What waits in the ledger.

    Attributes:
        counts: blocks that stand aside, by turn.
        parked: blocks that wait for a person.
        next: the blocks of each turn that are next, in that order.
    """

    counts: Mapping[str, int]
    parked: int
    next: Sequence[ParkedEntry]


def turn(block: Block) -> str:
    """Return with which others a block takes turns: with those of its table that are like it."""
    return f"{block.table}{LETTERS if left_out.is_left_out(block) else ''}"


def next_parameters(after: Mapping[str, Place], each: int) -> dict[str, Any]:
    """Return the parameters of NEXT.

    `after`: by turn, the block that was tried last; `each`: how many of each turn.
    """
    return {
        "turns": list(after),
        "times": [since_ms for since_ms, _ in after.values()],
        "ids": [block for _, block in after.values()],
        "each": each,
    }


def parse_resting(rows: Iterable[Sequence[Any]], found: Iterable[Sequence[Any]]) -> Resting:
    """Parse rows of NEXT, and of NEXT_ENTRIES."""
    turns, by_id = list(rows), {entry.block.id: entry for entry in parse_entries(found)}
    ids = [name for *_, places in turns for *_, name in places]
    return Resting(
        {name: count for name, aside, count, _ in turns if aside},
        sum(count for _, aside, count, _ in turns if not aside),
        [by_id[name] for name in ids if name in by_id],  # the others were settled just now
    )


def parse_entries(rows: Iterable[Sequence[Any]]) -> list[ParkedEntry]:
    """Parse rows of ALL and its like, by block id."""
    parked = (ParkedEntry(left_out.read(record), *columns) for record, *columns in rows)
    return sorted(parked, key=lambda entry: entry.block.id)
