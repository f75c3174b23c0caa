"""What a campaign left behind, read by a client library and by decoders that the product does
not use: kafka-python for the topics, ClickHouse's own Arrow for the tables.

Receives the servers, gives facts for tests.chaos.judges. It judges nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import kafka
import numpy as np
import pyarrow as pa
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from relay.records_pb2 import Commit
from tests.chaos import rows
from tests.chaos.lost import Deleted
from tests.chaos.rows import TABLES, Range, Rows
from tests.chaos.servers import LEDGER
from tests.chaos.tables import name, seen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from clickhouse_connect.driver.client import Client

    from relay.records_pb2 import Block
    from tests.chaos.lost import Absence
    from tests.chaos.rows import Numbers, Table
    from tests.chaos.servers import Servers
    from tests.chaos.truth import Truth

READ_SECONDS = 180.0
_INDEX = {name(table): index for index, table in enumerate(TABLES)}

logging.getLogger("kafka").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Seen:
    """A source message that a read_committed reader sees."""

    partition: int
    offset: int
    rows: Range
    meant: str
    sent_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Chunks:
    """All visible chunks of a partition of a block topic.

    Attributes:
        rows: in the topic's order; a chunk may have those of several source partitions.
        offsets: of the record that each row is in.
    """

    rows: Rows
    offsets: Numbers


@dataclass(slots=True)
class Facts:
    """All that the judges of a whole campaign go by.

    Attributes:
        blocks: by table and partition of its block topic.
        tables: what they hold, and what they held when they were dropped.
        views: what the views behind some tables have written.
        absences: of tables that were dropped, until they were made anew.
        starts: first offset, and the one before which all was deleted on purpose.
    """

    truth: Truth
    source: list[Seen] = field(default_factory=list)
    blocks: dict[tuple[int, int], Chunks] = field(default_factory=dict)
    tables: dict[int, Rows] = field(default_factory=dict)
    views: dict[int, Rows] = field(default_factory=dict)
    absences: Mapping[int, list[Absence]] = field(default_factory=dict)
    starts: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    dead: list[tuple[int, int, bytes]] = field(default_factory=list)
    journal: dict[int, list[Commit]] = field(default_factory=dict)
    parked: dict[int, int] = field(default_factory=dict)


def visible(
    servers: Servers, topic: str, partitions: Collection[int] | None = None
) -> Iterator[Any]:
    """Every record that a read_committed reader sees of a topic, by partition, in order.

    What was deleted on purpose comes first, as it was read before.
    """
    reader = kafka.KafkaConsumer(
        bootstrap_servers=servers.bootstrap.split(","),
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=8 << 20,
        group_id=None,
    )
    wanted = sorted(partitions or reader.partitions_for_topic(topic) or ())
    places = [TopicPartition(topic, p) for p in wanted]
    try:
        begins, ends = reader.beginning_offsets(places), reader.end_offsets(places)
        for place in places:
            deleted = servers.deleted.get((place.topic, place.partition), Deleted())
            yield from deleted.records
            reader.assign([place])
            reader.seek(place, max(begins[place], deleted.before))
            deadline = time.monotonic() + READ_SECONDS
            while reader.position(place) < ends[place]:
                assert time.monotonic() < deadline, f"{place} was not read up to {ends[place]}"
                for records in reader.poll(timeout_ms=500, max_records=5000).values():
                    yield from (record for record in records if record.offset < ends[place])
    finally:
        reader.close()


def block_topic(servers: Servers, table: Table) -> str:
    """The topic of its blocks."""
    return f"{servers.app}.blocks.{name(table)}"


def source(servers: Servers) -> list[Seen]:
    """The source's visible messages."""
    found = []
    for record in visible(servers, servers.source):
        ranges, meant = rows.parse_header(dict(record.headers)[rows.HEADER])
        found.append(Seen(record.partition, record.offset, ranges, meant, record.timestamp))
    return found


def blocks(servers: Servers) -> dict[tuple[int, int], Chunks]:
    """Read all visible chunks, by table and partition of its block topic."""
    admin = KafkaAdminClient(bootstrap_servers=servers.bootstrap.split(","))
    topics = set(admin.list_topics())
    admin.close()
    found: dict[tuple[int, int], list[tuple[int, Rows]]] = defaultdict(list)
    for index, table in enumerate(TABLES):
        topic = block_topic(servers, table)
        if topic in topics:
            for record in visible(servers, topic):
                found[index, record.partition].append((record.offset, _rows(record.value)))
    return {place: joined(chunks) for place, chunks in found.items()}


def joined(chunks: Sequence[tuple[int, Rows]]) -> Chunks:
    """Join chunks, each with its offset, in order."""
    offsets = np.array([offset for offset, _ in chunks], np.int64)
    sizes = [len(held.numbers) for _, held in chunks]
    return Chunks(rows.joined([held for _, held in chunks]), np.repeat(offsets, sizes))


def rows_of(client: Client, table: str) -> Rows:
    """What ClickHouse holds in a table."""
    return _rows(client.raw_query(f"SELECT p, n, h, v FROM {table}", fmt="ArrowStream"))


