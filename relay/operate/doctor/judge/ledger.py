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

_MADE_BY_HAND = f"run on each replica the statements of relay docs {ErrorPage.LEDGER_TABLE}"


def judge_unmade(settings: Settings, clickhouse: ClickHouseFacts) -> Iterator[Finding]:
    """Yield a finding where several replicas are named, and nobody has made their ledger."""
    replicas = _replicas(settings, clickhouse)
    if replicas > 1 and clickhouse.ledger is None and clickhouse.elsewhere is not None:
        yield report(
            "ledger-unmade",
            f"there is no ledger {settings.loader.database}.ledger, and the loader makes none on "
            f"{replicas} replicas",
            _MADE_BY_HAND,
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
    yield report(
        "ledger-missing",
        f"there is no ledger {settings.loader.database}.ledger, though "
        f"{names.journal_topic(settings.app)} has records: no "
        "loader has run yet, or the ledger was lost with its checkpoint, or loader.database names "
        "another database",
        f"{_first(settings, clickhouse)}; if a loader has run before: {_LOST}",
    )


def _first(settings: Settings, clickhouse: ClickHouseFacts) -> str:
    return _MADE_BY_HAND if _replicas(settings, clickhouse) > 1 else "loader run CONFIG"


def _replicas(settings: Settings, clickhouse: ClickHouseFacts) -> int:
    """How many there are by name, or behind one address."""
    return max(len(settings.clickhouse.urls), len(clickhouse.servers))


def _has_blocks(app: str, kafka: KafkaFacts) -> bool:
    """Whether a relay has made a block topic, and written to the journal."""
    tables = any(names.table_of_topic(app, name) for name in kafka.topics)
    return tables and any(end for _, end in kafka.journal.values())
