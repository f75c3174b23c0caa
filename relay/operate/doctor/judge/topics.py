"""Judges the app's topics: how long, how often and how large records are kept; pure.

A topic that does not exist yet is made by the relay, but for the source.
"""

from __future__ import annotations

from collections.abc import Iterator

from relay import names
from relay.config.settings import Settings
from relay.config.topic_settings import APPENDED, SAFE_COPIES, SAFE_IN_SYNC
from relay.errors import NUMBERS_LOST
from relay.operate.doctor.facts import KafkaFacts, Topic, number
from relay.operate.doctor.findings import Finding, report
from relay.operate.doctor.fixes import set_topic, span
from relay.program.plural import several

CHUNK_ROOM = 10_000
"""Bytes of a chunk's record beside its value: key, headers, the batch's own fields."""
LETTER_ROOM = 20_000
"""Bytes of a dead letter beside the source message: reason, where it was, headers of its own."""
FOR_EVER = -1


def judge(settings: Settings, facts: KafkaFacts, outage_seconds: float) -> Iterator[Finding]:
    """Yield every finding about the topics."""
    source = facts.topics.get(settings.source.topic)
    if source is None and settings.source.topic in facts.absent:
        yield report(
            "source-missing",
            f"source topic {settings.source.topic} does not exist",
            "relay topic create CONFIG; or correct source.topic",
        )
    yield from _numbers(settings, facts)
    for name, topic in facts.topics.items():
        if not topic.partitions:
            continue  # told as a missing right
        yield from _copies(settings, name, topic, few_brokers(settings, facts, name))
        if source is not None and source.partitions and name != settings.source.topic:
            yield from _width(settings, name, topic, source)
        if topic.settings is None:
            continue
        if name != settings.source.topic:
            yield from _clock(settings, name, topic)
        if name in registries(settings.app):
            yield from _registry(settings, name, topic)
        else:
            yield from _kept(settings, name, topic, outage_seconds)
            yield from _sizes(settings, name, topic, source)


