"""Block topics, ClickHouse and source counts against the journal's blocks, without servers."""

from __future__ import annotations

import sys

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.contents import (
    BlockTopic,
    beyond,
    given_up,
    hidden,
    landed,
)
from relay.operate.verify.judge.ledger_history import History
from relay.records_pb2 import Block, Share
from tests.profiles import is_long

Chunk = tuple[int, str, int, bytes]


def block(first: int, chunks: int = 2) -> Block:
    values = [f"{first}-{i}".encode() for i in range(chunks)]
    return Block(
        id=f"a:d.t:0:0:{first}",
        table="d.t",
        first_offset=first,
        next_offset=first + chunks,
        chunks=chunks,
        rows=10 * chunks,
        crc32c=google_crc32c.value(b"".join(values)),
        sealed_at_ms=1_000,
    )


BLOCKS = [block(0), block(3, 1), block(5, 3)]
CHUNKS: list[Chunk] = [
    (b.first_offset + i, b.id, 10, f"{b.first_offset}-{i}".encode())
    for b in BLOCKS
    for i in range(b.chunks)
]


def judged(chunks: list[Chunk], start: int = 0, end: int = 8) -> list[AnomalyKind]:
    judge = BlockTopic(BLOCKS, start, end)
    found = [finding for chunk in chunks for finding in judge.chunk(*chunk)]
    return [finding.kind for finding in (*found, *judge.end())]


def test_what_the_journal_says_is_there() -> None:
    assert judged(CHUNKS) == []
    assert judged(CHUNKS[2:], start=1) == [], "retention took the first block's first chunk"
    assert judged(CHUNKS[:3], end=5) == [], "the last block is beyond what was read"


@pytest.mark.parametrize(
    ("stable", "log_end", "lost", "behind"),
    [
        (8, 8, 0, 0),
        (5, 8, 0, 1),
        (3, 9, 0, 2),
        (3, 4, 1, 1),
        (5, 7, 1, 0),  # its last chunk is gone
        (0, 0, 3, 0),
    ],
)
def test_a_block_beyond_what_is_stable_is_hidden_or_lost(
    stable: int, log_end: int, lost: int, behind: int
) -> None:
    """What the journal lists had been written when the log was looked at."""
    found = list(beyond(BLOCKS, stable, log_end))
    assert [one.kind for one in found] == [AnomalyKind.GAP] * lost
    assert all(f"which ends at {log_end}" in one.text for one in found)
    said = list(hidden(BLOCKS, "a.blocks.d.t", 0, stable, log_end))
    where = f"a.blocks.d.t[0]: an open transaction at offset {stable} hides the chunks of {behind}"
    assert [line.startswith(where) for line in said] == [True] * (behind > 0)


@pytest.mark.parametrize(
    ("chunks", "kinds"),
    [
        (CHUNKS[:-1], [AnomalyKind.GAP]),
        (CHUNKS[2:], [AnomalyKind.GAP]),
        ([*CHUNKS, (8, BLOCKS[2].id, 10, b"again")], [AnomalyKind.TORN]),
        ([*CHUNKS[:3], (4, "a:d.t:0:0:99", 10, b"foreign"), *CHUNKS[3:]], [AnomalyKind.TORN]),
        ([*CHUNKS[:3], (4, "no block id", 10, b"foreign"), *CHUNKS[3:]], [AnomalyKind.TORN]),
        ([(0, BLOCKS[0].id, 10, b"0-x"), *CHUNKS[1:]], [AnomalyKind.TORN]),
        ([(0, BLOCKS[0].id, 9, b"0-0"), *CHUNKS[1:]], [AnomalyKind.GAP]),
        ([CHUNKS[0], CHUNKS[2], CHUNKS[1], *CHUNKS[3:]], [AnomalyKind.TORN]),
    ],
)
def test_a_damaged_block_topic_is_found(chunks: list[Chunk], kinds: list[AnomalyKind]) -> None:
    assert judged(chunks)[: len(kinds)] == kinds


SHARED = b"rows of three blocks"
SHARING = [
    Block(
        id=f"a:d.t:{partition}:0:{70 + partition}",
        table="d.t",
        partition=partition,
        first_offset=8,
        next_offset=9,
        chunks=1,
        rows=rows,
        crc32c=google_crc32c.value(SHARED),
        share=Share(partition=0, first="a:d.t:0:0:70", first_row=first_row),
        sealed_at_ms=1_000,
    )
    for partition, first_row, rows in [(0, 0, 10), (2, 10, 1), (5, 11, 4)]
]


