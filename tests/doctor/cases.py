"""For each kind of finding, facts that cause it: what it has to show, and how it is mended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from relay.errors import ErrorPage, Refused, Unavailable
from relay.operate.doctor import examine
from relay.operate.doctor.facts import (
    ClockOffset,
    GroupFloor,
    Replica,
    Setting,
    Topic,
    Trial,
    Tried,
    Unasked,
    View,
)
from relay.operate.doctor.findings import Finding
from relay.operate.doctor.judge.ledger import judge_absence, judge_unmade
from relay.operate.doctor.judge.sample import judge, tallied
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.doctor.healthy import (
    BLOCKS,
    BROKER,
    TABLE,
    clickhouse,
    kafka,
    of_clickhouse,
    of_kafka,
    settings,
    table,
    topic,
    topics,
)

HEAD = GroupFloor(10, '{"n":1,"journal":5}', 5, 10, 5)
FOREIGN = GroupFloor(10, "moved", None, 10, 5)


@dataclass(frozen=True)
class Case:
    """Findings, of which one shows this and is mended by that."""

    findings: Callable[[], list[Finding]]
    shows: str
    mended_by: str
    beside: frozenset[str] = frozenset()
    """Other kinds that the same facts cause."""


def broker(name: str, value: str, shows: str, mended_by: str) -> Case:
    brokers = {number: {**BROKER, name: value} for number in (1, 2, 3)}
    return Case(lambda: of_kafka(kafka(brokers=brokers)), shows, mended_by)


def changed_topic(name: str, mended_by: str, beside: str = "", **values: str) -> Case:
    """Where `name` has other settings than it should; the last of them is what is shown."""
    spoilt = topics()
    before = spoilt[name]
    dotted = {key.replace("_", "."): value for key, value in values.items()}
    spoilt[name] = replace(before, settings={**(before.settings or {}), **dotted})
    shows = f"{list(dotted)[-1]} = {list(dotted.values())[-1]}"
    return Case(lambda: of_kafka(kafka(topics=spoilt)), shows, mended_by, frozenset(beside.split()))


def other_topic(name: str, shows: str, mended_by: str, **changed: Any) -> Case:
    spoilt = topics()
    spoilt[name] = replace(spoilt[name], **changed)
    return Case(lambda: of_kafka(kafka(topics=spoilt)), shows, mended_by)


def by_the_relays_clock() -> dict[str, Topic]:
    """As an earlier version made its journal."""
    made = topic(retention_ms="-1", message_timestamp_type="CreateTime")
    return {**topics(), "app.journal": made}


def told(shows: str, mended_by: str, **changed: Any) -> Case:
    return Case(lambda: of_kafka(kafka(**changed)), shows, mended_by)


def configured(shows: str, mended_by: str, **sections: dict[str, Any]) -> Case:
    return Case(lambda: of_kafka(kafka(), settings(**sections)), shows, mended_by)


def a_table(shows: str, mended_by: str, beside: str = "", **changed: Any) -> Case:
    facts = clickhouse(table(**changed))
    return Case(lambda: of_clickhouse(facts), shows, mended_by, frozenset(beside.split()))


def a_setting(name: str, setting: Setting, shows: str, mended_by: str, **changed: Any) -> Case:
    facts = clickhouse(table(**changed))
    facts = replace(facts, settings={**facts.settings, name: setting})
    return Case(lambda: of_clickhouse(facts), shows, mended_by)


def a_server(shows: str, mended_by: str, **changed: Any) -> Case:
    return Case(lambda: of_clickhouse(clickhouse(**changed)), shows, mended_by)


REPLICATED = {
    "engine": "ReplicatedMergeTree",
    "engine_full": "ReplicatedMergeTree ORDER BY id",
}
SHARED_LEDGER = table(**REPLICATED)


def replicated(
    shows: str, mended_by: str, replica: Replica, beside: str = "", **values: str
) -> Case:
    facts = clickhouse(table(**REPLICATED, replica=replica), ledger=SHARED_LEDGER)
    facts = replace(
        facts,
        settings={**facts.settings, **{name: Setting(value) for name, value in values.items()}},
    )
    return Case(lambda: of_clickhouse(facts), shows, mended_by, frozenset(beside.split()))


THREE = Replica(readonly=False, replicas=3, active=3)
ONE_OF_THREE = clickhouse(ledger=table(**REPLICATED, replica=THREE), servers=("r1 on a",))
TWO = {"url": "http://a:8123,http://b:8123", "insert_quorum": "auto"}
QUORUM = {"url": "http://c:8123", "insert_quorum": "auto"}

JOURNAL = {0: (0, 9), 1: (0, 0)}


def no_ledger(
    shows: str,
    mended_by: str,
    stands: dict[int, int] | None = None,
    elsewhere: tuple[str, ...] = (),
    journal: dict[int, tuple[int, int]] | None = None,
) -> Case:
    seen = clickhouse(ledger=None, elsewhere=elsewhere)
    read = kafka(journal=journal or JOURNAL)
    return Case(lambda: list(judge_absence(settings(), read, seen, stands or {})), shows, mended_by)


def view(select: str = "SELECT id FROM shop.orders", **into: Any) -> View:
    return View("shop.v", select, table(**into), "shop.sums")


def without_topic(name: str) -> dict[str, Topic]:
    return {key: value for key, value in topics().items() if key != name}


NO_WINDOW = "MergeTree ORDER BY id"
NO_COLUMN = {"id": ("Int64", "")}
DENIED = "AUTHORIZATION_FAILED"


NULL = DeadReason(DeadKind.NULL_VALUE, "null value")


def sampled(shows: str, mended_by: str, *reasons: DeadReason | None) -> Case:
    """Of messages of one table with these reasons; None: it is good."""
    judged = [("shop.orders", 3, at, reason) for at, reason in enumerate(reasons)]
    return Case(lambda: list(judge("rows", 100, tallied(judged))), shows, mended_by)


KAFKA: dict[str, Case] = {
    "sample-all-dead": sampled(
        "none of 3 messages can become rows; 2 of them: row 1: 4 is bad (for example rows[3]",
        "source.topic",
        DeadReason(DeadKind.DOES_NOT_FIT, "row 1: 4 is bad", "id"),
        DeadReason(DeadKind.DOES_NOT_FIT, "row 2: 5 is bad", "id"),
        NULL,
    ),
    "sample-dead": sampled(
        "2 of 3 messages of shop.orders cannot become rows; 2 of them: null value (for example "
        "rows[3], offset 1)",
        "producer",
        *(None, NULL, NULL),
    ),
    "sample-empty": sampled("rows holds none of the 100 messages", ""),
    "kafka-away": Case(
        lambda: [examine.no_answer("kafka", Unavailable("no broker", "start it"))],
        "no br",
        "start it",
    ),
    "kafka-refused": Case(
        lambda: [examine.no_answer("kafka", Refused("password", "mend it"))], "password", "mend it"
    ),
    "kafka-old": told(
        "TxnOffsetCommit up to version 2",
        "2.5",
        apis={"TxnOffsetCommit": 2, "OffsetFetch": 9, "Metadata": 13},
    ),
    "replication-impossible": told(
        "replication = 3), but only 1 broker", "kafka.replication = 1", brokers={1: BROKER}
    ),
    "replication-low": configured(
        "kafka.replication = 2", "kafka.replication = 3", kafka={"replication": 2}
    ),
    "transaction-timeout": broker(
        "transaction.max.timeout.ms", "30000", "= 30000", "transaction.max.timeout.ms=40000"
    ),
    "session-timeout": broker(
        "group.max.session.timeout.ms", "30000", "6000 to 30000", "session_timeout_seconds"
    ),
    "offsets-retention": broker(
        "offsets.retention.minutes", "60", "= 60 (1 h)", "offsets.retention.minutes=4320"
    ),
    "offset-metadata": broker(
        "offset.metadata.max.bytes", "10", "= 10", "offset.metadata.max.bytes=4096"
    ),
    "state-replication": broker(
        "offsets.topic.replication.factor",
        "1",
        "factor = 1",
        "offsets.topic.replication.factor=3 in",
    ),
    "auto-create": broker("auto.create.topics.enable", "true", "= true", "=false"),
    "broker-clock": told("10 s ahead of ours", "NTP", clock=ClockOffset(10.0, 0.1)),
    "broker-clock-refuses": Case(
        lambda: of_kafka(kafka(clock=ClockOffset(-3700.0, 0.1), topics=by_the_relays_clock())),
        "1 h behind ours",
        "NTP",
        frozenset({"broker-clock", "topic-clock"}),
    ),
    "topic-clock": changed_topic(
        BLOCKS, "message.timestamp.type=LogAppendTime", message_timestamp_type="CreateTime"
    ),
    "source-missing": told(
        "rows does not exist",
        "relay topic create",
        topics=without_topic("rows"),
        absent=frozenset({"rows"}),
    ),
    "partitions-more": other_topic(
        "app.journal", "13 partitions, the source 12", "another `app`", partitions=13
    ),
    "partitions-fewer": other_topic(
        "app.journal",
        "11 partitions, the source 12",
        "--alter --topic app.journal --partitions 12",
        partitions=11,
    ),
    "topic-unwritable": other_topic(
        BLOCKS, "1 of 3 replicas in sync", "start the brokers that hold", in_sync=1
    ),
    "topic-replication": other_topic(
        BLOCKS, "2 replicas", "kafka-reassign-partitions", replicas=2, in_sync=2
    ),
    "topic-in-sync": changed_topic("app.journal", "min.insync.replicas=2", min_insync_replicas="1"),
    "unclean-election": changed_topic(
        "rows", "leader.election.enable=false", unclean_leader_election_enable="true"
    ),
    "topic-retention": changed_topic("rows", "retention.ms=259200000", retention_ms="3600000"),
    "topic-bytes": changed_topic("rows", "retention.bytes=-1", retention_bytes="1000"),
    "topic-compacted": changed_topic(
        BLOCKS, "cleanup.policy=delete", cleanup_policy="compact,delete"
    ),
    "journal-keepalive": changed_topic(
        "app.journal",
        "retention.ms=-1",
        "journal-retention topic-retention",
        retention_ms="3600000",
    ),
    "journal-retention": Case(
        lambda: of_kafka(kafka(topics={**topics(), "app.journal": topic()})),
        "for 7 d",
        "--entity-name app.journal --add-config retention.ms=-1",
    ),
    "dead-retention": changed_topic("app.dead", "retention.ms=259200000", retention_ms="3600000"),
    "registry-deleted": Case(
        lambda: of_kafka(kafka(topics={**topics(), "app.schemas": replace(topic(), partitions=1)})),
        "cleanup.policy = delete",
        "cleanup.policy=compact",
    ),
    "registry-lost": Case(
        lambda: of_kafka(
            kafka(
                topics={n: t for n, t in topics().items() if n != "app.schemas"},
                absent=frozenset({"app.schemas"}),
                journal={0: (0, 0), 1: (4, 9)},
            )
        ),
        "app.schemas does not exist, but app.journal holds records",
        "relay schema seed CONFIG FILE... --run",
    ),
    "topic-message-bytes": changed_topic(
        BLOCKS, "max.message.bytes=16777216", max_message_bytes="500000"
    ),
    "row-message-bytes": changed_topic(
        BLOCKS, "max.message.bytes=1058588", max_message_bytes="1000000"
    ),
    "dead-message-bytes": changed_topic(
        "app.dead", "max.message.bytes=1068588", max_message_bytes="1000000"
    ),
    "journal-passed": told(
        "begins at 6", "retention.ms=-1", heads={0: replace(HEAD, journal_start=6)}
    ),
    "source-passed": told(
        "3 offsets were never read",
        "`relay accept CONFIG`",
        heads={0: replace(HEAD, source_start=13)},
    ),
    "offset-foreign": told("'moved'", "`relay accept CONFIG`", heads={0: FOREIGN}),
    "right-topic": other_topic(
        BLOCKS,
        "may not Write, and relay must",
        "--operation Write --topic app. --resource-pattern-type prefixed",
        granted=frozenset({"READ", "DESCRIBE"}),
    ),
    "right-group": told(
        "group app.relay", "--operation Read --group app.relay", group_granted=frozenset()
    ),
    "right-transactional-id": told(
        "begin with app.relay.",
        "--operation Write --transactional-id app.relay. --resource-pattern-type prefixed",
        transactions=Trial(f"TRANSACTIONAL_ID_{DENIED}", "no"),
    ),
    "right-create": told(
        "begin with app.",
        "--operation Create --topic app. --resource-pattern-type prefixed",
        creation=Trial(f"TOPIC_{DENIED}", "no"),
    ),
    "creation-refused": told(
        "POLICY_VIOLATION", "policy", creation=Trial("POLICY_VIOLATION", "names")
    ),
    "transactions-refused": told(
        "CLUSTER_DOWN", "__transaction_state", transactions=Trial("CLUSTER_DOWN", "down")
    ),
    "unasked": told(
        "settings of broker 1: no right",
        "ask",
        unasked=(Unasked("settings of broker 1", "no right", "ask"),),
    ),
}

CLICKHOUSE: dict[str, Case] = {
    "ledger-unmade": Case(
        lambda: list(judge_unmade(settings(clickhouse=TWO), clickhouse(ledger=None, elsewhere=()))),
        "there is no ledger relay.ledger, and the loader makes none on 2 replicas",
        f"run on each replica the statements of relay docs {ErrorPage.LEDGER_TABLE}",
    ),
    "ledger-missing": no_ledger(
        "there is no ledger relay.ledger, though app.journal has records: no loader has run yet, "
        "or the ledger was lost",
        "loader run CONFIG; if a loader has run before: loader run CONFIG --once --ledger-lost",
    ),
    "ledger-lost": no_ledger(
        "there is no ledger relay.ledger, but checkpoint c stands at offset 7",
        "loader run CONFIG --once --ledger-lost (relay docs backup#other-losses)",
        stands={0: 7},
    ),
    "clickhouse-away": Case(
        lambda: [examine.no_answer("clickhouse", Unavailable("nobody", "start it"))],
        "nobody",
        "start",
    ),
    "clickhouse-refused": Case(
        lambda: [examine.no_answer("clickhouse", Refused("password", "mend"))], "password", "mend"
    ),
    "clickhouse-old": a_server(
        "insert_deduplication_token",
        "25.8",
        settings={
            name: value
            for name, value in clickhouse().settings.items()
            if name != "insert_deduplication_token"
        },
    ),
    "clickhouse-clock": a_server("10 s behind ours", "NTP", clock=ClockOffset(-10.0, 0.1)),
    "setting-fixed": a_setting(
        "async_insert", Setting("1", fixed=True), "async_insert = 1", "async_insert = 0 WRITABLE"
    ),
    "async-insert": a_setting(
        "async_insert", Setting("1"), "async_insert = 1", "SETTINGS async_insert = 0"
    ),
    "no-targets": a_server("no block topic of app app was seen", "--table", tables={}),
    "table-missing": a_server(TABLE, "CREATE TABLE", tables={TABLE: None}),
    "engine-unfit": a_table("engine Distributed", "own MergeTree", engine="Distributed"),
    "engine-merges": a_table("ReplacingMergeTree", "", engine="ReplacingMergeTree"),
    "window-zero": a_table(
        "non_replicated_deduplication_window = 0",
        "ALTER TABLE shop.orders MODIFY SETTING non_replicated_deduplication_window = 10000",
        "block-column-missing",
        engine_full=NO_WINDOW,
        columns=NO_COLUMN,
    ),
    "window-zero-stamped": a_table(
        "non_replicated_deduplication_window = 0",
        "ALTER TABLE shop.orders MODIFY SETTING non_replicated_deduplication_window = 10000",
        engine_full=NO_WINDOW,
    ),
    "window-short": a_table(
        "non_replicated_deduplication_window = 7",
        "window = 10000",
        "block-column-missing",
        engine_full=f"{NO_WINDOW} SETTINGS non_replicated_deduplication_window = 7",
        columns=NO_COLUMN,
    ),
    "block-column-missing": a_table(
        "no column _block", "ADD COLUMN _block String", columns=NO_COLUMN
    ),
    "block-column-type": a_table(
        "_block is UInt64",
        "MODIFY COLUMN _block String",
        columns={**NO_COLUMN, "_block": ("UInt64", "")},
    ),
    "block-column-computed": a_table(
        "_block is String MATERIALIZED",
        "MODIFY COLUMN _block REMOVE MATERIALIZED",
        columns={**NO_COLUMN, "_block": ("String", "MATERIALIZED")},
    ),
    "columns-unsupported": a_table(
        "column seen of shop.orders: type AggregateFunction(uniq, UInt64) is not supported",
        "relay docs messages#types",
        columns={**table().columns, "seen": ("AggregateFunction(uniq, UInt64)", "")},
    ),
    "block-column-expires": a_table(
        "column _block has a TTL",
        "MODIFY COLUMN _block REMOVE TTL",
        create="CREATE TABLE shop.orders (`_block` String TTL day, `id` Int64) ENGINE = MergeTree",
    ),
    "decided-by": Case(
        lambda: of_clickhouse(clickhouse(), decided=True),
        "shop.orders: whether a block was inserted is decided by the server's answer to the "
        "INSERT, then a count that finds all its rows by _block, then the server's logs, if they "
        "have an INSERT of the block that succeeded, then its deduplication token, inside "
        "the window of 10,000 parts, then the server's logs, if they show that none wrote "
        "anything; then a count that finds none of its rows",
        "",
    ),
    "row-policy": a_table(
        "mine ON shop.orders hides rows from user loader",
        "TO ALL EXCEPT loader",
        policies=("mine ON shop.orders",),
    ),
    "version-untested": a_server("ClickHouse 24.3.1.2", "--try", version="24.3.1.2"),
    "deduplication-ignored": a_server(
        "MergeTree on ClickHouse 26.9.2.1: two INSERTs under one token left each row 2 times in "
        "the table (user loader: deduplicate_insert_select = disable, sent nothing)",
        "ALTER USER loader MODIFY SETTINGS",
        tries=(
            Tried("MergeTree", 2.0, 2.0, {"deduplicate_insert_select": "disable, sent nothing"}),
        ),
    ),
    "deduplication-ignored-views": a_server(
        "1.5 times in a view's table",
        "deduplicate_blocks_in_dependent_materialized_views = 1",
        tries=(Tried("MergeTree", 1.0, 1.5), Tried("ReplicatedMergeTree")),
    ),
    "untried": a_server(
        "MergeTree: no right", "CREATE VIEW", tries=(Tried("MergeTree", problem="no right"),)
    ),
    "ttl": a_table(
        "TTL d + toIntervalYear(1)",
        "expire",
        engine_full="MergeTree ORDER BY id TTL d + "
        "toIntervalYear(1) SETTINGS non_replicated_deduplication_window = 10000",
    ),
    "partitions-per-block": a_table(
        "101 partitions (PARTITION BY id)",
        "max_partitions_per_insert_block = 202",
        partitions=101,
        partition_key="id",
    ),
    "replica-readonly": replicated(
        "read-only",
        "SYSTEM RESTORE REPLICA shop.orders",
        Replica(readonly=True, replicas=3, active=3),
    ),
    "quorum-one": replicated(
        "insert_quorum = 0",
        "insert_quorum = 2",
        Replica(readonly=False, replicas=3, active=3),
        insert_quorum="0",
    ),
    "quorum-unreachable": replicated(
        "insert_quorum = auto of 3 replicas, but only 1 are active",
        "insert_quorum = 1",
        Replica(readonly=False, replicas=3, active=1),
        insert_quorum="auto",
    ),
    "quorum-serial": replicated(
        "insert_quorum_parallel = 0",
        "insert_quorum_parallel = 1",
        Replica(readonly=False, replicas=3, active=3),
        insert_quorum_parallel="0",
    ),
    "replicas-unmet": Case(
        lambda: of_clickhouse(ONE_OF_THREE, settings(clickhouse=QUORUM)),
        "relay.ledger: 3 active replicas, but every connection to clickhouse.url http://c:8123 "
        "reached r1 on a",
        "name each replica in clickhouse.url",
    ),
    "several-servers": a_server(
        "several servers answered at clickhouse.url http://c:8123: r1 on a and r2 on b",
        'clickhouse.insert_quorum = "auto"',
        servers=("r1 on a", "r2 on b"),
    ),
    "ledger-hidden": a_server(
        "mine ON relay.ledger hides rows of the ledger",
        "TO ALL EXCEPT loader",
        ledger=table(policies=("mine ON relay.ledger",)),
    ),
    "ledger-merges": a_server(
        "engine ReplacingMergeTree",
        "ENGINE = MergeTree ORDER BY (app, table, block, attempt)",
        ledger=table(engine="ReplacingMergeTree", engine_full="ReplacingMergeTree ORDER BY app"),
    ),
    "ledger-unfit": a_server(
        "engine Distributed",
        "ENGINE = MergeTree ORDER BY (app, table, block, attempt), or on a cluster "
        "ReplicatedMergeTree under one path for all replicas",
        ledger=table(engine="Distributed", engine_full="Distributed(c, relay, ledger_local)"),
        tables={TABLE: table(**REPLICATED)},
    ),
    "ledger-expires": a_server(
        "rows expire (TTL at + toIntervalDay(90))",
        "REMOVE TTL",
        ledger=table(
            engine_full="MergeTree ORDER BY app TTL at + toIntervalDay(90) SETTINGS x = 1"
        ),
    ),
    "ledger-local": a_server(
        "engine MergeTree, although shop.orders is replicated",
        "ENGINE = ReplicatedMergeTree('/clickhouse/tables/relay.ledger', '{replica}') ORDER BY "
        "(app, table, block, attempt); INSERT INTO relay.ledger SELECT * FROM relay.ledger_local; "
        "then on each other replica what SHOW CREATE TABLE relay.ledger shows here",
        tables={TABLE: table(**REPLICATED)},
    ),
    "view-window": a_table(
        "writes to shop.sums: non_replicated_deduplication_window = 0",
        "ALTER TABLE shop.sums MODIFY SETTING non_replicated_deduplication_window = 10000",
        views=(view(engine_full=NO_WINDOW),),
    ),
    "view-varies": a_table(
        "uses now(), JOIN",
        "MODIFY QUERY",
        views=(view("SELECT id, now() AS at FROM shop.orders JOIN x USING id"),),
    ),
    "right-table": a_table(
        "no INSERT on shop.orders", "GRANT INSERT ON shop.orders TO loader", missing=("INSERT",)
    ),
    "right-evidence": a_server(
        "user loader has no SYSTEM FLUSH LOGS on *.*",
        "GRANT SYSTEM FLUSH LOGS ON *.* TO loader",
        evidence=(("SYSTEM FLUSH LOGS", "*.*"),),
    ),
}

CASES: dict[str, Case] = {**KAFKA, **CLICKHOUSE}
