"""Facts of servers with which nothing is wrong, to be spoilt one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from relay.config.settings import Settings
from relay.operate.doctor import examine
from relay.operate.doctor.facts import (
    ClickHouseFacts,
    ClockOffset,
    GroupFloor,
    KafkaFacts,
    Setting,
    TargetFacts,
    Topic,
    Trial,
)
from relay.operate.doctor.findings import Finding
from relay.operate.doctor.judge import clickhouse as tables
from relay.operate.doctor.judge import rights

OUTAGE = 72 * 3600.0
TABLE = "shop.orders"
BLOCKS = f"app.blocks.{TABLE}"
LARGE = str(16 << 20)

BROKER = {
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.retention.minutes": "10080",
    "offset.metadata.max.bytes": "4096",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "auto.create.topics.enable": "false",
}
KEPT = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 86_400_000),
    "retention.bytes": "-1",
    "max.message.bytes": LARGE,
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}
ALL = frozenset({"READ", "WRITE", "CREATE", "DESCRIBE"})


def settings(**sections: dict[str, Any]) -> Settings:
    given: dict[str, Any] = {
        "app": "app",
        "kafka": {"bootstrap": "b:9092", "replication": 3},
        "source": {"topic": "rows"},
        "clickhouse": {"url": "http://c:8123"},
        "loader": {"checkpoint": "c"},
    }
    for section, values in sections.items():
        given[section] = {**given.get(section, {}), **values}
    return Settings.model_validate(given)


def topic(**changed: str) -> Topic:
    """A topic; `_` in a setting's name stands for a dot."""
    values = {name.replace("_", "."): value for name, value in changed.items()}
    return Topic(12, 3, 3, {**KEPT, **values}, ALL)


def topics() -> dict[str, Topic]:
    registry = replace(topic(cleanup_policy="compact"), partitions=1)
    return {
        "rows": topic(max_message_bytes="1048588"),
        "app.journal": topic(retention_ms="-1"),
        "app.dead": topic(),
        "app.schemas": registry,
        "app.replayed": registry,
        BLOCKS: topic(),
    }


def kafka(**changed: Any) -> KafkaFacts:
    facts = KafkaFacts(
        brokers=dict.fromkeys((1, 2, 3), BROKER),
        topics=topics(),
        apis={"TxnOffsetCommit": 5, "OffsetFetch": 9, "Metadata": 13, "Produce": 13},
        group_granted=frozenset({"READ", "DESCRIBE"}),
        transactions=Trial(),
        creation=Trial(),
        heads={0: GroupFloor(10, '{"n":1,"journal":5}', 5, 10, 5)},
        clock=ClockOffset(0.4, 0.01),
    )
    return replace(facts, **changed)


def table(**changed: Any) -> TargetFacts:
    made = TargetFacts(
        engine="MergeTree",
        engine_full="MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000",
        columns={"id": ("Int64", ""), "_block": ("String", "")},
        partitions=3,
    )
    return replace(made, **changed)


def clickhouse(of_table: TargetFacts | None = None, **changed: Any) -> ClickHouseFacts:
    """A server with the one table `of_table`, or a healthy one."""
    facts = ClickHouseFacts(
        user="loader",
        settings={
            **{name: Setting(value) for name, value in tables.INSERTED_WITH.items()},
            "insert_deduplication_token": Setting(""),
            "readonly": Setting("0"),
            "insert_quorum": Setting("2"),
            "insert_quorum_parallel": Setting("1"),
            "max_partitions_per_insert_block": Setting("100"),
        },
        windows={
            "merge_tree_settings": {"non_replicated_deduplication_window": "0"},
            "replicated_merge_tree_settings": {
                "replicated_deduplication_window": "10000",
                "replicated_deduplication_window_seconds": "604800",
            },
        },
        tables={TABLE: of_table or table()},
        ledger=table(),
        clock=ClockOffset(-0.2, 0.01),
        version="26.9.2.1",
    )
    return replace(facts, **changed)


def of_kafka(facts: KafkaFacts, given: Settings | None = None) -> list[Finding]:
    return list(examine.judge_kafka(given or settings(), facts, OUTAGE))


def of_clickhouse(
    facts: ClickHouseFacts, given: Settings | None = None, *, decided: bool = False
) -> list[Finding]:
    """Every finding; of how blocks are decided, which is said of each table, only if wanted."""
    every = [
        *tables.judge(given or settings(), facts, OUTAGE),
        *rights.judge_clickhouse(facts),
        *examine.unasked(facts.unasked),
    ]
    return [finding for finding in every if decided or finding.code != "decided-by"]


def codes(findings: Iterable[Finding]) -> set[str]:
    return {finding.code for finding in findings}
