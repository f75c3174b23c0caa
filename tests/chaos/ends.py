"""Where everything ends: committed offsets, the journal's heads, last stable offsets and high
watermarks, as kafka-python reads them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import kafka
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from relay.records_pb2 import Commit
from tests.chaos.facts import visible

if TYPE_CHECKING:
    from tests.chaos.servers import Servers

NEVER = -1
"""kafka-python's committed offset of a group that has none."""


@dataclass(frozen=True, slots=True)
class Head:
    """The committed offset of a source partition, and the journal's last visible record.

    Attributes:
        committed: (floor, n, journal offset), or None if the group has none.
        journal: the same of the record.
    """

    partition: int
    committed: tuple[int, int, int] | None
    journal: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Stable:
    """Both ends of a partition."""

    topic: str
    partition: int
    stable: int
    high: int


def heads(servers: Servers) -> list[Head]:
    """Committed offsets beside the journal's heads; they are read one after the other."""
    group_says = committed(servers)
    last: dict[int, tuple[int, int, int]] = {}
    for record in visible(servers, servers.journal):
        commit = Commit.FromString(record.value)
        last[record.partition] = commit.floor, commit.n, record.offset
    return [Head(p, group_says.get(p), last.get(p)) for p in sorted(group_says.keys() | last)]


def committed(servers: Servers) -> dict[int, tuple[int, int, int]]:
    """(floor, n, journal offset) of the partitions for which the group has any."""
    admin = KafkaAdminClient(bootstrap_servers=servers.bootstrap.split(","))
    group = f"{servers.app}.relay"
    entries = admin.list_group_offsets({group: None})[group]
    admin.close()
    found = {}
    for place, entry in entries.items():
        if entry.offset != NEVER:
            told = json.loads(entry.metadata.rstrip("\0"))  # the binding counts C's NUL in
            found[place.partition] = entry.offset, told["n"], told["journal"]
    return found


def floors(servers: Servers) -> dict[int, int]:
    """The group's committed offsets, as far as there are any."""
    return {partition: floor for partition, (floor, _, _) in committed(servers).items()}


def stables(servers: Servers) -> list[Stable]:
    """Last stable offset and high watermark of every partition of the app's topics."""
    admin = KafkaAdminClient(bootstrap_servers=servers.bootstrap.split(","))
    topics = [t for t in admin.list_topics() if t.startswith(f"{servers.app}.")]
    admin.close()
    found = []
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        reader = kafka.KafkaConsumer(
            bootstrap_servers=servers.bootstrap.split(","), isolation_level=isolation, group_id=None
        )
        places = [TopicPartition(t, p) for t in topics for p in reader.partitions_for_topic(t)]
        ends.append(reader.end_offsets(places))
        reader.close()
    for place, stable in sorted(ends[0].items()):
        found.append(Stable(place.topic, place.partition, stable, ends[1][place]))
    return found
