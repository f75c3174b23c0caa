"""Judges the brokers, their clock, and where the relay's group stands; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relay import names
from relay.config.settings import Settings
from relay.config.topic_settings import APPENDED, SAFE_COPIES, SAFE_IN_SYNC, copies
from relay.errors import NEW_APP, PERHAPS_NO_MESSAGE
from relay.operate.doctor.facts import KafkaFacts, Trial, Values, number
from relay.operate.doctor.findings import Finding, report
from relay.operate.doctor.fixes import clock_error, set_brokers, set_topic, span
from relay.operate.doctor.judge.topics import few_brokers
from relay.program.plural import several

NEEDED_APIS = {
    "TxnOffsetCommit": (3, "2.5", "the group's generation with offsets in transactions, KIP-447"),
    "OffsetFetch": (7, "2.5", "stable offsets"),
    "Metadata": (10, "2.8", "topic ids"),
}
"""Requests by name: version needed, the Kafka that first had it, what it is needed for."""

STATE = {
    "transaction.state.log.replication.factor": SAFE_COPIES,
    "transaction.state.log.min.isr": SAFE_IN_SYNC,
    "offsets.topic.replication.factor": SAFE_COPIES,
}
"""Settings of the brokers' own topics, and how much they should be at least."""
METADATA_BYTES = 128
"""What the relay commits with a floor, with room: {"n":…,"journal":…}, two numbers of 64 bits."""
DENIED = "AUTHORIZATION_FAILED"
"""How the names of errors end that mean a missing right."""


LOOKED_AT = (
    "transaction.max.timeout.ms",
    *STATE,
    "offsets.retention.minutes",
    "offset.metadata.max.bytes",
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "auto.create.topics.enable",
)
"""Settings of brokers that are judged here."""


def judge(settings: Settings, facts: KafkaFacts, outage_seconds: float) -> Iterator[Finding]:
    """Yield every finding about the brokers and the group."""
    yield from _version(facts)
    yield from _replication(settings, facts)
    for brokers, values in _alike(facts.brokers).items():
        yield from _transactions(settings, brokers, values, facts)
        if not settings.crosses:
            yield from _group(settings, brokers, values, outage_seconds)
        if values.get("auto.create.topics.enable") == "true":
            yield report(
                "auto-create",
                f"{brokers}: auto.create.topics.enable = true",
                set_brokers(("auto.create.topics.enable", "false")),
            )
    for brokers, values in _alike(facts.source_brokers).items():
        yield from _group(settings, f"the source's {brokers}", values, outage_seconds)
    yield from _trials(settings, facts)
    yield from _heads(settings, facts)
    yield from _clock(settings, facts)


def _alike(brokers: Mapping[int, Values | None]) -> dict[str, Values]:
    """Brokers whose looked-at settings are the same, named together, with those settings."""
    together: dict[tuple[str, ...], list[int]] = {}
    for broker, values in sorted(brokers.items()):
        if values is not None:
            key = tuple(values.get(name, "") for name in LOOKED_AT)
            together.setdefault(key, []).append(broker)
    return {
        f"broker {', '.join(map(str, numbers))}": dict(zip(LOOKED_AT, key, strict=True))
        for key, numbers in together.items()
    }


def _version(facts: KafkaFacts) -> Iterator[Finding]:
    if facts.apis is None:
        return
    for api, (version, release, purpose) in NEEDED_APIS.items():
        found_version = facts.apis.get(api, -1)
        if found_version < version:
            yield report(
                "kafka-old",
                f"a broker supports {api} up to version {found_version}, the relay needs version "
                f"{version} ({purpose})",
                f"upgrade the brokers to Kafka {release} or later",
            )


def _copies(settings: Settings, facts: KafkaFacts) -> int:
    """How many replicas a topic gets that the relay creates; 0: not known."""
    source = facts.topics.get(settings.source.topic)
    return copies(settings.kafka.replication, source.replicas if source else 0)