CHUNK = (8, "a:d.t:0:0:70", 15, SHARED)


def shared(
    blocks: list[Block],
    rows: int = 15,
    *,
    whole_until: float = sys.maxsize,
    key: str = "a:d.t:0:0:70",
) -> list[tuple[AnomalyKind, str]]:
    judge = BlockTopic(blocks, 0, 9, whole_until=lambda: whole_until)
    found = [*judge.chunk(8, key, rows, SHARED), *judge.end()]
    return [(finding.kind, finding.text) for finding in found]


def changed(at: int, **of: int) -> list[Block]:
    """The blocks that share the chunk, one of them changed."""
    blocks = [Block.FromString(one.SerializeToString()) for one in SHARING]
    for name, value in of.items():
        setattr(blocks[at].share if name == "first_row" else blocks[at], name, value)
    return blocks


def test_blocks_that_share_a_chunk_have_its_rows_between_them() -> None:
    assert shared(SHARING) == []
    assert shared(SHARING[::-1]) == [], "in whatever order the journals were read"
    assert shared(SHARING[:2], whole_until=0) == [], "the record of another may be gone"


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (SHARING[:2], "rows 11 to 15 of chunk a:d.t:0:0:70 are of no block"),
        (SHARING[1:], "rows 0 to 10 of chunk a:d.t:0:0:70 are of no block"),
        (SHARING[::2], "rows 10 to 11 of chunk a:d.t:0:0:70 are of no block"),
    ],
)
def test_a_record_of_the_chunks_transaction_that_was_not_read_yet(
    listed: list[Block], said: str
) -> None:
    assert shared(listed, whole_until=1_000) == []
    assert shared(listed, whole_until=1_001) == [(AnomalyKind.GAP, said)]


@pytest.mark.parametrize(
    ("blocks", "rows", "kind", "said"),
    [
        (changed(1, first_row=9), 15, AnomalyKind.OVERLAP, "of which another block has"),
        (changed(1, rows=2), 15, AnomalyKind.OVERLAP, "of which another block has"),
        (changed(2, first_row=12), 16, AnomalyKind.GAP, "rows 11 to 12 of chunk"),
        (SHARING[1:], 15, AnomalyKind.GAP, "rows 0 to 10 of chunk"),
        (SHARING, 16, AnomalyKind.GAP, "rows 15 to 16 of chunk"),
        (SHARING, 14, AnomalyKind.GAP, "has 14 rows, but its blocks have 15"),
        (changed(2, crc32c=1), 15, AnomalyKind.TORN, "CRC-32C"),
        (changed(2, first_offset=7), 15, AnomalyKind.TORN, "first offset"),
    ],
)
def test_a_wrong_share_is_found(
    blocks: list[Block], rows: int, kind: AnomalyKind, said: str
) -> None:
    """Rows would be inserted twice, or by nobody, and each count would be right."""
    assert any(found is kind and said in text for found, text in shared(blocks, rows))


def test_a_shared_chunk_that_no_record_lists_is_found() -> None:
    kinds = [kind for kind, _ in shared(SHARING, key="a:d.t:0:0:71")]
    assert kinds == [AnomalyKind.TORN, *[AnomalyKind.GAP] * 3]


@pytest.mark.parametrize(("partition", "unlisted"), [(2, 0), (0, 1)])
def test_a_chunk_is_unlisted_only_behind_the_oldest_of_its_own_partition(
    partition: int, unlisted: int
) -> None:
    """What retention took from this partition's journal, another's may list as shared with it."""
    older = Block.FromString(SHARING[0].SerializeToString())
    older.id, older.partition, older.first_offset, older.next_offset = "older", partition, 5, 6
    older.share.first = "a:d.t:0:0:60"
    judge = BlockTopic([older, *SHARING], 0, 9)
    chunks = [(5, "a:d.t:0:0:60", 10, SHARED), (7, "a:d.t:0:0:65", 3, b"-"), CHUNK]
    found = [*(finding for chunk in chunks for finding in judge.chunk(*chunk)), *judge.end()]
    expected = ["no journal record lists block a:d.t:0:0:65 at offset 7"] * unlisted
    assert [finding.text for finding in found] == expected


