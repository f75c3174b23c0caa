"""What topics take, as refusals teach it, and which messages no chunk can carry."""

from __future__ import annotations

import random
import string

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from relay.blocks.chunks import Encoder, decode
from relay.blocks.form_block import BlockFormer, Messages
from relay.core.events import Failure
from relay.kafka.block_topics import BlockTopics
from relay.kafka.errors import Lost, TransactionFailed
from relay.kafka.record_limits import CHUNK_ROOM, ROOM, RecordLimits, oversized, record_bytes
from relay.kafka.topics import Topics
from relay.schema.dead_reason import DeadKind
from tests import reach
from tests.schema.rows import binary, codec_of, row, row_batch

LETTERS = string.ascii_letters + string.digits


def test_a_record_weighs_its_value_key_and_headers() -> None:
    assert record_bytes(b"four", b"key", [("name", b"value"), ("none", None)]) == 20
    assert record_bytes(None, None, []) == 0


def test_the_topic_says_what_it_takes() -> None:
    limits = RecordLimits()
    assert limits.most("t") is None
    assert limits.learn("t", 5_000_000, 1_000_000)
    assert limits.most("t") == 1_000_000 - ROOM
    assert limits.most("other") is None
    limits.look_again("t", 1_000_000)
    assert limits.most("t") is not None
    limits.look_again("t", 2_000_000)
    assert limits.most("t") is None


def test_where_it_does_not_say_each_refusal_teaches() -> None:
    limits = RecordLimits()
    sizes = [9_000_000, 5_000_000, 4_000_000]
    for size in sizes:
        assert limits.learn("t", size, None)
        assert limits.most("t") == size - 1
    assert not limits.learn("t", 9_000_000, None)
    assert limits.most("t") == 4_000_000 - 1


def test_a_batch_that_does_not_fit_says_nothing_of_its_records() -> None:
    limits = RecordLimits()
    assert not limits.learn("t", 60_000, 100_000)
    assert limits.most("t") is None
    limits.halve("t", 60_000)
    assert limits.most("t") == 30_000


class Silent(Topics):
    """Whose brokers do not say what a topic takes."""

    def most_bytes(self, _: str) -> int | None:
        return None


def test_only_a_record_that_was_sent_alone_teaches_its_size() -> None:
    """Before, its batch may have been too large: it is sent once more, and nothing else changes."""
    topics = BlockTopics("shop", Silent(reach.nobody()))
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    for alone, most in ((False, None), (True, 60_000 - 1)):
        lost = Lost("shop.blocks.d.t", 60_000, too_large, alone)
        assert topics.learn(TransactionFailed(Failure.REFUSED, "", lost=(lost,)), ["d.t"])
        assert topics.limits.most("shop.blocks.d.t") == most
        assert not topics.refusal("d.t")


def batch(*sizes: int) -> pa.RecordBatch:
    chance = random.Random(1)
    texts = ["".join(chance.choices(LETTERS, k=size)) for size in sizes]
    return pa.RecordBatch.from_pydict({"text": texts})


@pytest.mark.parametrize(
    ("sizes", "rows_of", "found"),
    [
        ([10, 60_000, 10], [1, 1, 1], [(1, 1)]),
        ([60_000], [1], [(0, 1)]),
        ([10, 10, 60_000, 70_000, 10], [2, 0, 3], [(2, 1)]),
        ([60_000, 10, 10, 60_000], [1, 2, 0, 1], [(0, 1), (3, 1)]),
        ([10, 10, 10, 60_000], [0, 1, 3], [(2, 3)]),
        ([10, 20, 30], [1, 1, 1], []),
        ([], [0, 0], []),
    ],
)
def test_the_messages_that_no_chunk_can_carry(
    sizes: list[int], rows_of: list[int], found: list[tuple[int, int]]
) -> None:
    rows = batch(*sizes)
    chunks = Encoder(1 << 20).encode(rows, 40_000 - CHUNK_ROOM)
    large = oversized(chunks, rows_of, 40_000)
    assert [(one.message, one.row) for one in large] == found
    assert all(len(value) < 40_000 or count == 1 for value, count in chunks)
    if sizes:
        assert decode([value for value, _ in chunks]) == rows


@pytest.mark.parametrize(
    ("sizes", "rows", "dead"),
    [
        ([60_000], 0, [7]),
        ([60_000, 70_000, 60_000], 0, [7, 8, 9]),
        ([10, 60_000, 10], 2, [8]),
        ([60_000, 10], 1, [7]),
        ([10, 10], 2, []),
    ],
)
def test_messages_that_no_chunk_can_carry_become_dead_letters(
    sizes: list[int], rows: int, dead: list[int]
) -> None:
    """Also where no other message of the buffer is left: such a seal has no block."""
    codec = codec_of({"text": "String"})
    texts = batch(*sizes).column("text").to_pylist()
    messages = binary([row_batch([row(codec, text=text)]) for text in texts])

    offsets = list(range(7, 7 + len(sizes)))
    former = BlockFormer(codec, "batch", Encoder(1 << 20), most=40_000)
    formed = former.form(Messages(offsets, messages))

    assert [offset for offset, _ in formed.dead] == dead
    assert (formed.facts.rows, formed.facts.messages) == (rows, rows)
    assert sum(count for _, count in formed.chunks) == rows
    assert bool(formed.chunks) == bool(formed.message_rows) == bool(rows)
    for _, reason in formed.dead:
        assert "raise its max.message.bytes" in reason.text
        assert reason.kind == DeadKind.ROW_TOO_LARGE
