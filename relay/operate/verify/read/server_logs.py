"""Reads what the server's own logs have of a table's blocks: statements, parts, views.

Each log is optional.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from relay import names
from relay.clickhouse.table_engine import LISTED_HERE
from relay.operate.verify.judge.server_records import Reach, Recorded, Statement, ViewRun, Written
from relay.operate.verify.judge.table_facts import TableFacts
from relay.operate.verify.read.optional import Optional

_OURS = """
event_date >= toDate({since:DateTime}) - 1 AND query_kind = 'Insert' AND is_initial_query
AND startsWith(log_comment, {prefix:String})
"""
_STATEMENTS = f"""
SELECT query_id, any(log_comment),
    toUnixTimestamp64Milli(min(query_start_time_microseconds)),
    countIf(type = 'QueryFinish') > 0, anyIf(exception_code, exception_code != 0),
    maxIf(written_rows, type = 'QueryFinish')
FROM system.query_log WHERE {_OURS} GROUP BY query_id
"""  # noqa: S608 - constants
_PARTS = f"""
SELECT query_id, database || '.' || table, sumIf(rows, error = 0), sumIf(rows, error IN (0, 389)),
    toUnixTimestamp64Milli(min(event_time_microseconds))
FROM system.part_log
WHERE event_date >= toDate({{since:DateTime}}) - 1 AND event_type = 'NewPart'
AND query_id IN (SELECT query_id FROM system.query_log WHERE {_OURS})
GROUP BY 1, 2
"""  # noqa: S608 - constants
_VIEWS = f"""
SELECT initial_query_id, view_name, max(status = 'QueryFinish'),
    anyIf(exception_code, exception_code != 0), sum(written_rows)
FROM system.query_views_log
WHERE event_date >= toDate({{since:DateTime}}) - 1
AND initial_query_id IN (SELECT query_id FROM system.query_log WHERE {_OURS})
GROUP BY 1, 2
"""  # noqa: S608 - constants
_VIEWS_NOW = f"""
SELECT database || '.' || name FROM system.tables
WHERE has({{views:Array(String)}}, database || '.' || name) AND {LISTED_HERE}
"""  # noqa: S608 - constants
_REACH = """
SELECT count(), toUnixTimestamp64Milli(min(event_time_microseconds)),
    toUnixTimestamp64Milli(max(event_time_microseconds))
FROM {log}
"""
_UP = "SELECT (toUnixTimestamp(now()) - uptime()) * 1000"
_ANY = """
SELECT 1 FROM system.query_log
WHERE query_kind = 'Insert' AND startsWith(log_comment, {app:String}) LIMIT 1
"""
_QUERIES, _PARTS_LOG, _VIEWS_LOG = "system.query_log", "system.part_log", "system.query_views_log"


class ServerLogs:
    """The logs of the server that answers, where the configuration may name several replicas.

    Raises (every method):
        ClickHouseError: the server did not answer at all.
    """

    def __init__(self, optional: Optional, app: str, *, several: bool) -> None:
        self._optional, self._app, self._several = optional, app, several
        self._reach: Reach | None = None

    def recorded(self, table: str, facts: TableFacts, since_ms: int) -> Recorded:
        """Return all INSERTs of the table's blocks, none older than `since_ms`, in the logs."""
        if self._reach is None:
            self._reach = self._asked_reach()
        reach = self._reach
        place = {"since": max(since_ms, 0) // 1000, "prefix": f"{self._app}:{table}:"}
        statements = self._optional.ask(_QUERIES, _STATEMENTS, **place)
        parts = self._optional.ask(_PARTS_LOG, _PARTS, **place)
        if statements is None or parts is None:
            why = (self._optional.unanswered.get(log) for log in (_QUERIES, _PARTS_LOG))
            return Recorded((), Reach(but=next(filter(None, why), "")))
        views = self._optional.ask(_VIEWS_LOG, _VIEWS, **place)
        if facts.replicas != 1 or self._several:
            many = "an unknown number of" if facts.replicas is None else facts.replicas
            reach = replace(reach, but=f"the table has {many} replicas, each with logs of its own")
        return Recorded(_joined(statements, parts, self._view_runs(views, facts)), reach)

    def _view_runs(
        self, views: list[Any] | None, facts: TableFacts
    ) -> dict[str, dict[str, ViewRun]] | None:
        """Return what each query did to each view; ask whether a view that failed still exists."""
        if views is None:
            return None
        present = {view for _, view, done, *_ in views if not done}
        if present:
            place = {"views": sorted(present)}
            answer = self._optional.ask("system.tables (views)", _VIEWS_NOW, **place)
            if answer is not None:  # a view that this user may not see is named by its table
                present = {row[0] for row in answer}.union(facts.views)
        runs: dict[str, dict[str, ViewRun]] = defaultdict(dict)
        for query, view, done, code, rows in views:
            runs[query][view] = ViewRun(bool(done), code, bool(done) or view in present, rows)
        return runs

    def _asked_reach(self) -> Reach:
        """Must be asked before the statements, so that these reach at least as far."""
        spans = []
        for log in (_QUERIES, _PARTS_LOG):
            answer = self._optional.ask(log, _REACH.replace("{log}", log))
            if answer is None or not answer[0][0]:
                return Reach(but=self._optional.unanswered.get(log, f"{log} is empty"))
            spans.append(answer[0][1:])
        up = self._optional.ask("uptime()", _UP)
        if up is None:
            return Reach(but=self._optional.unanswered["uptime()"])
        since, until = max(span[0] for span in spans), min(span[1] for span in spans)
        # The profile of the loader's user may keep a loader of an earlier version from logging.
        ours = self._optional.ask(_QUERIES, _ANY, app=f"{self._app}:")
        but = "" if ours else f"{_QUERIES} has no INSERT of this app's loaders"
        return Reach(since, until, int(up[0][0]), but)


def _joined(
    statements: list[Any], parts: list[Any], runs: dict[str, dict[str, ViewRun]] | None
) -> tuple[Statement, ...]:
    written: dict[str, dict[str, Written]] = defaultdict(dict)
    for query, table, *numbers in parts:
        written[query][table] = Written(*numbers)
    inserts = [
        Statement(
            frozenset(names.commented(comment)),
            at_ms,
            bool(finished),
            code,
            rows,
            written.get(query, {}),
            None if runs is None else runs.get(query, {}),
            names.claim_of_comment(comment),
        )
        for query, comment, at_ms, finished, code, rows in statements
    ]
    return tuple(sorted(inserts, key=lambda one: one.at_ms))
