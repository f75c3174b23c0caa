"""Small blocks of several partitions are read at once, and each gets its own chunks."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition

from loader.blocks import block_order, fetch
from loader.blocks.block_order import together
from loader.blocks.fetch import Damaged, Fetcher
from relay.blocks import chunks
from relay.config.settings import Kafka
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "a.blocks.d.t"


class Record:
    """A message, as far as it is looked at."""

    def __init__(self, block: Block, sequence: int, value: bytes, error: int = 0) -> None:
        self._block, self._sequence, self._value = block, sequence, value
        self._error = KafkaError(error) if error else None

    def topic(self) -> str:
        return self._block.topic

    def partition(self) -> int:
        return self._block.partition

    def offset(self) -> int:
        return self._block.first_offset + self._sequence

    def key(self) -> bytes:
        return self._block.id.encode()

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        lists = [(f"messages.{p}", f"of {p}".encode()) for p in range(3)]
        return [("seq", str(self._sequence).encode()), ("messages", b"of its own"), *lists]

    def error(self) -> KafkaError | None:
        return self._error


class Reader:
    """A log by partition; assigned ones deliver a message each in turn, the last one first."""

    def __init__(self, log: dict[int, list[Record]]) -> None:
        self._log = log
        self._queues: list[deque[Record]] = []
        self.assigned: list[list[int]] = []
        self.listed: list[str] = []
        self.widths = [9]
        """Of the topic, each time that it is asked about; the last one from then on."""
        self.resting = True
        self.polls = 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout > 0
        self.listed.append(topic)
        width = self.widths.pop(0) if len(self.widths) > 1 else self.widths[0]
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=range(width))})

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned.append([place.partition for place in places])
        self.resting = False
        self._queues = [
            deque(one for one in self._log[place.partition] if one.offset() >= place.offset)
            for place in reversed(places)
        ]

    def unassign(self) -> None:
        self._queues = []
        self.resting = True

    def poll(self, _: float) -> Record | None:
        self.polls += 1
        for _ in self._queues:
            queue = self._queues.pop(0)
            self._queues.append(queue)
            if queue:
                return queue.popleft()
        return None


def sealed(partition: int, first: int, values: Sequence[bytes], **changes: Any) -> Block:
    made = Block(
        id=f"a:d.t:{partition}:0:{first}",
        table="d.t",
        topic=TOPIC,
        partition=partition,
        first_offset=first,
        next_offset=first + len(values),
        chunks=len(values),
        crc32c=chunks.crc32c(values),
        rows=2 * len(values),
        row_bytes=100,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def values(number: int, count: int = 2) -> list[bytes]:
    """Chunks of two rows each, of which only this block has such."""
    batches = [pa.record_batch({"n": [10 * number + n, -n]}) for n in range(count)]
    return [chunks.Encoder(10**6).encode(batch)[0][0] for batch in batches]


@pytest.fixture
def blocks() -> list[Block]:
    """Of three partitions, a marker's offset behind each but the last; of the first two."""
    firsts = [(0, 0), (1, 0), (2, 0), (0, 3)]
    return [sealed(p, first, values(n)) for n, (p, first) in enumerate(firsts)]


def fetcher(
    monkeypatch: pytest.MonkeyPatch, blocks: Sequence[Block]
) -> tuple[Fetcher, Reader, dict[int, list[Record]]]:
    log: dict[int, list[Record]] = {}
    for number, block in enumerate(blocks):
        of_partition = log.setdefault(block.partition, [])
        of_partition += [Record(block, n, value) for n, value in enumerate(values(number))]
    reader = Reader(log)
    monkeypatch.setattr(fetch, "PartitionReader", lambda _: reader)
    return Fetcher(Kafka(bootstrap="127.0.0.1:1")), reader, log


def rows(number: int) -> list[int]:
    return [10 * number, 0, 10 * number + 1, -1]


def test_blocks_of_several_partitions_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    """All but one were delivered before they were wanted; nothing was asked for twice."""
    one, reader, _ = fetcher(monkeypatch, blocks)

    for at, block in enumerate(blocks, 1):
        assert one.fetch(block, blocks[at:]).column("n").to_pylist() == rows(at - 1)
    assert reader.assigned == [[0, 1, 2]]
    assert reader.listed == [TOPIC]


