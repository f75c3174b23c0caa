"""Examines once: asks Kafka and ClickHouse, judges, and returns findings, the worst first.

A server that does not answer or refuses is a finding, and the other one is still examined.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from relay import names
from relay.config.settings import Settings
from relay.errors import Refused, Unavailable
from relay.kafka.connection_errors import name_unresolved_brokers
from relay.operate.doctor.ask import broker_clock, deduplication
from relay.operate.doctor.ask import sample as ask_sample
from relay.operate.doctor.ask.brokers import BrokerQuestions
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.doctor.ask.client import Asker
from relay.operate.doctor.facts import KafkaFacts, Unasked
from relay.operate.doctor.findings import Finding, report, worst_first
from relay.operate.doctor.judge import brokers as judge_brokers
from relay.operate.doctor.judge import clickhouse, rights, topics
from relay.operate.doctor.judge import sample as samples
from relay.operate.doctor.judge.ledger import judge_absence, judge_unmade
from relay.operate.doctor.judge.sample import OfTable
from relay.operate.view.lost_ledger import checkpointed


@dataclass(frozen=True, slots=True)
class ExaminationScope:
    """What an examination covers.

    Attributes:
        outage_seconds: how long an outage of relay or loader may last.
        tables: target tables beside those of the app's block topics.
        probe: whether a record may be written, in a topic of its own, to read a clock.
        tries: whether tables of its own may be made, to try deduplication.
        roles: that this user has; what only others need is not judged.
    """

    outage_seconds: float
    tables: Collection[str] = ()
    probe: bool = False
    tries: bool = False
    roles: Collection[str] = rights.DATA_PATH


def examine(settings: Settings, wanted: ExaminationScope) -> list[Finding]:
    """Return every finding, the worst first."""
    findings: list[Finding] = []
    facts: KafkaFacts | None = None
    targets = {*wanted.tables, *settings.block.tables}
    try:
        facts = _ask_kafka(settings, wanted)
    except Unavailable as error:
        findings.append(no_answer("kafka", name_unresolved_brokers(error, settings.kafka)))
    except Refused as error:
        findings.append(no_answer("kafka", error))
    else:
        findings += judge_kafka(settings, facts, wanted.outage_seconds, wanted.roles)
        block_tables = (names.table_of_topic(settings.app, topic) for topic in facts.topics)
        targets |= {table for table in block_tables if table}
    try:
        with contextlib.closing(ClickHouseQuestions(settings)) as server:
            seen = server.look(sorted(targets))
        if wanted.tries:
            seen = replace(seen, tries=deduplication.tries(settings, seen))
    except (Unavailable, Refused) as error:
        findings.append(no_answer("clickhouse", error))
    else:
        inserts = "loader" in wanted.roles
        findings += clickhouse.judge(settings, seen, wanted.outage_seconds, inserts=inserts)
        findings += rights.judge_clickhouse(seen, wanted.roles)
        findings += judge_unmade(settings, seen) if inserts else ()
        findings += unasked(seen.unasked)
        if facts is not None:
            journal = facts.topics.get(names.journal_topic(settings.app))
            topic_id = "" if journal is None else journal.topic_id
            stands = checkpointed(settings.loader.checkpoint, topic_id)
            findings += judge_absence(settings, facts, seen, stands)
    return worst_first(findings)


def sample(settings: Settings, wanted: int) -> tuple[list[OfTable], list[Finding]]:
    """Return what was seen in that many of the source topic's newest messages, and the findings."""
    topic = settings.source.topic
    try:
        seen = ask_sample.look(settings, wanted)
    except (Unavailable, Refused) as error:
        what = f"{wanted:,} messages of {topic}: {error.message}"
        return [], [report("unasked", what, error.next_step)]
    return seen, list(samples.judge(topic, wanted, seen))


def judge_kafka(
    settings: Settings,
    facts: KafkaFacts,
    outage_seconds: float,
    roles: Collection[str] = rights.DATA_PATH,
) -> Iterator[Finding]:
    """Yield every finding about Kafka."""
    yield from judge_brokers.judge(settings, facts, outage_seconds)
    yield from topics.judge(settings, facts, outage_seconds)
    yield from rights.judge_kafka(settings, facts, roles)
    yield from unasked(facts.unasked)


def unasked(questions: Iterable[Unasked]) -> Iterator[Finding]:
    """Yield a finding for each question without an answer."""
    for question in questions:
        yield report("unasked", f"{question.what}: {question.reason}", question.mend)


def _ask_kafka(settings: Settings, wanted: ExaminationScope) -> KafkaFacts:
    asker = Asker(settings.kafka)
    brokers = BrokerQuestions(
        settings, asker, Asker(settings.source_kafka) if settings.crosses else None
    )
    facts = brokers.look()
    if not wanted.probe:
        return replace(facts, unasked=(*facts.unasked, broker_clock.unprobed(settings.app)))
    clock = broker_clock.broker_clock(settings, asker)
    return replace(facts, clock=clock, unasked=brokers.unasked())


def no_answer(server: str, error: Unavailable | Refused) -> Finding:
    """Return the finding where `server` (kafka, clickhouse) gave no answer to anything."""
    kind = "away" if isinstance(error, Unavailable) else "refused"
    return report(f"{server}-{kind}", error.message, error.next_step)