def _numbers(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    """A registry that is gone, though there was one: it comes before blocks and journal records."""
    name, journal = names.schemas_topic(settings.app), names.journal_topic(settings.app)
    if name in facts.absent and any(end for _, end in facts.journal.values()):
        what = f"{name} does not exist, but {journal} holds records"
        yield report("registry-lost", what, NUMBERS_LOST)
    elif facts.written:
        what = f"{name} is empty, but {facts.written[0]} holds blocks"
        yield report("registry-lost", what, NUMBERS_LOST)


def registries(app: str) -> tuple[str, ...]:
    """Return the app's topics that are kept for ever, by key."""
    return names.schemas_topic(app), names.replayed_topic(app)


def few_brokers(settings: Settings, facts: KafkaFacts, name: str) -> str:
    """Return what to do if a topic's cluster has too few brokers for more copies; "": enough."""
    elsewhere = settings.crosses and name == settings.source.topic
    brokers = len(facts.source_brokers if elsewhere else facts.brokers)
    if not 0 < brokers < SAFE_COPIES:
        return ""
    return (
        f"for development leave it: {several(brokers, 'broker')} can hold no more copies; in "
        f"production run {SAFE_COPIES} brokers or more, and set kafka.replication = {SAFE_COPIES} "
        "before the first start"
    )


def _copies(settings: Settings, name: str, topic: Topic, few: str) -> Iterator[Finding]:
    kafka = settings.kafka_of(name)
    least = number(topic.settings, "min.insync.replicas")
    if least is not None and topic.in_sync < least:
        yield report(
            "topic-unwritable",
            f"{name}: {topic.in_sync} of {several(topic.replicas, 'replica')} in sync, and "
            f"min.insync.replicas = {least}",
            "start the brokers that hold its replicas (kafka-topics --bootstrap-server "
            f"{kafka.bootstrap} --describe --under-min-isr-partitions)",
        )
    if topic.replicas < SAFE_COPIES:
        yield report(
            "topic-replication",
            f"{name}: {several(topic.replicas, 'replica')}",
            few
            or f"kafka-reassign-partitions --bootstrap-server {kafka.bootstrap} --execute, with "
            f"{SAFE_COPIES} replicas for each partition of {name}",
        )
    elif least is not None and least < SAFE_IN_SYNC:
        yield report(
            "topic-in-sync",
            f"{name}: min.insync.replicas = {least}",
            set_topic(kafka, name, min_insync_replicas=SAFE_IN_SYNC),
        )
    if topic.replicas > 1 and _text(topic, "unclean.leader.election.enable") == "true":
        yield report(
            "unclean-election",
            f"{name}: unclean.leader.election.enable = true",
            set_topic(kafka, name, unclean_leader_election_enable="false"),
        )


def _width(settings: Settings, name: str, topic: Topic, source: Topic) -> Iterator[Finding]:
    """Registries have one partition, and block topics as many as were needed so far."""
    if topic.partitions > source.partitions:
        yield report(
            "partitions-more",
            f"{name} has {topic.partitions} partitions, the source {source.partitions}",
            "correct source.topic, or set another `app`: the topics of this one belong to another "
            "source topic",
        )
    narrow = name in registries(settings.app) or name.startswith(names.blocks_prefix(settings.app))
    if topic.partitions < source.partitions and not narrow:
        yield report(
            "partitions-fewer",
            f"{name} has {topic.partitions} partitions, the source {source.partitions}",
            f"kafka-topics --bootstrap-server {settings.kafka_of(name).bootstrap} --alter --topic "
            f"{name} --partitions {source.partitions}; or let a relay do it, that may Alter it",
        )


def _clock(settings: Settings, name: str, topic: Topic) -> Iterator[Finding]:
    """Topics that a person made, or an earlier version."""
    kind = _text(topic, "message.timestamp.type")
    if kind and kind != APPENDED:
        yield report(
            "topic-clock",
            f"{name}: message.timestamp.type = {kind}",
            set_topic(settings.kafka, name, message_timestamp_type=APPENDED),
        )


def _registry(settings: Settings, name: str, topic: Topic) -> Iterator[Finding]:
    policy = _text(topic, "cleanup.policy")
    forgets = "delete" in policy and not (
        number(topic.settings, "retention.ms") == FOR_EVER
        and number(topic.settings, "retention.bytes") == FOR_EVER
    )
    if forgets:
        yield report(
            "registry-deleted",
            f"{name}: cleanup.policy = {policy}, retention.ms = {_text(topic, 'retention.ms')}, "
            f"retention.bytes = {_text(topic, 'retention.bytes')}",
            set_topic(settings.kafka, name, cleanup_policy="compact"),
        )


def _kept(settings: Settings, name: str, topic: Topic, outage_seconds: float) -> Iterator[Finding]:
    kafka, policy = settings.kafka_of(name), _text(topic, "cleanup.policy")
    if "compact" in policy:
        yield report(
            "topic-compacted",
            f"{name}: cleanup.policy = {policy}",
            set_topic(kafka, name, cleanup_policy="delete"),
        )
    size = number(topic.settings, "retention.bytes")
    if size is not None and size != FOR_EVER:
        yield report(
            "topic-bytes",
            f"{name}: retention.bytes = {size} in each partition",
            set_topic(kafka, name, retention_bytes=FOR_EVER),
        )
    kept_ms = number(topic.settings, "retention.ms")
    if kept_ms is None or kept_ms == FOR_EVER:
        return
    kept = kept_ms / 1000
    if kept < outage_seconds:
        yield report(
            "dead-retention" if name == names.dead_topic(settings.app) else "topic-retention",
            f"{name}: retention.ms = {kept_ms} ({span(kept)}), but an outage may last "
            f"{span(outage_seconds)}",
            set_topic(kafka, name, retention_ms=round(outage_seconds * 1000)),
        )
    if name == names.journal_topic(settings.app):
        yield from _journal(settings, name, kept)


def _journal(settings: Settings, name: str, kept: float) -> Iterator[Finding]:
    """A take-over reads the last record, however old: a partition's only, where it is idle."""
    mend = set_topic(settings.kafka, name, retention_ms=FOR_EVER)
    keepalive = settings.relay.journal_keepalive_seconds
    if kept <= keepalive:
        yield report(
            "journal-keepalive",
            f"{name}: retention.ms = {round(kept * 1000)} ({span(kept)}), and "
            f"relay.journal_keepalive_seconds = {keepalive:g}",
            mend,
        )
    yield report(
        "journal-retention",
        f"{name} keeps records for {span(kept)}: if an app's relays are stopped for longer, a "
        "person has to start them again",
        mend,
    )


def _sizes(settings: Settings, name: str, topic: Topic, source: Topic | None) -> Iterator[Finding]:
    most = number(topic.settings, "max.message.bytes")
    if most is None or name == settings.source.topic:
        return
    needed = settings.block.chunk_bytes + CHUNK_ROOM
    blocks = name.startswith(names.blocks_prefix(settings.app))
    if blocks and most < needed:
        yield report(
            "topic-message-bytes",
            f"{name}: max.message.bytes = {most}, but block.chunk_bytes = "
            f"{settings.block.chunk_bytes} needs {needed}",
            set_topic(settings.kafka, name, max_message_bytes=16 << 20)
            + f"; or set block.chunk_bytes = {max(1, most - CHUNK_ROOM)}",
        )
    largest = None if source is None else number(source.settings, "max.message.bytes")
    if blocks and largest is not None and needed <= most < largest + CHUNK_ROOM:
        yield report(
            "row-message-bytes",
            f"{name}: max.message.bytes = {most}, but the source topic's is {largest}: a row that "
            f"is larger than {name} accepts becomes a dead letter",
            set_topic(settings.kafka, name, max_message_bytes=largest + CHUNK_ROOM),
        )
    dead = name == names.dead_topic(settings.app)
    if dead and largest is not None and most < largest + LETTER_ROOM:
        yield report(
            "dead-message-bytes",
            f"{name}: max.message.bytes = {most}, but the source topic's is {largest}",
            set_topic(settings.kafka, name, max_message_bytes=largest + LETTER_ROOM),
        )


def _text(topic: Topic, name: str) -> str:
    return (topic.settings or {}).get(name, "")
