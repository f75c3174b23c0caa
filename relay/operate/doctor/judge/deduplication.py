"""Judges whether repeated INSERTs are dropped; pure.

How far back a table, and those behind its views, remember deduplication tokens; what a view would
write otherwise the second time; the server's version; what two INSERTs under one token left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from relay.clickhouse.quoting import readable
from relay.clickhouse.table_engine import DeduplicationWindow
from relay.operate.doctor.facts import ClickHouseFacts, TargetFacts, Tried, Values
from relay.operate.doctor.findings import Finding, report
from relay.operate.doctor.fixes import alter, set_user
from relay.operate.doctor.versions import OLDEST, parsed, version_text

GOOD_WINDOW = 10_000
"""Tokens; the default of replicated tables in recent releases."""
_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.)*`|\"(?:[^\"\\]|\\.)*\"")
_VARIES = re.compile(
    r"\b(now|now64|nowInBlock|today|yesterday|UTCTimestamp|current_timestamp|rand|rand32|rand64"
    r"|randConstant|randCanonical|rand[A-Z]\w*|random\w*|generate(?:UUID|ULID|Snowflake)\w*|fuzzBits"
    r"|hostName|hostname|FQDN|uptime|queryID|query_id|initialQueryID|serverUUID|rowNumberInBlock"
    r"|rowNumberInAllBlocks|blockNumber|runningDifference|runningAccumulate|neighbor"
    r"|dictGet\w*|dictHas|joinGet\w*)\s*\(",
)
_JOINS = re.compile(r"\bJOIN\b", re.IGNORECASE)


def window(table: TargetFacts, defaults: Mapping[str, Values]) -> DeduplicationWindow | None:
    """Return the deduplication window of a table; None where its engine has none."""
    return table.table_engine.window(_of_kind(table, defaults))


def is_told(table: TargetFacts, defaults: Mapping[str, Values]) -> bool:
    """Return whether the server told its defaults: without them a window looks like none."""
    return bool(_of_kind(table, defaults))


def _of_kind(table: TargetFacts, defaults: Mapping[str, Values]) -> Values:
    replicated = table.table_engine.is_replicated
    kind = "replicated_merge_tree_settings" if replicated else "merge_tree_settings"
    return defaults.get(kind, {})


def judge_views(name: str, table: TargetFacts, defaults: Mapping[str, Values]) -> Iterator[Finding]:
    """Yield every finding about the views that an INSERT into the table reaches."""
    for view in table.views:
        varies = _varying(view.select)
        if varies:
            yield report(
                "view-varies",
                f"view {view.name} of {name} uses {', '.join(varies)}",
                f"remove it from the view (ALTER TABLE {readable(view.name)} MODIFY QUERY …): let "
                "the producer send the value, or compute it in queries",
            )
        if view.into is None:
            continue
        kept = window(view.into, defaults)
        if kept is None:
            yield report(
                "view-window",
                f"view {view.name} of {name} writes to {view.into_name}, engine {view.into.engine}",
                "let it write to a MergeTree table with non_replicated_deduplication_window = "
                f"{GOOD_WINDOW}",
            )
        elif kept.parts == 0 and is_told(view.into, defaults):
            yield report(
                "view-window",
                f"view {view.name} of {name} writes to {view.into_name}: {kept.setting} = 0",
                alter(view.into_name, kept.setting, GOOD_WINDOW),
            )


def _varying(select: str) -> list[str]:
    """Functions in a SELECT that may answer otherwise the second time, and JOIN."""
    bare = _TEXT.sub("''", select)
    functions = list(dict.fromkeys(f"{match}()" for match in _VARIES.findall(bare)))
    return [*functions, *(["JOIN"] if _JOINS.search(bare) else [])]


def judge_version(facts: ClickHouseFacts) -> Iterator[Finding]:
    """Yield whether the loader's guards were ever run on a version like this."""
    version = parsed(facts.version)
    if version is not None and version < OLDEST:
        oldest = version_text(OLDEST)
        yield report(
            "version-untested",
            f"ClickHouse {facts.version} is older than the oldest version that was tested, "
            f"{oldest}",
            f"upgrade ClickHouse to {oldest} or later; try it: relay doctor CONFIG --try",
        )


def judge_tries(facts: ClickHouseFacts, database: str) -> Iterator[Finding]:
    """Yield what `--try` found, engine by engine."""
    for tried in facts.tries:
        if tried.problem:
            yield report(
                "untried",
                f"{tried.engine}: {tried.problem}",
                "run the trial as a user with these rights: GRANT CREATE TABLE, CREATE VIEW, DROP "
                f"TABLE, DROP VIEW, SELECT, INSERT ON {database}.* TO …",
            )
        elif tried.copies > 1:
            yield _doubled("deduplication-ignored", tried, facts, "the table", tried.copies)
        elif tried.behind > 1:
            yield _doubled(
                "deduplication-ignored-views", tried, facts, "a view's table", tried.behind
            )
        elif tried.copies < 1 or tried.behind < 1:
            yield report(
                "untried",
                f"{tried.engine}: after the trial's INSERTs a query found {tried.copies:g} copies "
                f"in the table and {tried.behind:g} behind the view",
                "name one replica in clickhouse.url, and check whether a load balancer answers "
                "there",
            )


def _doubled(code: str, tried: Tried, facts: ClickHouseFacts, where: str, copies: float) -> Finding:
    values = ", ".join(f"{name} = {value}" for name, value in tried.values.items())
    return report(
        code,
        f"{tried.engine} on ClickHouse {facts.version}: two INSERTs under one token left each row "
        f"{copies:g} times in {where} (user {facts.user}: {values})",
        f"upgrade ClickHouse to {version_text(OLDEST)} or later; "
        + set_user(
            facts.user,
            "insert_deduplicate = 1, deduplicate_insert_select = 'enable_even_for_bad_queries', "
            "deduplicate_blocks_in_dependent_materialized_views = 1",
        ),
    )
