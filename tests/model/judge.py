"""Judges the logs and tables of the model by themselves: it knows nothing of relay.core.step.

Receives the in-memory Kafka and ClickHouse, gives the anomalies by name. All it goes by is
what a read_committed reader would see, now or once no open transaction is in its way.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from relay.core.state import Fencing
from tests.model.kafka import Kafka
from tests.model.kafka import Phase as TransactionPhase
from tests.model.records import DEAD, JOURNAL, SOURCE, Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.core.offsets import CommittedOffset
    from relay.core.records import JournalRecord
    from tests.model.loader import ClickHouse


def anomalies(kafka: Kafka, clickhouse: ClickHouse) -> list[str]:
    """What is wrong now, whatever is still to come; empty while markers are being written."""
    if any(t.phase is TransactionPhase.PREPARED for t in kafka.transactions.values()):
        return []
    found: list[str] = []
    for partition in partitions(kafka):
        records = kafka.log((JOURNAL, partition)).decided()
        found += chain(partition, [record for _, record in records])
        judge = _committed if kafka.fencing is Fencing.GROUP else _shown
        found += judge(partition, kafka.offsets.get(partition), records)
        found += _contents(kafka, partition, [record for _, record in records])
    return found + list(_doubled_rows(clickhouse))


def unfinished(kafka: Kafka, clickhouse: ClickHouse, *, loading: bool) -> list[str]:
    """What should have happened by now, once all is quiet; `loading`: loaders ran too."""
    found: list[str] = []
    loaded = {(table, p, offset) for table, p, _, offset in clickhouse.rows}
    for partition in partitions(kafka):
        source = kafka.log((SOURCE, partition)).decided()
        covered = set(_sealed_offsets(kafka, partition))
        found += [f"stuck: {partition}@{o} is in no block" for o, _ in source if o not in covered]
        found += [
            f"not loaded: {m.table} {partition}@{o}"
            for o, m in source
            if loading and not m.bad and o in covered and (m.table, partition, o) not in loaded
        ]
    found += [
        f"hanging transaction: {tid}"
        for tid, t in kafka.transactions.items()
        if t.phase in (TransactionPhase.ONGOING, TransactionPhase.PREPARED)
    ]
    return found


def partitions(kafka: Kafka) -> list[int]:
    return sorted(p for topic, p in kafka.logs if topic == SOURCE)


def chain(partition: int, records: list[JournalRecord]) -> Iterator[str]:
    """Floors and n connect; positions and floors go forward; counts meet at flush points."""
    floor, n, reference, counted = 0, 0, 0, 0
    marks: dict[str, int] = {}
    for record in records:
        if record.previous_floor != floor:
            yield f"gap: {partition}: floor {record.previous_floor} follows {floor}"
        if record.n != n + 1:
            yield f"gap: {partition}: n={record.n} follows {n}"
        if not floor <= record.floor <= record.position:
            yield f"backward: {partition}: {floor}, then {record.floor}, {record.position}"
        new = {mark.table: mark.offset for mark in record.marks}
        for table, mark in marks.items():
            if max(new.get(table, 0), record.floor) < mark:
                yield f"backward: {partition}: mark of {table} was {mark}"
        if any(mark <= record.floor for mark in new.values()):
            yield f"backward: {partition}: a mark is not above the floor {record.floor}: {new}"
        if record.reference != reference:
            yield f"reference: {partition}: {record.reference} is not {reference}"
        counted += sum(
            r.dead_messages + (r.block.messages if r.block else 0) for r in record.results
        )
        if record.flush_point != (record.floor == record.position and not new):
            yield f"flush point: {partition}: wrongly said at n={record.n}"
        if record.flush_point:
            if counted != record.count:
                yield f"gap: {partition}: {record.count} messages counted, {counted} in blocks"
            reference, counted = record.floor, 0
        floor, n, marks = record.floor, record.n, new


def _committed(
    partition: int, committed: CommittedOffset | None, records: list[tuple[int, JournalRecord]]
) -> Iterator[str]:
    head = None if not records else (records[-1][1].floor, records[-1][1].n, records[-1][0])
    found = None if committed is None else (committed.floor, committed.n, committed.journal_offset)
    if head != found:
        yield f"torn: {partition}: committed offset {found} is not the journal's head {head}"


def _shown(
    partition: int, shown: CommittedOffset | None, records: list[tuple[int, JournalRecord]]
) -> Iterator[str]:
    """It may lag, but names a record that is there."""
    there = {(record.floor, record.n, offset) for offset, record in records}
    if shown is not None and (shown.floor, shown.n, shown.journal_offset) not in there:
        yield f"torn: {partition}: the group shows {shown}, which no journal record is"


def _contents(kafka: Kafka, partition: int, records: list[JournalRecord]) -> Iterator[str]:
    """Blocks and dead letters against the source: once, in order, nothing left out."""
    source = dict(kafka.log((SOURCE, partition)).decided())
    yield from _listed(kafka, partition, records)
    sealed = Counter(_sealed_offsets(kafka, partition))
    for offset, times in sealed.items():
        if offset not in source:
            yield f"aborted read: {partition}@{offset}"
        if times > 1:
            yield f"duplicate: {partition}@{offset} is in {times} blocks"
    if records:
        marks = {mark.table: mark.offset for mark in records[-1].marks}
        for offset, message in source.items():
            if offset < max(records[-1].floor, marks.get(message.table, 0)) and not sealed[offset]:
                yield f"lost: {partition}@{offset} of {message.table} is in no block"
            if offset >= max(records[-1].floor, marks.get(message.table, 0)) and sealed[offset]:
                yield f"torn: {partition}@{offset} of {message.table} is in a block, not passed"
    for topic, p in kafka.logs:
        if topic.startswith("blocks.") and p == partition:
            rows = [o for _, c in kafka.log((topic, p)).decided() for o in c.rows]
            if rows != sorted(rows):
                yield f"order: {topic} {partition}: {rows}"
            if any(source[o].table != topic.removeprefix("blocks.") for o in rows if o in source):
                yield f"wrong table: {topic} {partition}: {rows}"


def _listed(kafka: Kafka, partition: int, records: list[JournalRecord]) -> Iterator[str]:
    """The visible chunks are exactly those of the journal's blocks, whose ids are unique."""
    results = [result for record in records for result in record.results]
    blocks = {r.seal.block_id: r for r in results}
    if len(blocks) != len(results):
        yield f"duplicate: a block id is used twice in partition {partition}"
    visible: dict[str, list[tuple[int, Chunk]]] = {}
    for topic, p in kafka.logs:
        if topic.startswith("blocks.") and p == partition:
            for offset, chunk in kafka.log((topic, p)).decided():
                visible.setdefault(chunk.block, []).append((offset, chunk))
    for block_id in visible.keys() - blocks.keys():
        yield f"torn: block {block_id} is visible, and no journal record lists it"
    for block_id, result in blocks.items():
        chunks = visible.get(block_id, [])
        block = result.block
        if block is None:
            continue
        if [c.seq for _, c in chunks] != list(range(block.chunks)):
            yield f"torn: block {block_id} is listed, visible chunks {[c.seq for _, c in chunks]}"
        elif (chunks[0][0], chunks[-1][0] + 1) != (block.first_offset, block.next_offset):
            yield f"torn: block {block_id} is not where the journal says"
        if sum(len(c.rows) for _, c in chunks) != block.rows and chunks:
            yield f"rows: block {block_id} has not the {block.rows} rows journalled"
    dead = len(kafka.log((DEAD, partition)).decided())
    if dead != sum(result.dead_messages for result in results):
        yield f"torn: {dead} dead letters are not those of the journal of partition {partition}"


def _sealed_offsets(kafka: Kafka, partition: int) -> Iterator[int]:
    """Source offsets in visible blocks and dead letters, each as often as it is there."""
    for topic, p in kafka.logs:
        if p == partition and topic.startswith("blocks."):
            for _, chunk in kafka.log((topic, p)).decided():
                yield from chunk.rows
        elif p == partition and topic == DEAD:
            yield from (letter.offset for _, letter in kafka.log((topic, p)).decided())


def _doubled_rows(clickhouse: ClickHouse) -> Iterator[str]:
    rows = Counter((table, p, offset) for table, p, _, offset in clickhouse.rows)
    for row, times in rows.items():
        if times > 1:
            yield f"duplicate: row {row} is {times} times in ClickHouse"
