"""Blocks as a list and one block's story, without servers."""

from __future__ import annotations

import io
import json

import google_crc32c
import pytest
from rich.console import Console

from relay.cli.output import blocks as output_blocks
from relay.names import LEFT_OUT
from relay.operate.view import block_story
from relay.operate.view.block_story import BlockRow, Chunks, Landed, LedgerChange, Story, TablePart
from relay.operate.view.journal_state import Listed
from relay.program.console import print_parts
from tests.view.records import block, commit

VALUES = [b"first", b"second"]
ONE = block(
    0, chunks=2, first_offset=4, next_offset=6, crc32c=google_crc32c.value(b"".join(VALUES))
)
LISTED = Listed(ONE, 0, 17, commit(3, ONE))
RECORDS = [(4, ONE.id, 5, VALUES[0]), (5, ONE.id, 5, VALUES[1])]
CHANGES = (
    LedgerChange(3_000, "prepared", 1, "aaaaaaaaaaaa", 10, ""),
    LedgerChange(4_000, "parked", 1, "aaaaaaaaaaaa", 10, "there is no table"),
    LedgerChange(5_000, "prepared", 2, "b", 10, ""),
    LedgerChange(6_000, "loaded", 2, "b", 10, ""),
)


def listed(*blocks: int) -> list[Listed]:
    return [
        Listed(block(at, sealed_at_ms=at * 1000), 0, at, commit(n + 1))
        for n, at in enumerate(blocks)
    ]


def test_only_those_that_are_meant() -> None:
    """By table, time and state; an unknown ledger leaves states empty."""
    blocks = [*listed(0, 10, 20), Listed(block(30, "d.u"), 0, 30, commit(4))]
    ledger = {blocks[0].block.id: "loaded", blocks[1].block.id: "prepared"}
    states = [row.state for row in block_story.rows_of(blocks, ledger)]
    assert states == ["loaded", "claimed", "sealed", "sealed"]
    assert [r.listed for r in block_story.rows_of(blocks, ledger, state="claimed")] == [blocks[1]]
    assert [r.listed for r in block_story.rows_of(blocks, ledger, table="d.u")] == [blocks[3]]
    assert [r.listed for r in block_story.rows_of(blocks, ledger, since_ms=10_000)] == blocks[1:3]
    assert {row.state for row in block_story.rows_of(blocks, None)} == {""}
    assert list(block_story.rows_of([], {})) == []
    assert (
        json.loads(json.dumps(block_story.row_as_json(block_story.BlockRow(LISTED, ""))))["state"]
        is None
    )


def test_what_was_left_out_of_a_block_is_listed_behind_it() -> None:
    """It is in no journal record, but it is what waits."""
    blocks = listed(0, 10)
    whole = blocks[0].block.id
    rest = f"{whole}{LEFT_OUT}"
    ledger = {whole: "loaded", rest: "parked", f"{whole}0{LEFT_OUT}": "parked"}
    found = [(row.id, row.state) for row in block_story.rows_of(blocks, ledger)]
    assert found == [(whole, "loaded"), (rest, "parked"), (blocks[1].block.id, "sealed")]
    (row,) = block_story.rows_of(blocks, ledger, state="parked")
    told = block_story.row_as_json(row)
    assert (told["id"], told["state"]) == (rest, "parked")
    assert (told["rows"], told["messages"]) == (None, None)
    assert told["source"] == block_story.row_as_json(BlockRow(blocks[0], "loaded"))["source"]
    output = io.StringIO()
    print_parts(Console(file=output, width=200), output_blocks.block_table([row], 200))
    assert f"{rest} " in output.getvalue()
    (row,) = block_story.rows_of(blocks, {rest: "dead"}, state="dead")
    assert row.id == rest


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ((), ""),
        (CHANGES[:1], "prepared"),
        (CHANGES[:2], "parked"),
        (CHANGES[:3], "prepared"),
        (CHANGES, "loaded"),
        ((*CHANGES[:2], LedgerChange(5, "discarded", 2, "c", 10, "")), "discarded"),
        (
            (
                LedgerChange(5, "discarded", 2, "c", 10, ""),
                LedgerChange(6, "prepared", 3, "d", 10, ""),
            ),
            "discarded",
        ),
        ((*CHANGES, LedgerChange(5, "discarded", 9, "c", 10, "")), "loaded"),
    ],
)
def test_the_ledgers_state_is_the_loaders(changes: tuple[LedgerChange, ...], state: str) -> None:
    assert block_story.current(changes) == state