@pytest.mark.parametrize(
    ("offset", "reach", "unlisted"),
    [
        (4, {}, 1),
        (4, {7: (0, 2_000)}, 1),
        (4, {7: (0, 1_000)}, 1),
        (4, {7: (0, 999)}, 0),  # its journal partition was read before it came
        (4, {7: (1_000, 2_000)}, 1),
        (4, {7: (1_001, 2_000)}, 0),  # retention may have taken its record
        (8, {7: (0, 2_000)}, 0),  # it came after all that was read
        (8, {}, 0),
    ],
)
def test_a_chunk_of_a_source_partition_of_which_no_block_is_listed(
    offset: int, reach: dict[int, tuple[int, int]], unlisted: int
) -> None:
    """Blocks of several source partitions lie in one, and their journals were read one by one."""
    judge = BlockTopic(BLOCKS, 0, 9, reach=reach)
    chunks = sorted([*CHUNKS, (offset, "a:d.t:7:0:1", 10, b"-")])
    found = [*(finding for chunk in chunks for finding in judge.chunk(*chunk)), *judge.end()]
    expected = [f"no journal record lists block a:d.t:7:0:1 at offset {offset}"] * unlisted
    assert [finding.text for finding in found if finding.kind is AnomalyKind.TORN] == expected


LONG = is_long()


@given(
    chunk=st.integers(0, len(CHUNKS) - 1),
    change=st.sampled_from(("bit", "rows", "lost", "twice", "renamed", "shifted")),
    at=st.integers(0, 23),
)
@settings(max_examples=10_000 if LONG else 200)
def test_every_change_of_a_chunk_is_found(chunk: int, change: str, at: int) -> None:
    """A flipped bit, a wrong count of rows, a chunk that is lost, doubled, of another block; or
    it and all after it lie further on."""
    offset, name, rows, value = CHUNKS[chunk]
    flipped = bytearray(value)
    flipped[at // 8] ^= 1 << at % 8
    instead = {
        "bit": [(offset, name, rows, bytes(flipped))],
        "rows": [(offset, name, rows + at + 1, value)],
        "lost": [],
        "twice": [CHUNKS[chunk], CHUNKS[chunk]],
        "renamed": [(offset, f"{name}{at}", rows, value)],
        "shifted": [(offset + at + 1, name, rows, value)],
    }[change]
    by = at + 1 if change == "shifted" else 0
    after = [(place + by, *what) for place, *what in CHUNKS[chunk + 1 :]]
    assert judged([*CHUNKS[:chunk], *instead, *after]) != []


ROWS = {b.id: b.rows for b in BLOCKS}
LOADED = dict.fromkeys(ROWS, "loaded")


@pytest.mark.parametrize(
    ("counted", "ledger", "now_ms", "kinds"),
    [
        (ROWS, LOADED, 10**9, []),
        (None, LOADED, 10**9, []),
        ({**ROWS, BLOCKS[0].id: 40}, LOADED, 0, [AnomalyKind.OVERLAP]),
        ({**ROWS, BLOCKS[0].id: 19}, LOADED, 0, [AnomalyKind.GAP]),
        (None, {**LOADED, BLOCKS[1].id: "prepared"}, 61_001, [AnomalyKind.LATE]),
        (None, {**LOADED, BLOCKS[1].id: "prepared"}, 60_000, []),
        (None, {**LOADED, BLOCKS[1].id: "parked"}, 10**9, []),
        ({}, dict.fromkeys(ROWS, "discarded"), 10**9, []),
        ({BLOCKS[0].id: 40}, dict.fromkeys(ROWS, "discarded"), 10**9, [AnomalyKind.OVERLAP]),
    ],
)
def test_what_landed(
    counted: dict[str, int] | None, ledger: dict[str, str], now_ms: int, kinds: list[AnomalyKind]
) -> None:
    histories = {block: History(state) for block, state in ledger.items()}
    assert [f.kind for f in landed(BLOCKS, counted, histories, now_ms, 60.0)] == kinds


def test_what_was_given_up_is_told_and_is_no_anomaly() -> None:
    told = list(given_up(BLOCKS, {BLOCKS[1].id: 3}, {BLOCKS[1].id: "test rows"}))
    assert told == [
        f"block {BLOCKS[1].id} of 10 rows was discarded, rows in the table: 3; test rows"
    ]
    assert list(given_up(BLOCKS, None, {})) == []
