"""Judges a ledger that is not there; pure.

With blocks it was lost, or nothing tells whether it was, or no loader has run yet. On several
replicas no loader makes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relay import names
from relay.config.settings import Settings
from relay.errors import ErrorPage
from relay.operate.doctor.facts import ClickHouseFacts, KafkaFacts
from relay.operate.doctor.findings import Finding, report
from relay.operate.view.lost_ledger import describe_loss

_LOST = f"loader run CONFIG --once --ledger-lost (relay docs {ErrorPage.LEDGER})"


def judge_unmade(settings: Settings, clickhouse: ClickHouseFacts) -> Iterator[Finding]:
    """Yield a finding where several replicas are named, and nobody has made their ledger."""
    if clickhouse.ledger is None and clickhouse.elsewhere is not None and _has_replicas(settings):
        yield report(
            "ledger-unmade",
            f"there is no ledger {settings.loader.database}.ledger, and the loader makes none on "
            f"{len(settings.clickhouse.urls)} replicas",
            f"run on each of them the statements of relay docs {ErrorPage.LEDGER_TABLE}",
        )


def judge_absence(
    settings: Settings, kafka: KafkaFacts, clickhouse: ClickHouseFacts, stands: Mapping[int, int]
) -> Iterator[Finding]:
    """Yield a finding where there is no ledger, and there are blocks.

    `stands` is Spark's checkpoint, as relay.operate.view.lost_ledger has it.
    """
    elsewhere = clickhouse.elsewhere
    if clickhouse.ledger is not None or elsewhere is None or not _has_blocks(settings.app, kafka):
        return
    begins = {p: low for p, (low, _) in kafka.journal.items()}
    lost = describe_loss(settings, elsewhere, stands, begins)
    if lost:
        other = f'set loader.database = "{elsewhere[0]}" if that is it; else ' if elsewhere else ""
        yield report(
            "ledger-lost", lost, f"{other}restore it from a backup; if there is none: {_LOST}"
        )
        return
    if _has_replicas(settings):  # `judge_unmade` says it
        return
    yield report(
        "ledger-missing",
        f"there is no ledger {settings.loader.database}.ledger, though "
        f"{names.journal_topic(settings.app)} has records: no "
        "loader has run yet, or the ledger was lost with its checkpoint, or loader.database names "
        "another database",
        f"loader run CONFIG; if a loader has run before: {_LOST}",
    )


def _has_replicas(settings: Settings) -> bool:
    return len(settings.clickhouse.urls) > 1


def _has_blocks(app: str, kafka: KafkaFacts) -> bool:
    """Whether a relay has made a block topic, and written to the journal."""
    tables = any(names.table_of_topic(app, name) for name in kafka.topics)
    return tables and any(end for _, end in kafka.journal.values())