def _replication(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    wanted, brokers = _copies(settings, facts), len(facts.brokers)
    up = several(brokers, "broker is up", "brokers are up")
    says = f"the topics that the relay creates get {several(wanted, 'replica')}"
    origin = (
        f"kafka.replication = {wanted}"
        if settings.kafka.replication
        else "as the source topic has, since kafka.replication is not set"
    )
    if wanted > brokers:
        yield report(
            "replication-impossible",
            f"{says} ({origin}), but only {up}",
            f"start the other brokers, or set kafka.replication = {brokers}",
        )
    elif 0 < wanted < SAFE_COPIES:
        yield report(
            "replication-low",
            f"{says} ({origin}), and {up}",
            few_brokers(settings, facts, names.journal_topic(settings.app))
            or f"in production, set kafka.replication = {SAFE_COPIES} before the first start",
        )


def _transactions(
    settings: Settings, brokers: str, values: Values, facts: KafkaFacts
) -> Iterator[Finding]:
    wanted_ms = round(settings.relay.transaction_timeout_seconds * 1000)
    most_ms = number(values, "transaction.max.timeout.ms")
    if most_ms is not None and wanted_ms > most_ms:
        yield report(
            "transaction-timeout",
            f"relay.transaction_timeout_seconds is {wanted_ms} ms, but {brokers} allow at most "
            f"transaction.max.timeout.ms = {most_ms}",
            f"set relay.transaction_timeout_seconds = {most_ms / 1000:g}, or "
            + set_brokers(("transaction.max.timeout.ms", wanted_ms)),
        )
    low = [
        f"{name} = {value}"
        for name, least in STATE.items()
        if (value := number(values, name)) is not None and value < least
    ]
    if low:
        yield report(
            "state-replication",
            f"{brokers}: {', '.join(low)}",
            few_brokers(settings, facts, names.journal_topic(settings.app))
            or set_brokers(*STATE.items())
            + " before the first use; topics that exist: kafka-reassign-partitions",
        )


def _group(
    settings: Settings, brokers: str, values: Values, outage_seconds: float
) -> Iterator[Finding]:
    session_ms = round(settings.relay.session_timeout_seconds * 1000)
    least_ms = number(values, "group.min.session.timeout.ms") or 0
    most_ms = number(values, "group.max.session.timeout.ms")
    if session_ms < least_ms or (most_ms is not None and session_ms > most_ms):
        yield report(
            "session-timeout",
            f"relay.session_timeout_seconds is {session_ms} ms, but {brokers} allow {least_ms} to "
            f"{most_ms} (group.min/max.session.timeout.ms)",
            "set relay.session_timeout_seconds within these bounds, or widen the brokers' bounds",
        )
    minutes = number(values, "offsets.retention.minutes")
    if minutes is not None and minutes * 60 < outage_seconds:
        yield report(
            "offsets-retention",
            f"{brokers}: offsets.retention.minutes = {minutes} ({span(minutes * 60)}), but an "
            f"outage may last {span(outage_seconds)}",
            set_brokers(("offsets.retention.minutes", -(-round(outage_seconds) // 60))),
        )
    room = number(values, "offset.metadata.max.bytes")
    if room is not None and room < METADATA_BYTES:
        yield report(
            "offset-metadata",
            f"{brokers}: offset.metadata.max.bytes = {room}, but the relay needs up to "
            f"{METADATA_BYTES}",
            set_brokers(("offset.metadata.max.bytes", 4096)),
        )


def _trials(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    """Answers to trial requests, but for missing rights, which the module `rights` judges."""
    created = facts.creation
    # Too few brokers are a finding of their own.
    if created is not None and _objects(created, "INVALID_REPLICATION_FACTOR"):
        yield report(
            "creation-refused",
            "the brokers would refuse to create a topic with "
            f"{several(_copies(settings, facts), 'replica')} whose name begins with "
            f"{settings.app}.: {created.code} ({created.text})",
            "change the setting that the brokers' policy names, or create the app's topics "
            "yourself",
        )
    began = facts.transactions
    # A timeout that is too long is a finding of its own where the brokers' setting is known.
    told = "INVALID_TRANSACTION_TIMEOUT" if any(facts.brokers.values()) else ""
    if began is not None and _objects(began, told):
        yield report(
            "transactions-refused",
            f"init_transactions: {began.code} ({began.text})",
            "check the brokers' transaction.* settings, and the state of topic __transaction_state",
        )


def _objects(answer: Trial, told: str) -> bool:
    """Whether a trial failed of something that no other finding tells."""
    return answer.code not in {"", told} and not answer.code.endswith(DENIED)


def _heads(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    """Are the committed floors, and the records that they name, still there?"""
    group, journal = names.group_id(settings.app), names.journal_topic(settings.app)
    source = settings.source.topic
    go_on = NEW_APP if settings.crosses else "`relay accept CONFIG`"
    for index, head in facts.heads.items():
        # A group in another cluster than the journal only shows where relays stand.
        if head.journal_offset is None and not settings.crosses:
            yield report(
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
            yield report(
                "journal-passed",
                f"{journal}[{index}] {begins}{head.journal_start or ''}, and the committed floor "
                f"names its record {head.journal_offset}",
                "keep the source from retention; `relay accept CONFIG` says whether what is left "
                f"of the journal is enough to go on. If it is not, {NEW_APP}. Then "
                + set_topic(settings.kafka, journal, retention_ms=-1),
            )
        if head.floor < head.source_start:
            unread = several(head.source_start - head.floor, "offset was", "offsets were")
            yield report(
                "source-passed",
                f"{source}[{index}] begins at {head.source_start}, but the committed floor is "
                f"{head.floor}: {unread} never read ({PERHAPS_NO_MESSAGE})",
                f"get the messages from elsewhere, or go on without them: {go_on}; then "
                + set_topic(settings.source_kafka, source, retention_ms=-1),
            )


def _clock(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    what = clock_error("the brokers'", facts.clock)
    if facts.clock is None or not what:
        return
    mend = "run NTP on this machine and on the brokers (timedatectl set-ntp true)"
    yield report("broker-clock", what, mend)
    for topic, there in facts.topics.items():
        values = there.settings or {}
        limit = number(values, "message.timestamp.after.max.ms")
        written = topic != settings.source.topic
        by_ours = values.get("message.timestamp.type") != APPENDED
        if written and by_ours and limit is not None and -facts.clock.ahead_seconds * 1000 > limit:
            yield report(
                "broker-clock-refuses",
                f"{what}; {topic} takes records up to {span(limit / 1000)} ahead "
                "(message.timestamp.after.max.ms)",
                f"{mend}; or {set_topic(settings.kafka, topic, message_timestamp_type=APPENDED)}",
            )