def test_chunks_are_what_the_journal_says() -> None:
    assert block_story.chunks_of(LISTED, 0, RECORDS) == Chunks(0, 2, 10)


@pytest.mark.parametrize(
    ("start", "records", "problem"),
    [
        (0, RECORDS[:1], "(chunks, rows, CRC-32C"),
        (0, [], "none of its 2 chunks"),
        (0, [RECORDS[0], (5, ONE.id, 5, b"other")], "CRC-32C"),
        (5, RECORDS[1:], "retention deleted its chunks"),
    ],
)
def test_damaged_chunks_are_told(
    start: int, records: list[tuple[int, str, int, bytes]], problem: str
) -> None:
    (found,) = block_story.chunks_of(LISTED, start, records).problems
    assert problem in found


def test_a_whole_story() -> None:
    """From source offsets to parts, in lines and as an object."""
    landed = Landed(
        CHANGES, 10, "", (TablePart("all_1_1_0", 10, "now"),), None, "no system.part_log"
    )
    told = Story(ONE.id, LISTED, Chunks(0, 2, 10), landed)
    text = "\n".join(output_blocks.describe_block(told))
    for line in (
        "state        loaded",
        "rows[0], offsets 0 to 5: 5 messages",
        "offset 17: n 3",
        "shop.blocks.d.t[0], offsets 4 to 6: 2 chunks",
        "parked    attempt 1, claim aaaaaaaa: there is no table",
        "10 rows in the table carry this block's id, of 10",
        "parts now    all_1_1_0, 10 rows, now",
        "parts made   not available: no system.part_log",
    ):
        assert line in text
    found = json.loads(json.dumps(block_story.story_as_json(told)))
    assert found["sealed"]["journal"]["offset"] == 17
    assert found["landed"]["ledger"][1]["reason"] == "there is no table"


def test_a_story_with_pieces_missing() -> None:
    """No loader yet, no ClickHouse, no journal record: each said in its place."""
    never = Landed(None, None, "there is no table d.t", None, None, "no log")
    text = "\n".join(output_blocks.describe_block(Story(ONE.id, LISTED, None, never)))
    assert "state        sealed" in text
    assert "no loader has run" in text
    untouched = Landed((), None, "d.t has no column _block")
    assert "no loader has begun this block" in "\n".join(
        output_blocks.describe_block(Story(ONE.id, LISTED, None, untouched))
    )
    away = "\n".join(
        output_blocks.describe_block(Story(ONE.id, None, None, None, "it did not answer"))
    )
    assert "no retained record lists this block" in away
    assert "ClickHouse   it did not answer" in away
    assert "state        not known" in away


@pytest.mark.parametrize("width", [60, 80, 100, 1_000])
def test_a_block_id_is_in_one_piece_on_any_terminal(width: int) -> None:
    """It is there to be copied into `relay blocks show`."""
    made = block(1_002_001, "museum_of_natural_history.gapminder_life_expectancy")
    rows = [BlockRow(Listed(made, 0, 7, commit(1, made)), "loaded")] * 2
    output = io.StringIO()
    console = Console(file=output, width=width, emoji=False)
    print_parts(console, output_blocks.block_table(rows, width))
    text = output.getvalue()
    assert text.count(made.id) == 2
    assert "loaded" in text
    assert "…" not in text
