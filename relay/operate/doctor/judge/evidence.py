"""Judges how the fate of a block is decided, by table, if its INSERT got no answer; pure.

loader.core.plan decides in this order; where it counts, the loader judges countability by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from relay.clickhouse.quoting import readable, readable_name
from relay.clickhouse.table_engine import DeduplicationWindow, has_ttl
from relay.operate.doctor.facts import ClickHouseFacts, TargetFacts
from relay.operate.doctor.findings import Finding, report
from relay.operate.doctor.fixes import exempt, span

COMPUTED = frozenset({"MATERIALIZED", "ALIAS", "EPHEMERAL"})
"""Kinds of defaults with which the loader writes no ids: they would be refused, or not kept."""


def keeps_ids(table: TargetFacts, column: str) -> bool:
    """Return whether rows of the table carry the id of their block in the column."""
    return column in table.columns and table.columns[column][1] not in COMPUTED


def judge_countable(
    name: str, table: TargetFacts, facts: ClickHouseFacts, column: str
) -> Iterator[Finding]:
    """Yield findings about rows that exist but cannot be counted, or that expire."""
    if table.policies:
        yield report(
            "row-policy",
            f"{name}: {', '.join(table.policies)} hides rows from user {facts.user}",
            exempt(readable(name), facts.user),
        )
    if keeps_ids(table, column) and has_ttl(table.create, column):
        yield report(
            "block-column-expires",
            f"{name}: column {column} has a TTL",
            f"ALTER TABLE {readable(name)} MODIFY COLUMN {readable_name(column)} REMOVE TTL",
        )
    if keeps_ids(table, column) and (expires := expiry(table)):
        yield report(
            "ttl",
            f"{name}: rows expire (TTL {expires}), and the loader counts a block's rows by "
            f"{column}",
            "let rows expire no sooner than an outage lasts",
        )


def judge_decided(
    name: str, table: TargetFacts, kept: DeduplicationWindow, column: str
) -> Iterator[Finding]:
    """Yield the sentence for a table, as a finding."""
    steps = ["the server's answer to the INSERT"]
    why = uncountable(table, column)
    if not why:
        steps.append(f"a count that finds all its rows by {column}")
    steps.append("the server's logs, if they have an INSERT of the block that succeeded")
    if kept.parts:
        age = "" if kept.seconds is None else f" and {span(kept.seconds)}"
        steps.append(f"its deduplication token, inside the window of {kept.parts:,} parts{age}")
    steps.append("the server's logs, if they show that none wrote anything")
    last = (
        f"a count proves nothing: {'; '.join(why)}"
        if why
        else "then a count that finds none of its rows"
    )
    yield report(
        "decided-by",
        f"{name}: whether a block was inserted is decided by {', then '.join(steps)}; {last}",
    )


def uncountable(table: TargetFacts, column: str) -> list[str]:
    """Return why counting a block's rows proves nothing; empty: it does."""
    reasons = []
    if column not in table.columns:
        reasons.append(f"no column {column}")
    elif not keeps_ids(table, column):
        reasons.append(f"{column} is {table.columns[column][1]}")
    if table.table_engine.merges_rows:
        reasons.append(f"{table.engine} merges rows away")
    if expires := expiry(table):
        reasons.append(f"TTL {expires} deletes them")
    if has_ttl(table.create, column):
        reasons.append(f"{column} has a TTL")
    if table.views:
        named = ", ".join(view.name for view in table.views)
        reasons.append(f"it says nothing about the table behind view {named}")
    if table.policies:
        reasons.append(f"{', '.join(table.policies)} hides them")
    return reasons


def expiry(table: TargetFacts) -> str:
    """Return the table's TTL as far as it deletes rows; moved rows are still there."""
    return ", ".join(table.table_engine.deleting_ttls())
