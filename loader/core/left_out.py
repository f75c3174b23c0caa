"""Messages of a block that its table refuses: who they are, and the block that they make. Pure.

The claim that leaves them out names them in the ledger. By the row that calls the block loaded they
become a parked block of their own, under the block's id and a mark; a person has it tried again or
gives it up as any other.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from loader.core.plan import PERHAPS, SURELY, Entry
from relay.blocks.message_rows import MessageRows
from relay.names import LEFT_OUT, sealed
from relay.program.plural import several
from relay.records_pb2 import Block, LeftOut

REASON_CHARACTERS = 300
"""Of a message's reason that the ledger keeps."""
_PASSED_OVER = 2_000
"""Messages between two that are wanted: to read them costs no more than another request."""
_SHOWN = 3
"""Reasons in a line for people."""


def messages(listed: MessageRows, refused: dict[int, str]) -> list[LeftOut]:
    """Return the refused messages; `refused`: why, by index in `listed`."""
    return [
        LeftOut(
            offset=int(listed.offsets[index]),
            rows=int(listed.rows[index]),
            reason=reason[:REASON_CHARACTERS],
        )
        for index, reason in sorted(refused.items())
    ]


def without(block: Block, left_out: Sequence[LeftOut]) -> Block:
    """Return the block that names them as left out."""
    named = Block()
    named.CopyFrom(block)
    del named.left_out[:]
    named.left_out.extend(left_out)
    return named


def made_of(block: Block) -> Block:
    """Return the block that the messages left out of this one make."""
    rest = without(block, block.left_out)
    rest.id, rest.sealed_rows = f"{block.id}{LEFT_OUT}", block.rows
    rest.rows = sum(message.rows for message in block.left_out)
    return rest


def is_left_out(block: Block) -> bool:
    """Return whether it is made of messages that were left out of another."""
    return block.id.endswith(LEFT_OUT)


def is_divisible(block: Block, listed: bytes, *, dead: bool) -> bool:
    """Return whether single messages of the block can be left out.

    `listed`, as the block's first chunk has it, has to say whose rows are whose. There have to be
    several, unless left out ones become dead letters, for which nobody has to do anything.
    """
    return bool(listed) and (dead or block.messages > 1) and not is_left_out(block)


def source(block: Block) -> Block:
    """Return the block as it was sealed: of one of left out messages, the one they came in."""
    original = without(block, ())
    if is_left_out(block):
        original.id, original.rows = sealed(block.id), block.sealed_rows
    return original


def rows(block: Block) -> int:
    """Return how many rows an INSERT of it has, without a transform."""
    if is_left_out(block):
        return block.rows
    return block.rows - sum(message.rows for message in block.left_out)


def kept(block: Block, listed: MessageRows | None) -> npt.NDArray[np.bool_]:
    """Return for each row of the sealed block whether an INSERT of this one has it.

    Raises:
        ValueError: the block does not say whose its rows are.
    """
    if listed is None:
        raise ValueError(f"{block.topic} does not say which row belongs to which message")
    return np.repeat(inserted(block, listed), listed.rows)


def inserted(block: Block, listed: MessageRows) -> npt.NDArray[np.bool_]:
    """Return for each message of the sealed block whether an INSERT of this one has it."""
    out = np.isin(listed.offsets, [message.offset for message in block.left_out])
    return out if is_left_out(block) else ~out


def version(transform: str, block: Block) -> str:
    """Return the version of what makes the rows: two that leave out others are not the same."""
    if not block.left_out:
        return transform
    offsets = ",".join(str(message.offset) for message in block.left_out)
    digest = hashlib.sha256(offsets.encode()).hexdigest()[:16]
    which = "only" if is_left_out(block) else "without"
    part = f"{which} {len(block.left_out)} of its messages, {digest}"
    return f"{transform} {part}" if transform else part


def record(block: Block) -> str:
    """Return the block as the ledger keeps it."""
    return base64.b64encode(block.SerializeToString()).decode()


def read(text: str) -> Block:
    """Return the block that `record` was given."""
    return Block.FromString(base64.b64decode(text))


def on_claim(entry: Entry, block: Block, *, dead: bool) -> Entry:
    """Return the claim with what an INSERT of the block leaves out under it.

    `dead`: whether these messages are to become dead letters.
    """
    if is_left_out(block) or not block.left_out:
        return entry
    rest = made_of(block)
    rest.to_dead_letters = dead
    reason = describe_left_out(block.left_out)
    return replace(entry, reason=reason, left_out=rest.rows, record=record(rest))


def known(entries: Iterable[Entry]) -> list[LeftOut]:
    """Return what the latest of these claims leaves out; later ones leave out the same.

    What are dead letters was left out later than by any claim that a ledger has which was set back.
    """
    claims = (entry for entry in entries if entry.record)
    last = max(claims, key=lambda claim: (_is_doubt(claim), claim.attempt), default=None)
    return [] if last is None else list(read(last.record).left_out)


def are_letters(entries: Iterable[Entry]) -> bool:
    """Return whether what these leave out is dead letters already: all of it, and nothing else."""
    return any(entry.record and _is_doubt(entry) for entry in entries)


def _is_doubt(entry: Entry) -> bool:
    return entry.claim in {PERHAPS, SURELY}


def with_rows(block: Block, listed: MessageRows) -> Block:
    """Return the block that says how many rows each of its left out messages has.

    Dead letters, which are known to be left out by them alone, do not say so. `listed`: all
    messages that it was sealed of.
    """
    counted = without(block, block.left_out)
    rows_at = dict(zip(listed.offsets.tolist(), listed.rows.tolist(), strict=True))
    for message in counted.left_out:
        message.rows = rows_at.get(message.offset, message.rows)
    return counted


def stretches(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return what to read for messages with these offsets: of each stretch the first, and its end.

    `offsets`: ascending, at least one.
    """
    ranges = [(offsets[0], offsets[0] + 1)]
    for offset in offsets[1:]:
        first, end = ranges[-1]
        if offset - end < _PASSED_OVER:
            ranges[-1] = first, offset + 1
        else:
            ranges.append((offset, offset + 1))
    return ranges


def describe_dead(block: Block, topic: str, offsets: Sequence[int]) -> str:
    """Return where the block's dead letters are, and why they are such, in a line for people.

    `offsets`: of the letters, ascending, in the source partition's partition of their topic.
    """
    places = f"{block.partition}:{offsets[0]}"
    if len(offsets) > 1:
        places += f" to {block.partition}:{offsets[-1]}"
    return f"dead letters of {topic}, {places}: {describe_left_out(block.left_out)}"


def describe_left_out(left_out: Sequence[LeftOut]) -> str:
    """Return who they are and why, in a line for people."""
    reasons = [f"offset {message.offset}: {message.reason}" for message in left_out[:_SHOWN]]
    if len(left_out) > _SHOWN:
        reasons.append(f"and {len(left_out) - _SHOWN:,} more")
    return f"{several(len(left_out), 'message')} that the table refuses: {'; '.join(reasons)}"
