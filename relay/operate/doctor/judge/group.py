"""Judges where the relay's group stands: are floors and the records they name still there? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from relay import names
from relay.config.settings import Settings
from relay.errors import NEW_APP, PERHAPS_NO_MESSAGE
from relay.operate.doctor.facts import KafkaFacts
from relay.operate.doctor.findings import Finding, found
from relay.operate.doctor.fixes import set_topic
from relay.program.plural import several


def judge_heads(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    """Yield every finding about committed floors."""
    group, journal = names.group_id(settings.app), names.journal_topic(settings.app)
    source = settings.source.topic
    for index, head in facts.heads.items():
        # A group in another cluster than the journal only shows where relays stand.
        if head.journal_offset is None and not settings.crosses:
            yield found(
                "offset-foreign",
                f"group {group}, {source}[{index}]: offset {head.floor} carries metadata "
                f"{head.metadata!r}, which no relay wrote",
                "`relay accept CONFIG` shows where the journal ends; with --run relays continue "
                "there, and nothing is lost or doubled",
            )
        elif not settings.crosses and (
            head.journal_start is None or (head.journal_offset or 0) < head.journal_start
        ):
            begins = "does not exist" if head.journal_start is None else "begins at "
            yield found(
                "journal-passed",
                f"{journal}[{index}] {begins}{head.journal_start or ''}, and the committed floor "
                f"names its record {head.journal_offset}",
                "keep the source from retention; `relay accept CONFIG` says whether what is left "
                f"of the journal is enough to go on. If it is not, {NEW_APP}. Then "
                + set_topic(settings.kafka, journal, retention_ms=-1),
            )
        if head.floor < head.source_start:
            unread = several(head.source_start - head.floor, "offset was", "offsets were")
            yield found(
                "source-passed",
                f"{source}[{index}] begins at {head.source_start}, but the committed floor is "
                f"{head.floor}: {unread} never read ({PERHAPS_NO_MESSAGE})",
                f"get the messages from elsewhere, or go on without them: {_go_on(settings)}; then "
                + set_topic(settings.source_kafka, source, retention_ms=-1),
            )


def _go_on(settings: Settings) -> str:
    """How, where offsets between floor and log are gone."""
    if settings.crosses:
        return NEW_APP
    return "`relay accept CONFIG`"
