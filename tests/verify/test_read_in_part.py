"""`relay verify --deep` beside relays and loaders at work: what comes while it reads is no fault.

Each case stands beside its control: the same, with nothing at work that explains it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import google_crc32c
import pytest
from confluent_kafka import Message

from relay import names
from relay.config.settings_file import load
from relay.operate.verify import deep
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly
from relay.operate.verify.judge.server_records import SKEW_MS
from relay.records_pb2 import Block, Commit, Share
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.verify import nowhere
from tests.verify.test_live import ran
from tests.verify.test_silent_partitions import LandedElsewhere

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

APP, SOURCE, TABLE = "shop", "source", "d.t"
JOURNAL, BLOCKS = names.journal_topic(APP), names.blocks_topic(APP, TABLE)
NOW = 1_700_000_000_000
VALUE = b"rows of two source partitions"


class Logs:
    """Topics with one record in the block topic; `ends` are those of the journal's partitions."""

    def __init__(self, chunk: Message, ends: Sequence[int]) -> None:
        self._chunk, self._ends = chunk, ends

    def partitions(self, topic: str) -> list[int]:
        if topic == JOURNAL:
            return list(range(len(self._ends)))
        return [0] if topic in {BLOCKS, SOURCE} else []

    def bounds(self, topic: str, _partition: int) -> tuple[int, int]:
        return (0, 2) if topic == BLOCKS else (0, 0)

    def end(self, topic: str, partition: int) -> int:
        return self._ends[partition] if topic == JOURNAL else self.bounds(topic, partition)[1]

    def read(self, topic: str, _partition: int, start: int, end: int) -> Iterator[Message]:
        if topic == BLOCKS and start < end:
            yield self._chunk

    def compacted(self, _topic: str) -> bool:
        return False

    def close(self) -> None:
        pass


def share(partition: int, first_row: int) -> Block:
    """Ten rows of a chunk of twenty, which one transaction has sealed."""
    return Block(
        id=f"{APP}:{TABLE}:{partition}:1:0",
        table=TABLE,
        topic=BLOCKS,
        partition=partition,
        next_offset=1,
        chunks=1,
        rows=10,
        crc32c=google_crc32c.value(VALUE),
        sealed_at_ms=NOW,
        share=Share(first=f"{APP}:{TABLE}:0:1:0", first_row=first_row),
    )


SHARES = [share(0, 0), share(1, 10)]


def found(
    read: int, ends: Sequence[int], before: int, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Texts of anomalies about the chunk.

    Args:
        read: the source partition whose record of the transaction was read; the other's was not.
        ends: of the journal's partitions, each of which was read up to offset 4.
        before: ms between the last record that was read of the other partition and the chunk.
        monkeypatch: takes the servers' places.
    """
    chunk = Message(
        topic=BLOCKS,
        partition=0,
        offset=0,
        key=SHARES[0].id.encode(),
        value=VALUE,
        headers=[("rows", b"20")],
    )
    monkeypatch.setattr(deep, "TopicReader", lambda *_: Logs(chunk, ends))
    monkeypatch.setattr(deep, "Landing", LandedElsewhere)
    settings = nowhere.settings(APP)
    further = deep.Deep(settings, Audit("a", "rows", 1.0))
    for partition in (0, 1):
        further.keep(partition, 0, Commit(n=1, partition=partition, written_at_ms=NOW - before))
    commit = Commit(n=2, partition=read, blocks=[SHARES[read]], written_at_ms=NOW)
    further.keep(read, 2, commit)
    other = Commit(n=2, partition=1 - read, written_at_ms=NOW - before)
    further.keep(1 - read, 2, other)
    told: list[Anomaly] = list(further.judge(lambda _: None))
    return [one.text for one in told if "are of no block" in one.text]


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize(
    ("end", "before", "gap"),
    [
        (6, 60_000, False),  # its record of the transaction is there, and was not read
        (5, 60_000, False),
        (6, -SKEW_MS, False),  # the clock of the relay that wrote before may have been ahead
        (4, 60_000, True),  # the log ends where it was read to: nothing can be missing
        (6, -60_000, True),  # what was read of it is younger than the chunk
    ],
)
def test_a_transaction_of_which_one_partitions_record_was_read(
    read: int, end: int, before: int, gap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its markers came while the journal was read, or an open transaction hides one of them."""
    ends = [4, 4]
    ends[1 - read] = end
    rows = "10 to 20" if read == 0 else "0 to 10"
    expected = [f"rows {rows} of chunk {SHARES[0].id} are of no block"] if gap else []
    assert found(read, ends, before, monkeypatch) == expected


def test_a_partition_of_which_no_record_was_read_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first record of all may be one of the transaction."""
    assert found(0, [4, 4, 1], 60_000, monkeypatch) == []
    assert len(found(0, [4, 4, 0], 60_000, monkeypatch)) == 1


# ---- on real servers


def test_the_logs_of_relays_that_stopped_end_where_they_were_read_to(
    pipeline: Pipeline,  # noqa: F811
) -> None:
    """So each row of a shared chunk has to be of a block that is listed."""
    further = deep.Deep(load(ran(pipeline)), Audit("a", "rows", 1.0))
    journal = pipeline.read(names.journal_topic(pipeline.app), pipeline.partitions)
    for partition, records in journal.items():
        for offset, value, _ in records:
            further.keep(partition, offset, Commit.FromString(value or b""))
    assert further._whole_until_ms == sys.maxsize
    further.close()
