"""`relay blocks`: blocks as a list, and the story of one. Pure."""

# pure

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from relay.blocks.placement import key, place
from relay.names import LEFT_OUT
from relay.operate.verify.judge.contents import BlockTopic
from relay.operate.view.journal_state import Listed

STATES = ("sealed", "claimed", "loaded", "aside", "parked", "discarded", "dead")
"""Of a block: no loader touched it; one is at it, or ended in the middle; settled. A block that is
aside waits for its table, and a loader tries it again; the messages of a dead one, which were left
out of another, are dead letters."""

FINAL = ("loaded", "discarded", "dead")
"""States that nothing changes any more, the strongest first."""


def state_of(ledger: str) -> str:
    """Return the state in people's words; an empty one is that of a block the ledger has not."""
    return {"": "sealed", "prepared": "claimed"}.get(ledger, ledger)


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block in a list.

    Attributes:
        listed: the block, or the one that its messages were left out of.
        state: empty where ClickHouse was not there to ask.
        left_out: whether it is made of messages that were left out of `listed`.
    """

    listed: Listed
    state: str
    left_out: bool = False

    @property
    def id(self) -> str:
        """The id of the block."""
        return f"{self.listed.block.id}{LEFT_OUT if self.left_out else ''}"


def rows_of(
    listed: Iterable[Listed],
    ledger: Mapping[str, str] | None,
    table: str | None = None,
    since_ms: int = 0,
    state: str | None = None,
) -> Iterator[BlockRow]:
    """Yield those blocks that are meant, in the order given.

    Behind a block comes that of the messages which were left out of it, if the ledger has one.

    Args:
        listed: blocks of the journal.
        ledger: ledger states by block id; None where they are not known.
        table: only its blocks.
        since_ms: only blocks that were sealed then or later.
        state: only blocks in this one of STATES.
    """
    for entry in listed:
        block = entry.block
        if table in {None, block.table} and block.sealed_at_ms >= since_ms:
            yield from (row for row in _rows(entry, ledger) if state in {None, row.state})


def _rows(entry: Listed, ledger: Mapping[str, str] | None) -> Iterator[BlockRow]:
    if ledger is None:
        yield BlockRow(entry, "")
        return
    yield BlockRow(entry, state_of(ledger.get(entry.block.id, "")))
    rest = f"{entry.block.id}{LEFT_OUT}"
    if rest in ledger:
        yield BlockRow(entry, state_of(ledger[rest]), left_out=True)


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A row of the ledger."""

    at_ms: int
    state: str
    attempt: int
    claim: str
    rows: int
    reason: str


@dataclass(frozen=True, slots=True)
class TablePart:
    """A part of the table that holds, or took, rows of the block."""

    name: str
    rows: int
    at: str


@dataclass(frozen=True, slots=True)
class Landed:
    """What ClickHouse has of a block.

    Attributes:
        ledger: rows of the ledger, oldest first; None where there is no ledger.
        rows: that carry its id; None where `rows_problem` says why they cannot be counted.
        parts: that hold those rows now; None for the same reason.
        written: parts that its INSERTs made, from system.part_log; None where
            `log_problem` says why it cannot be read.
    """

    ledger: tuple[LedgerChange, ...] | None = None
    rows: int | None = None
    rows_problem: str = ""
    parts: tuple[TablePart, ...] | None = None
    written: tuple[TablePart, ...] | None = None
    log_problem: str = ""


@dataclass(frozen=True, slots=True)
class Chunks:
    """What the block topic has of a block; no problems: it is whole."""

    start: int
    """The oldest offset retained."""
    found: int
    rows: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of one block.

    Attributes:
        listed: None where no retained journal record lists it.
        chunks: None where it is not listed, so that nobody knows where they are.
        landed: None where ClickHouse was not there to ask, as `problem` says.
    """

    id: str
    listed: Listed | None
    chunks: Chunks | None
    landed: Landed | None
    problem: str = ""

    @property
    def state(self) -> str:
        """One of STATES; "" where ClickHouse was not there to ask."""
        return "" if self.landed is None else state_of(current(self.landed.ledger or ()))


def current(changes: Iterable[LedgerChange]) -> str:
    """Return the ledger's state of a block after these changes, as the loader counts them."""
    history = list(changes)
    states = {change.state for change in history}
    if final := next((state for state in FINAL if state in states), ""):
        return final

    def rank(change: LedgerChange) -> tuple[int, bool, str]:
        return change.attempt, change.state != "prepared", change.claim

    return max(history, key=rank).state if history else ""


def chunks_of(listed: Listed, start: int, records: Iterable[tuple[int, str, int, bytes]]) -> Chunks:
    """Return the block's chunks against what the journal says of them.

    Args:
        listed: the block.
        start: the oldest offset that the block topic retains.
        records: (offset, key, rows, value) of the visible records in its offsets.
    """
    block = listed.block
    if start > block.first_offset:
        gone = f"retention deleted its chunks: the topic begins at offset {start}, the block at"
        return Chunks(start, 0, 0, (f"{gone} {block.first_offset}",))
    judge = BlockTopic([block], start, block.next_offset)
    problems, count, rows = [], 0, 0
    for offset, name, of_chunk, value in records:
        problems += [finding.text for finding in judge.chunk(offset, name, of_chunk, value)]
        count += name == key(block)
        rows += of_chunk if name == key(block) else 0
    problems += [finding.text for finding in judge.end()]
    return Chunks(start, count, rows, tuple(problems))


def row_as_json(row: BlockRow) -> dict[str, Any]:
    """Return a block in a list, for programs; times are Unix milliseconds.

    One of left out messages has the places and times of the block that they were left out of.
    """
    found = {"state": row.state or None, **listed_as_json(row.listed)}
    unknown = dict.fromkeys(("rows", "row_bytes", "messages", "crc32c")) if row.left_out else {}
    return {**found, "id": row.id, **unknown}


def listed_as_json(listed: Listed) -> dict[str, Any]:
    """Return what the journal says of a block, for programs; times are Unix milliseconds."""
    block, commit = listed.block, listed.commit
    return {
        "id": block.id,
        "table": block.table,
        "rows": block.rows,
        "row_bytes": block.row_bytes,
        "messages": block.messages,
        "crc32c": block.crc32c,
        "schema_version": block.schema_version,
        "reason": block.reason,
        "first_timestamp_ms": block.first_timestamp_ms,
        "opened_at_ms": block.opened_at_ms,
        "sealed_at_ms": block.sealed_at_ms,
        "source": {
            "topic": commit.source_topic,
            "partition": commit.partition,
            "first_offset": block.first_source_offset,
            "next_offset": block.next_source_offset,
        },
        "journal": {
            "partition": listed.partition,
            "offset": listed.offset,
            "n": commit.n,
            "epoch": commit.epoch,
            "member": commit.member,
            "written_at_ms": commit.written_at_ms,
        },
        "block_topic": {
            "topic": block.topic,
            "partition": place(block)[1],
            "first_offset": block.first_offset,
            "next_offset": block.next_offset,
            "chunks": block.chunks,
            "first_row": block.share.first_row if block.HasField("share") else None,
        },
    }


def story_as_json(story: Story) -> dict[str, Any]:
    """Return it as JSON has it; times are Unix milliseconds, what is not known is null."""
    return {
        "id": story.id,
        "state": story.state or None,
        "sealed": None if story.listed is None else listed_as_json(story.listed),
        "chunks": None if story.chunks is None else asdict(story.chunks),
        "landed": None if story.landed is None else asdict(story.landed),
        "problem": story.problem,
    }
