"""Judges the materialized views behind a target table: would a repeat double what they write?

Receives the table with all views that an INSERT reaches; gives findings. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from relay.clickhouse.quoting import readable
from relay.operate.doctor.facts import TargetFacts, Values
from relay.operate.doctor.findings import Finding, found
from relay.operate.doctor.fixes import alter
from relay.operate.doctor.judge.window import GOOD_WINDOW, is_told, window

_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.)*`|\"(?:[^\"\\]|\\.)*\"")
_VARIES = re.compile(
    r"\b(now|now64|nowInBlock|today|yesterday|UTCTimestamp|current_timestamp|rand|rand32|rand64"
    r"|randConstant|randCanonical|rand[A-Z]\w*|random\w*|generate(?:UUID|ULID|Snowflake)\w*|fuzzBits"
    r"|hostName|hostname|FQDN|uptime|queryID|query_id|initialQueryID|serverUUID|rowNumberInBlock"
    r"|rowNumberInAllBlocks|blockNumber|runningDifference|runningAccumulate|neighbor"
    r"|dictGet\w*|dictHas|joinGet\w*)\s*\(",
)
_JOINS = re.compile(r"\bJOIN\b", re.IGNORECASE)


def judge_views(name: str, table: TargetFacts, defaults: Mapping[str, Values]) -> Iterator[Finding]:
    """Yield every finding about the views that an INSERT into the table reaches."""
    for view in table.views:
        varies = _varying(view.select)
        if varies:
            yield found(
                "view-varies",
                f"view {view.name} of {name} uses {', '.join(varies)}",
                f"remove it from the view (ALTER TABLE {readable(view.name)} MODIFY QUERY …): let "
                "the producer send the value, or compute it in queries",
            )
        if view.into is None:
            continue
        kept = window(view.into, defaults)
        if kept is None:
            yield found(
                "view-window",
                f"view {view.name} of {name} writes to {view.into_name}, engine {view.into.engine}",
                "let it write to a MergeTree table with non_replicated_deduplication_window = "
                f"{GOOD_WINDOW}",
            )
        elif kept.parts == 0 and is_told(view.into, defaults):
            yield found(
                "view-window",
                f"view {view.name} of {name} writes to {view.into_name}: {kept.setting} = 0",
                alter(view.into_name, kept.setting, GOOD_WINDOW),
            )


def _varying(select: str) -> list[str]:
    """Functions in a SELECT that may answer otherwise the second time, and JOIN."""
    bare = _TEXT.sub("''", select)
    functions = list(dict.fromkeys(f"{match}()" for match in _VARIES.findall(bare)))
    return [*functions, *(["JOIN"] if _JOINS.search(bare) else [])]
