"""Does the server hide rows of a table from this user? By a row policy, or a filter of its profile.

Receives a client and a table, gives the condition that a row must meet to be seen. It is the
server's own plan of a SELECT, which needs no other right than that SELECT: it holds for policies
of roles and of whole databases, and for `additional_table_filters` that cannot be overridden. Or
by comparing numbers: the SELECT's and the parts' own, which have rows that a lightweight DELETE
masked and no merge took away yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from relay.clickhouse.quoting import quoted_table, table_parameters
from relay.clickhouse.statement_settings import FREE

Ask = Callable[..., list[Sequence[Any]] | None]
"""Gets a statement and its parameters by name; gives rows, None where this user may not ask."""

PLAN = "EXPLAIN actions = 1 SELECT 1 FROM "
"""A SELECT without a condition of its own, of a table that is quoted; its answer is a plan."""
_FILTER = re.compile(r"Row.level filter|\b[Ff]ilter column")
_EMPTY = "ReadNothing"
"""The plan of a table without parts, whose filters the server does not look at."""
_CONDITION = re.compile(r"\b[Ff]ilter column: +(.*\S)")
_IN_PARTS = (
    "SELECT sum(rows) FROM system.parts WHERE active AND NOT startsWith(name, 'patch-') "
    "AND database = {database:String} AND table = {name:String}"
)
"""Rows of a table; those of patches are updates and deletions of them."""
_MASK = "apply_deleted_mask"
_UNMASKED = (_MASK, "use_query_condition_cache")
"""Both are switched off: on 26.3 and 26.5 the cache has what a SELECT found under the mask."""


def exempt(table: str) -> str:
    """Return what lets the loader see all rows of a table, as the beginning of a next step."""
    return (
        f"Exempt the loader's user (ALTER ROW POLICY … ON {table} TO ALL EXCEPT it, or change its "
        "settings profile), then"
    )


def shown_only(client: Client, table: str) -> str:
    """Return the condition under which a client's user sees a row; empty: it sees all of them.

    The table's name is quoted. Raises ClickHouseError as the server answers.
    """
    return condition(_plan(client, table))


def shown_once_there(client: Client, table: str) -> str | None:
    """Return as `shown_only`; None: the table is empty, and the server does not say."""
    plan = _plan(client, table)
    return None if any(_EMPTY in line for line in plan) else condition(plan)


def _plan(client: Client, table: str) -> list[str]:
    return [str(row[0]) for row in client.query(PLAN + table).result_rows]


def condition(plan: Iterable[str]) -> str:
    """Return the filter in the plan of a SELECT without WHERE; empty: there is none."""
    lines = [line for line in plan if _FILTER.search(line)]
    conditions = [match[1] for line in lines if (match := _CONDITION.search(line))]
    if conditions:
        return conditions[0]
    return "(a condition that the server does not show)" if lines else ""


def unmasked(ask: Ask) -> str:
    """Return the SETTINGS of a SELECT that shows masked rows, too; empty: this user has no choice.

    Raises as `ask` does.
    """
    free = [str(name) for (name,) in ask(FREE, names=list(_UNMASKED)) or ()]
    listed = ", ".join(f"{name} = 0" for name in free)
    return f" SETTINGS {listed}" if _MASK in free else ""


def fewer_shown(ask: Ask, table: str, more: str) -> str:
    """Return why a user may not see all rows of a table, by their number; empty: it sees them.

    What a row policy hides is in the parts' own counts and not in the SELECT. INSERTs come between
    the two questions, so the SELECT is asked last: more rows than the parts had before are no sign
    of hidden ones. `more` are the SETTINGS of the SELECT. Raises as `ask` does.
    """
    parts = ask(_IN_PARTS, **table_parameters(table))
    if parts is None:
        return (
            "whether this user sees all rows is not known (the user needs SELECT on system.parts)"
        )
    shown = ask(f"SELECT count() FROM {quoted_table(table)}{more}")  # noqa: S608 - quoted
    if shown is None:
        return f"its rows cannot be counted (the user needs SELECT on {table})"
    if int(shown[0][0]) < int(parts[0][0]):
        return "this user does not see all rows of the table (a row policy, DELETEs)"
    return ""
