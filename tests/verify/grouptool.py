"""A consumer group's offset moved by Kafka's own tool, as an operator does it by mistake.

Receives group, topic, partition and offset; gives the time at which the brokers recorded it.
The tool's jars come as the broker's do.
"""

from __future__ import annotations

import os
import struct
import subprocess
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from relay.dev import jars
from relay.program import java
from tests.broker.pipeline import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
HASTE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
SECONDS = 90.0
OFFSETS = "__consumer_offsets"


def classpath() -> list[Path]:
    """Of `kafka-consumer-groups`."""
    return jars.resolve(f"org.apache.kafka:kafka-tools:{jars.KAFKA_VERSION}", print)


def reset(bootstrap: str, group: str, place: TopicPartition) -> int:
    """Move the group's offset to that of `place`; Unix milliseconds when the brokers wrote it.

    Waits for the group to be empty: the tool refuses an active one.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def empty() -> bool:
        state = admin.describe_consumer_groups([group])[group].result(30).state
        return bool(state == ConsumerGroupState.EMPTY)

    wait_until(empty, f"the end of the last session in {group}")
    command = [str(java.require()), *HASTE, "-cp", os.pathsep.join(map(str, classpath())), TOOL]
    command += ["--bootstrap-server", bootstrap, "--group", group, "--reset-offsets"]
    command += ["--topic", f"{place.topic}:{place.partition}", "--to-offset", str(place.offset)]
    done = subprocess.run(
        [*command, "--execute"], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = [group, place.topic, str(place.partition), str(place.offset)]
    assert row in [line.split() for line in done.stdout.splitlines()], done.stdout + done.stderr
    return _written_at_ms(bootstrap, group, place)


def _written_at_ms(bootstrap: str, group: str, place: TopicPartition) -> int:
    """When the last offset of this group and partition was written, by the brokers' own record."""
    names = (group.encode(), place.topic.encode())
    key = struct.pack(">h", 1) + b"".join(struct.pack(">h", len(name)) + name for name in names)
    key += struct.pack(">i", place.partition)
    reader = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": f"{group}.judge",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        indexes = reader.list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions
        read = [message for index in indexes for message in _visible(reader, index)]
    finally:
        reader.close()
    times = [message.timestamp()[1] for message in read if message.key() == key]
    assert times, f"no offset of {group} for {place}"
    return max(times)


def _visible(reader: Consumer, index: int) -> list[Message]:
    """The records of one partition of the brokers' offsets topic."""
    at = TopicPartition(OFFSETS, index)
    at.offset, high = reader.get_watermark_offsets(at, timeout=30)
    found: list[Message] = []
    if at.offset == high:
        return found
    reader.assign([at])

    def ended() -> bool:
        found.extend(reader.consume(5_000, 0.05))
        return bool(reader.position([at])[0].offset >= high)

    wait_until(ended, f"the end of {OFFSETS}[{index}]")
    return found