def tables(servers: Servers) -> dict[int, Rows]:
    """What the tables hold, and what those held that were dropped."""
    with contextlib.closing(servers.clickhouse()) as client:
        return {
            index: rows.joined([rows_of(client, name(table)), *servers.dropped.rows.get(index, ())])
            for index, table in enumerate(TABLES)
        }


def views(servers: Servers) -> dict[int, Rows]:
    """What the views behind some tables have written."""
    with contextlib.closing(servers.clickhouse()) as client:
        return {i: rows_of(client, seen(table)) for i, table in enumerate(TABLES) if table.viewed}


def count_rows(servers: Servers) -> dict[int, int]:
    """Rows that have arrived, by table: what expires is counted behind its view alone."""
    with contextlib.closing(servers.clickhouse()) as client:

        def count(table: str) -> int:
            return int(client.query(f"SELECT count() FROM {table}").result_rows[0][0])

        found = {}
        for index, table in enumerate(TABLES):
            places = [name(table)] * (not table.expires) + [seen(table)] * table.viewed
            there = {place: count(place) for place in places}
            if name(table) in there:
                there[name(table)] += servers.dropped.count(index)
            found[index] = min(there.values())
        return found


def starts(servers: Servers) -> dict[tuple[str, int], tuple[int, int]]:
    """First offset of each partition of block topics and journal, and what it ought to be."""
    reader = kafka.KafkaConsumer(bootstrap_servers=servers.bootstrap.split(","), group_id=None)
    kept = (servers.journal, f"{servers.app}.blocks.")
    places = [
        TopicPartition(topic, partition)
        for topic in reader.topics()
        if topic.startswith(kept)
        for partition in reader.partitions_for_topic(topic)
    ]
    found = reader.beginning_offsets(places)
    reader.close()
    return {
        (place.topic, place.partition): (
            first,
            servers.deleted.get((place.topic, place.partition), Deleted()).before,
        )
        for place, first in found.items()
    }


def table_of(block: Block) -> int:
    """The index of its table."""
    return _INDEX[block.table]


def parked(servers: Servers) -> dict[int, int]:
    """Rows of parked blocks, by table."""
    client = servers.clickhouse()
    found = client.query(
        "SELECT table, sum(r) FROM (SELECT table, block, any(rows) AS r, "
        "argMax(state, (state = 'loaded', attempt, state != 'prepared')) AS s "
        f"FROM {LEDGER}.ledger "
        "WHERE state != 'position' GROUP BY table, block) WHERE s = 'parked' GROUP BY table"
    ).result_rows
    client.close()
    return {_INDEX[table]: int(count) for table, count in found}


def dead(servers: Servers) -> list[tuple[int, int, bytes]]:
    """(source partition, source offset, value) of every visible dead letter."""
    found = []
    for record in visible(servers, f"{servers.app}.dead"):
        headers = dict(record.headers)
        place = int(headers["source_partition"]), int(headers["source_offset"])
        found.append((*place, record.value))
    return found


def journal(servers: Servers) -> dict[int, list[Commit]]:
    """Visible journal records, by partition."""
    found: dict[int, list[Commit]] = defaultdict(list)
    for record in visible(servers, servers.journal):
        found[record.partition].append(Commit.FromString(record.value))
    return dict(found)


def whole(servers: Servers, truth: Truth) -> Facts:
    """All facts of a campaign that stands still."""
    return Facts(
        truth=truth,
        source=source(servers),
        blocks=blocks(servers),
        tables=tables(servers),
        views=views(servers),
        absences=servers.dropped.absences,
        starts=starts(servers),
        dead=dead(servers),
        journal=journal(servers),
        parked=parked(servers),
    )


def chunk_of(value: bytes) -> Any:
    """A chunk, as the document `topics` says, or what ClickHouse gives, which is one stream."""
    source, parts = pa.BufferReader(value), []
    while source.tell() < len(value):
        parts.append(pa.ipc.open_stream(source).read_all())
    plain = parts.pop() if parts[-1].schema.metadata == {b"part": b"plain"} else None
    *heads, table = parts
    if plain is not None:
        for name in plain.column_names:
            table = _replaced(table, name, plain.column(name))
    for row in heads:
        for name in row.column_names:
            [first], rest = row.column(name).to_pylist(), table.column(name).to_pylist()
            whole = _added_up(first, rest) if isinstance(first, int) else _cut(first, rest)
            table = _replaced(table, name, pa.array(whole))
    return table


def _replaced(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, column)


def _added_up(first: int, steps: list[int]) -> list[int]:
    """Numbers of the campaigns' tables stay in the range of their type."""
    return list(accumulate(steps, initial=first))[1:]


def _cut(text: str | bytes, sizes: list[int]) -> list[bytes]:
    data = text.encode() if isinstance(text, str) else text
    return [data[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _rows(value: bytes) -> Rows:
    table = chunk_of(value)

    def column(name: str, kind: Any) -> Any:
        return table.column(name).to_numpy().astype(kind)

    return Rows(
        column("p", np.int64),
        column("n", np.int64),
        column("h", np.uint64),
        table.column("v").cast(pa.string()).to_pylist(),
    )
