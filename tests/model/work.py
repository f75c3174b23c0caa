"""What a model process does with its partitions: reads their truth, forms their blocks.

Receives a seal or partitions, gives what relay.process.truth and relay.process.perform give in
production.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from relay.core.block_bound import DENSE, block_bytes
from relay.core.buffering import split_buffer
from relay.core.offsets import CommittedOffset
from relay.core.records import PartitionTruth, SealedBlock, SealResult
from tests.model.kafka import NotNowError
from tests.model.records import DEAD, JOURNAL, SOURCE, Chunk, DeadLetter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from relay.core.records import JournalEnd
    from relay.core.state import Seal
    from tests.model.kafka import Kafka
    from tests.model.producer import Producer

CHUNK_MESSAGES = 2
SPARSE = DENSE + 1
"""Times their messages' bytes that rows take as columns here: denser ones are cut nowhere."""


def stable_ends(kafka: Kafka, partitions: Iterable[int]) -> dict[int, int]:
    """The journal's stable ends. Asked before the committed offsets, so that a record which
    becomes visible later than those is not taken for a disagreement."""
    return {p: kafka.log((JOURNAL, p)).last_stable for p in partitions}


def read_truth(
    kafka: Kafka, partitions: Iterable[int], ends: dict[int, int]
) -> tuple[PartitionTruth, ...]:
    """Committed floor, the journal record that it names, and how many are visible behind it."""
    found = []
    for partition in sorted(partitions):
        committed = kafka.fetch_offset(partition)
        journal = kafka.log((JOURNAL, partition))
        record, after = None, 0
        if committed is not None:
            after = committed.journal_offset + 1
            record = journal.entries[committed.journal_offset].value
        later = len(journal.committed(after, ends[partition]))
        end = len(kafka.log((SOURCE, partition)).entries)
        found.append(PartitionTruth(partition, committed, record, later, "id", 0, end, 0))
    return tuple(found)


def read_heads(kafka: Kafka, ends: Mapping[int, JournalEnd]) -> tuple[PartitionTruth, ...]:
    """The journal's last visible record before `ends`, once all is decided there."""
    found = []
    for partition, end in sorted(ends.items()):
        journal = kafka.log((JOURNAL, partition))
        if journal.last_stable < end.offset:
            raise NotNowError
        committed = record = None
        if visible := journal.committed(0, end.offset):
            offset, record = visible[-1]
            committed = CommittedOffset(record.floor, record.n, offset)
        log_end = len(kafka.log((SOURCE, partition)).entries)
        one = PartitionTruth(partition, committed, record, 0, "id", 0, log_end, 0)
        found.append(replace(one, shown=end.shown))
    return tuple(found)


def form(
    kafka: Kafka, producer: Producer, seal: Seal, offsets: tuple[int, ...], most: int
) -> SealResult:
    """Chunks and dead letters of one seal, into the transaction; a block takes about `most`."""
    assert offsets[0] == seal.buffer.first_offset
    assert len(offsets) == seal.buffer.messages
    source = kafka.log((SOURCE, seal.partition))
    sizes = [source.entries[o].value.size for o in offsets]
    bound = block_bytes(most, sum(sizes))
    fitting = max(1, sum(SPARSE * size <= bound for size in accumulate(sizes)))
    left = None
    if fitting < len(offsets):
        end, behind = offsets[fitting - 1] + 1, offsets[fitting]
        of_both = sum(sizes[:fitting]), sum(sizes[fitting:])
        taken, left = split_buffer(seal.buffer, fitting, end, behind, of_both)
        seal, offsets = replace(seal, buffer=taken), offsets[:fitting]
    good = [o for o in offsets if not source.entries[o].value.bad]
    bad = [o for o in offsets if source.entries[o].value.bad]
    topic = f"blocks.{seal.table}"
    places = [
        producer.send(kafka, (topic, seal.partition), Chunk(seal.block_id, seq, rows))
        for seq, rows in enumerate(_chunks(good))
    ]
    for offset in bad:
        producer.send(kafka, (DEAD, seal.partition), DeadLetter(seal.partition, offset))
    block = None
    if places:
        size = sum(source.entries[o].value.size for o in good)
        block = SealedBlock(
            topic, places[0], places[-1] + 1, len(places), len(good), len(good), size, 0, 1
        )
    return SealResult(seal, block, len(bad), "bad" if bad else "", left=left)


def _chunks(offsets: list[int]) -> list[tuple[int, ...]]:
    return [tuple(offsets[i : i + CHUNK_MESSAGES]) for i in range(0, len(offsets), CHUNK_MESSAGES)]
