"""What a ledger that was set back has to be told of dead letters that loaders wrote since. Pure.

Kafka is not set back with ClickHouse: the messages that were left out of a block may be dead
letters, of which the ledger knows nothing any more. The letters of a block are one transaction and
name it, so one of them proves all. Then the block of left out messages is settled as dead, whatever
it waits for in the ledger, and the block that they came in leaves out the same messages again,
whatever its table takes by now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from loader.core import left_out, plan
from loader.core.entries import NewEntry
from relay.names import LEFT_OUT
from relay.records_pb2 import Block, LeftOut

_CLAIM = "letters"
"""In place of a claim, of a row that the letters themselves stand behind."""


@dataclass(frozen=True, slots=True)
class PastLetter:
    """A dead letter that a loader wrote.

    Attributes:
        block: of left out messages, of which it is one.
        offset: of the letter.
        message: its offset in the source partition.
        reason: why the table refused it.
    """

    block: str
    offset: int
    message: int
    reason: str


def by_block(letters: Iterable[PastLetter]) -> dict[str, list[PastLetter]]:
    """Group letters by the block of left out messages that they are of, each in offset order."""
    blocks: defaultdict[str, list[PastLetter]] = defaultdict(list)
    for letter in sorted(letters, key=lambda letter: letter.offset):
        blocks[letter.block].append(letter)
    return dict(blocks)


def made_of(block: Block) -> str:
    """Return the id of the block that messages left out of this one make, or its own if made so."""
    return block.id if left_out.is_left_out(block) else f"{block.id}{LEFT_OUT}"


def find_lacking(
    blocks: Iterable[Block],
    letters: Mapping[str, Sequence[PastLetter]],
    entries: Mapping[str, Sequence[plan.Entry]],
    topic: str,
    *,
    lost: bool,
) -> list[NewEntry]:
    """Return the rows that the ledger lacks.

    Args:
        blocks: that are not settled for good as far as the ledger knows: waiting ones, those of
            left out messages among them, and the journal's.
        letters: by block, as `by_block` gives them.
        entries: of the blocks, and of those that are made of them, by id.
        topic: of the letters.
        lost: a person says that the ledger was lost.
    """
    rows: dict[str, NewEntry] = {}
    for block in sorted(blocks, key=lambda block: block.id):
        name = made_of(block)
        of_rest, of_block = entries.get(name, ()), entries.get(block.id, ())
        if name not in letters or _final(of_block):
            continue
        made = _made(block, letters[name])
        record = left_out.record(made)
        if not _final(of_rest):
            where = left_out.describe_dead(made, topic, [letter.offset for letter in letters[name]])
            attempt = 1 + max((entry.attempt for entry in of_rest), default=0)
            dead = plan.Entry(
                plan.DEAD, attempt, _CLAIM, reason=where, rows=made.rows, record=record
            )
            rows[name] = NewEntry(made, dead)
        if name != block.id and not left_out.are_letters(of_block):
            rows[block.id] = NewEntry(block, plan.doubt(block.rows, lost=lost, record=record))
    return list(rows.values())


def _made(block: Block, letters: Sequence[PastLetter]) -> Block:
    """The block of left out messages: as the ledger has it, or as its letters tell.

    These do not say how many rows a message has (loader.core.left_out.with_rows does).
    """
    if left_out.is_left_out(block):
        return block
    first = {letter.message: letter for letter in reversed(letters)}
    each = int(block.rows == block.messages)
    messages = [
        LeftOut(offset=offset, rows=each, reason=letter.reason[: left_out.REASON_CHARACTERS])
        for offset, letter in sorted(first.items())
    ]
    made = left_out.made_of(left_out.without(block, messages))
    made.to_dead_letters = True
    return made


def _final(entries: Sequence[plan.Entry]) -> bool:
    return any(entry.state in plan.FINAL for entry in entries)
