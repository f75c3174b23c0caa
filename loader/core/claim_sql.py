"""Which claim of a block holds, in SQL, and the rows that settle blocks under one; pure.

LEDGER stands for the table. A statement evaluates these when it runs, however late it came.
"""

from __future__ import annotations

from loader.core import waiting
from relay.names import LEFT_OUT

_RANK = "(attempt, state != 'prepared', claim)"
_FINAL = "state IN ('loaded', 'discarded', 'dead')"
_NOW = f"(argMax(claim, {_RANK}), argMax({waiting.RESTS}, {_RANK}), countIf({_FINAL}))"
_HELD = "({claim:String}, 0, 0)"
HOLDS = (
    f"(SELECT {_NOW} FROM LEDGER WHERE app = {{app:String}} AND table = {{table:String}} "  # noqa: S608 - constants
    f"AND block = {{block:String}}) = {_HELD}"
)
"""loader.core.plan.holds in SQL, evaluated by ClickHouse when the statement runs."""
_OF_BLOCKS = (
    "FROM LEDGER WHERE app = {app:String} AND table IN {tables:Array(String)} "
    "AND block IN {blocks:Array(String)}"
)
HOLDING = (
    f"(SELECT min(claim = {{claim:String}} AND state = 'prepared') * uniqExact(block) {_OF_BLOCKS})"
)
"""Of how many blocks the claim holds, in SQL; 0 where the ledger has anything else of one of them.

Blocks that go together have no other row: it is asked by each INSERT, and HOLDS for each block of
several took half as long again."""
_MAIN = "(block, {state:String}, newest, {reason:String}, n, version, out, '')"
_REST = (
    f"(concat(block, '{LEFT_OUT}'), {{rest:String}}, toInt64(1), refused, out, '', toUInt64(0), "
    "rest)"
)
"""Two rows of a mark: the block's, and that of the messages which were left out of it."""
_MADE = "claim = {made_by:String} AND state = 'prepared'"
_OF_MAKER = ", ".join(
    f"argMaxIf({column}, attempt, {_MADE}) AS {name}"
    for column, name in (
        ("rows", "n"),
        ("transform", "version"),
        ("left_out", "out"),
        ("reason", "refused"),
        ("record", "rest"),
    )
)
MARK = (
    "INSERT INTO LEDGER "  # noqa: S608 - constants
    "(app, table, block, state, attempt, claim, reason, rows, transform, left_out, record) "
    "SELECT app, table, one.1, one.2, one.3, {claim:String}, one.4, one.5, one.6, one.7, "
    "one.8 FROM (SELECT app, table, arrayJoin("
    f"if(out > 0 AND {{state:String}} = 'loaded', [{_MAIN}, {_REST}], [{_MAIN}])"
    f") AS one FROM (SELECT app, table, block, max(attempt) AS newest, {_OF_MAKER} {_OF_BLOCKS} "
    f"GROUP BY app, table, block HAVING {_NOW} = {_HELD}))"
)
"""Appends a row of {state:String} for each block whose claim holds."""
_SETTLED = (
    "FROM LEDGER WHERE app = {app:String} AND table IN {tables:Array(String)} "
    "AND block IN arrayConcat({blocks:Array(String)}, "
    f"arrayMap(block -> concat(block, '{LEFT_OUT}'), {{blocks:Array(String)}})) "
    "AND state != 'prepared'"
)
AGAIN = (
    f"INSERT INTO LEDGER SELECT DISTINCT * {_SETTLED} AND ({_FINAL} OR (block, attempt) IN "
    f"(SELECT block, max(attempt) {_SETTLED} GROUP BY block)) AND {{all:UInt64}} IN "
    f"(SELECT uniqExact(block) {_OF_BLOCKS} AND state != 'prepared')"
)
"""Appends what settles blocks once more, with what is left out of them, if it is there of all.

Nothing that settled them before: a block that stands aside has a row of each try, and would have
each of these once more with every further one."""
