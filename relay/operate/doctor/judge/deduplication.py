"""Judges what two INSERTs under one token left, and the server's version; pure."""

from __future__ import annotations

from collections.abc import Iterator

from relay.operate.doctor.facts import ClickHouseFacts, Tried
from relay.operate.doctor.findings import Finding, found
from relay.operate.doctor.fixes import set_user
from relay.operate.doctor.versions import OLDEST, parsed, version_text


def judge_version(facts: ClickHouseFacts) -> Iterator[Finding]:
    """Yield whether the loader's guards were ever run on a version like this."""
    version = parsed(facts.version)
    if version is not None and version < OLDEST:
        oldest = version_text(OLDEST)
        yield found(
            "version-untested",
            f"ClickHouse {facts.version} is older than the oldest version that was tested, "
            f"{oldest}",
            f"upgrade ClickHouse to {oldest} or later; try it: relay doctor CONFIG --try",
        )


def judge_tries(facts: ClickHouseFacts, database: str) -> Iterator[Finding]:
    """Yield what `--try` found, engine by engine."""
    for tried in facts.tries:
        if tried.problem:
            yield found(
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
            yield found(
                "untried",
                f"{tried.engine}: after the trial's INSERTs a query found {tried.copies:g} copies "
                f"in the table and {tried.behind:g} behind the view",
                "name one replica in clickhouse.url, and check whether a load balancer answers "
                "there",
            )


def _doubled(code: str, tried: Tried, facts: ClickHouseFacts, where: str, copies: float) -> Finding:
    values = ", ".join(f"{name} = {value}" for name, value in tried.values.items())
    return found(
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