def test_once_all_have_come_the_broker_is_not_asked_any_more(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    """Their INSERTs take a while; at a partition's end the client would ask again all the time."""
    one, reader, _ = fetcher(monkeypatch, blocks)

    for at, block in enumerate(blocks, 1):
        one.fetch(block, blocks[at:])
        assert reader.resting
    assert reader.polls == sum(block.chunks for block in blocks)


def test_one_that_does_not_come_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    """The broker that leads its partition may be away: it is waited for when it is wanted."""
    one, reader, log = fetcher(monkeypatch, blocks)
    late, log[2] = log[2], []

    assert one.fetch(blocks[0], blocks[1:3]).column("n").to_pylist() == rows(0)
    assert one.fetch(blocks[1], blocks[2:3]).column("n").to_pylist() == rows(1)
    assert reader.assigned == [[0, 1, 2]]
    log[2] = late
    assert one.fetch(blocks[2]).column("n").to_pylist() == rows(2)
    assert reader.assigned == [[0, 1, 2], [2]]


def test_after_small_blocks_a_large_one_is_read_and_the_next_small_ones_behind_it(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    blocks[2].row_bytes = block_order.AT_ONCE_BYTES
    blocks[3].partition = 3
    blocks.append(sealed(4, 0, values(4)))
    one, reader, _ = fetcher(monkeypatch, blocks)

    for at, block in enumerate(blocks, 1):
        assert one.fetch(block, blocks[at:]).column("n").to_pylist() == rows(at - 1)
    assert reader.assigned == [[0, 1], [2], [3, 4]]


def test_in_another_order_each_still_gets_its_own(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    """What comes next is a guess: here the last one first, so all is read again."""
    one, reader, _ = fetcher(monkeypatch, blocks)
    one.fetch(blocks[0], blocks[1:])

    for at in (3, 1, 2, 0):
        assert one.fetch(blocks[at]).column("n").to_pylist() == rows(at)
    assert reader.assigned[0] == [0, 1, 2]
    assert reader.assigned[-1] == [0]


def test_what_is_too_much_to_keep_is_read_again(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    monkeypatch.setattr(fetch, "_EARLY_BYTES", len(values(2)[0]))
    one, reader, _ = fetcher(monkeypatch, blocks)

    for at, block in enumerate(blocks[:3], 1):
        assert one.fetch(block, blocks[at:3]).column("n").to_pylist() == rows(at - 1)
    assert len(reader.assigned) > 1


def test_an_error_elsewhere_is_the_other_blocks(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    one, _, log = fetcher(monkeypatch, blocks)
    log[2] = [Record(blocks[2], 0, b"", KafkaError._AUTO_OFFSET_RESET)]

    for at, block in enumerate(blocks[:2], 1):
        assert one.fetch(block, blocks[at:3]).column("n").to_pylist() == rows(at - 1)
    with pytest.raises(Damaged):
        one.fetch(blocks[2])


def test_control_anothers_chunks_are_noticed(
    monkeypatch: pytest.MonkeyPatch, blocks: list[Block]
) -> None:
    """Control: were chunks given to the wrong block, it would not be taken."""
    one, _, log = fetcher(monkeypatch, blocks)
    log[1] = log[2]
    for record in log[1]:
        record._block = blocks[1]

    with pytest.raises(Damaged, match="CRC"):
        one.fetch(blocks[1])


def test_large_blocks_are_read_alone_and_the_nearest_of_each_partition_count() -> None:
    """What is held for later is bounded, in bytes and in number."""
    small = [sealed(n % 200, 10 * n, values(n, 1)) for n in range(400)]
    large = [sealed(n, 0, values(n, 1), row_bytes=block_order.AT_ONCE_BYTES) for n in range(3)]

    near = sealed(3, 31 + block_order.BETWEEN, values(3, 1))
    assert together(large[0], large[1:]) == {(TOPIC, 0): range(1)}
    assert together(small[0], [large[1]]) == {(TOPIC, 0): range(1)}
    assert together(small[3], [small[203], small[4]]) == {
        (TOPIC, 3): range(30, 31),
        (TOPIC, 4): range(40, 41),
    }
    assert together(small[3], [near]) == {(TOPIC, 3): range(30, 32 + block_order.BETWEEN)}
    assert len(together(small[0], small[1:])) == block_order.AT_ONCE


def sharing() -> list[Block]:
    """Three blocks of partitions 0, 1 and 2 whose two, one and one rows are in one chunk."""
    [value] = one_chunk()
    shared = [sealed(p, 40, [value], rows=rows) for p, rows in [(0, 2), (1, 1), (2, 1)]]
    for block, first_row in zip(shared, (0, 2, 3), strict=True):
        block.share.partition, block.share.first_row = 0, first_row
        block.share.first = shared[0].id
    return shared


def one_chunk() -> list[bytes]:
    return [chunks.Encoder(10**6).encode(pa.record_batch({"n": [1, 2, 3, 4]}))[0][0]]


def shared_fetcher(
    monkeypatch: pytest.MonkeyPatch, blocks: Sequence[Block]
) -> tuple[Fetcher, Reader]:
    reader = Reader({0: [Record(blocks[0], 0, one_chunk()[0])]})
    monkeypatch.setattr(fetch, "PartitionReader", lambda _: reader)
    return Fetcher(Kafka(bootstrap="127.0.0.1:1")), reader


def test_a_shared_chunk_is_read_once_and_each_block_has_its_own_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = sharing()
    fetching, reader = shared_fetcher(monkeypatch, blocks)
    found = []
    for at, block in enumerate(blocks):
        rows = fetching.fetch(block, blocks[at + 1 :]).column("n").to_pylist()
        found.append((rows, fetching.messages))
    assert found == [([1, 2], b"of 0"), ([3], b"of 1"), ([4], b"of 2")]
    assert (reader.assigned, reader.polls) == ([[0]], 1)


def test_a_block_alone_is_read_from_the_partition_of_the_chunk_it_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another attempt at one of them; what was read before is not kept while the loader rests."""
    fetching, reader = shared_fetcher(monkeypatch, sharing())
    last = sharing()[2]
    for attempt in (1, 2):
        assert fetching.fetch(last).column("n").to_pylist() == [4]
        fetching.rest()
        assert reader.assigned == [[0]] * attempt


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ({"rows": 2}, "the chunk holds 4 rows, but the journal says 2 from 3 on"),
        ({"crc32c": 7}, "CRC-32C"),
        ({"first": "a:d.t:1:0:40"}, "not chunk 0 of a:d.t:1:0:40"),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
def test_a_share_that_does_not_fit_its_chunk_is_damaged(
    monkeypatch: pytest.MonkeyPatch, of: dict[str, Any], said: str, before: int
) -> None:
    """Also where another block had the chunk read."""
    blocks = sharing()
    fetching, _ = shared_fetcher(monkeypatch, blocks)
    for block in blocks[:before]:
        fetching.fetch(block)
    for name, value in of.items():
        setattr(blocks[2].share if name == "first" else blocks[2], name, value)
    with pytest.raises(Damaged, match=said):
        fetching.fetch(blocks[2])


@pytest.mark.parametrize(
    ("widths", "asked"),
    [
        ([2], 1),
        ([1, 1, 2], 3),  # a broker hears of the partition later than others
        ([1], 4),  # the topic was made anew: that is for the read to find out
        ([0], 1),  # it is not there
    ],
)
def test_a_partition_that_the_topic_has_got_since_is_asked_about(
    monkeypatch: pytest.MonkeyPatch, widths: list[int], asked: int
) -> None:
    blocks = [sealed(0, 0, values(0)), sealed(1, 0, values(1)), sealed(1, 90, values(2))]
    fetching, reader, _ = fetcher(monkeypatch, blocks)
    now = [0.0]
    monkeypatch.setattr(fetch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(fetch.time, "sleep", lambda _: now.__setitem__(0, now[0] + 5))
    reader.widths = [1]
    fetching.fetch(blocks[0])
    reader.widths, reader.listed = widths, []
    fetching.fetch(blocks[1])
    assert len(reader.listed) == asked
    reader.widths, reader.listed = [2], []
    fetching.fetch(blocks[2])
    assert len(reader.listed) == (widths[-1] < 2), "what is known is not asked for again"


def test_chunks_are_counted_not_the_blocks_that_share_them() -> None:
    """Up to 128 of them are read at once."""
    [block, *ahead] = sharing()
    other = sealed(1, 90, values(0))
    assert together(block, [other]) == {(TOPIC, 0): range(40, 41), (TOPIC, 1): range(90, 92)}
    assert list(block_order.of_other_chunks(block, [*ahead, other, other])) == [other]
    assert block_order.after(block, [*ahead, other, *ahead]) == [other, *ahead]
