"""Prints for `relay blocks`: a table of blocks, and the lines about one block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from relay.blocks.placement import place
from relay.cli.output.status import clock
from relay.names import sealed
from relay.operate.view.block_story import BlockRow, Chunks, Landed, Story, TablePart
from relay.operate.view.journal_state import Listed
from relay.program.plural import several
from relay.program.text_table import Column, laid_out

_CLAIM_CHARACTERS = 8
_NOT_ASKED = "not known: ClickHouse did not answer"


_BLOCK = (
    Column("block", right=False),
    Column("state", right=False),
    Column("sealed (UTC)", right=False),
    Column("rows"),
    Column("bytes", optional=2),
    Column("messages", optional=3),
    Column("why", right=False),
    Column("source", right=False, optional=1),
)


def block_table(rows: Sequence[BlockRow], width: int) -> Iterator[Table | str]:
    """Yield one line each where there is room; an id is never broken."""
    cells = [
        (
            row.id,
            row.state or "?",
            clock(block.sealed_at_ms),
            *(
                "" if row.left_out else f"{number:,}"
                for number in (block.rows, block.row_bytes, block.messages)
            ),
            block.reason,
            f"{block.first_source_offset:,} to {block.next_source_offset:,}",
        )
        for row, block in ((row, row.listed.block) for row in rows)
    ]
    yield from laid_out(_BLOCK, cells, width)


def describe_block(story: Story) -> Iterator[str]:
    """Yield the story, in the order of the data flow."""
    yield f"block        {story.id}"
    yield f"state        {story.state or _NOT_ASKED}"
    if (whole_block := sealed(story.id)) != story.id:
        yield f"made of      messages that its table refused, left out of {whole_block}"
    elif story.listed is None:
        yield "journal      no retained record lists this block"
    else:
        yield from _journal(story.listed)
    if story.chunks is not None:
        yield from _chunks(story.chunks)
    if story.landed is None:
        yield f"ClickHouse   {story.problem}"
    else:
        yield from _landed(story.landed, None if story.listed is None else story.listed.block.rows)


def _journal(listed: Listed) -> Iterator[str]:
    block, commit = listed.block, listed.commit
    topic, partition = place(block)
    shared = f", its rows from {block.share.first_row:,} on" if block.HasField("share") else ""
    yield (
        f"source       {commit.source_topic}[{commit.partition}], offsets "
        f"{block.first_source_offset:,} to {block.next_source_offset:,}: "
        f"{block.messages:,} messages, the oldest of {clock(block.first_timestamp_ms)} UTC"
    )
    yield (
        f"contents     {block.rows:,} rows, {block.row_bytes:,} bytes, schema version "
        f"{block.schema_version}, CRC-32C {block.crc32c:08x}"
    )
    yield (
        f"sealed       {clock(block.sealed_at_ms)} UTC by {block.reason}, opened "
        f"{clock(block.opened_at_ms)} UTC"
    )
    yield (
        f"journal      partition {listed.partition}, offset {listed.offset:,}: n {commit.n:,}, "
        f"epoch {commit.epoch}, written {clock(commit.written_at_ms)} UTC by {commit.member}"
    )
    yield (
        f"block topic  {topic}[{partition}], offsets {block.first_offset:,} to "
        f"{block.next_offset:,}: {several(block.chunks, 'chunk')}{shared}"
    )


def _chunks(chunks: Chunks) -> Iterator[str]:
    if not chunks.problems:
        counts = f"{several(chunks.found, 'chunk')}, {several(chunks.rows, 'row')}"
        yield f"  read       {counts}, CRC-32C as written"
    for problem in chunks.problems:
        yield f"  problem    {problem}"


def _landed(landed: Landed, rows: int | None) -> Iterator[str]:
    if landed.ledger is None:
        yield "ledger       is not there: no loader has run yet, or it was lost"
    elif not landed.ledger:
        yield "ledger       no entry: no loader has begun this block"
    for change in landed.ledger or ():
        yield (
            f"ledger       {clock(change.at_ms)} UTC {change.state:9} attempt {change.attempt}, "
            f"claim {change.claim[:_CLAIM_CHARACTERS]}"
            f"{': ' if change.reason else ''}{change.reason}"
        )
    if landed.rows is None:
        yield f"rows         not available: {landed.rows_problem}"
    else:
        yield (
            f"rows         {landed.rows:,} rows in the table carry this block's "
            f"id{'' if rows is None else f', of {rows:,}'}"
        )
    yield from _parts("parts now", landed.parts, landed.rows_problem)
    yield from _parts("parts made", landed.written, landed.log_problem)


def _parts(name: str, parts: Sequence[TablePart] | None, problem: str) -> Iterator[str]:
    if parts is None:
        yield f"{name:12} not available: {problem}"
        return
    if not parts:
        yield f"{name:12} none"
    for part in parts:
        yield f"{name:12} {part.name}, {part.rows:,} rows, {part.at}"
