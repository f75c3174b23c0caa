"""Decides what a person can accept where a relay stops at two records that differ; pure.

Receives a source partition as it was found, gives what `relay run` would stop at and from where
it goes on once that is accepted; None where all agrees; or why nothing can be accepted.
"""

# pure

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relay.core.offsets import CommittedOffset
from relay.errors import PERHAPS_NO_MESSAGE
from relay.operate.rewind.plan import NEW_APP, PartitionPositions, RewindRefusal, at_head
from relay.records_pb2 import Commit


@dataclass(frozen=True, slots=True)
class Note:
    """What is taken note of.

    Attributes:
        kinds: retention, topic, truncated, offsets.
        found: both values of each, for people.
        floor: relays go on from here.
        meaning: what that means for the rows.
    """

    partition: int
    kinds: tuple[str, ...]
    found: str
    before: int
    floor: int
    meaning: str


def note(place: PartitionPositions, begin: int | None = None) -> Note | RewindRefusal | None:
    """Return one partition.

    Args:
        place: as it was found.
        begin: where to go on, as the person says; only where offsets name other messages now.
    """
    head = place.seals.head
    if head is None:
        if place.named is None:
            return None
        return RewindRefusal(
            place.partition,
            f"the group's offset is {_named(place)}, but the journal has no record: nothing says "
            "which messages are in blocks",
            NEW_APP,
        )
    if head.HasField("rewind"):
        return RewindRefusal(
            place.partition,
            "a rewind was begun and is not finished",
            "finish the rewind first: `relay rewind CONFIG --run`",
        )
    committed = place.committed
    if committed is not None and _journal_lost(place, committed, head):
        return RewindRefusal(
            place.partition,
            f"the group's offset is {_named(place)}, but the journal ends before it, at "
            f"n={head.n}: nothing says which messages are in blocks",
            NEW_APP,
        )
    found = dict(_found(place, head))
    if not found:
        if begin is None:
            return None
        return RewindRefusal(place.partition, "there is nothing to accept", "leave out --from")
    return _note(place, head, found, begin)


def _note(
    place: PartitionPositions, head: Commit, found: dict[str, str], begin: int | None
) -> Note | RewindRefusal | None:
    renamed = {"topic", "truncated"} & set(found)
    if begin is not None and not renamed:
        return RewindRefusal(
            place.partition,
            "the journal says where to continue: after the messages that are in blocks",
            "leave out --from; `relay rewind` goes back",
        )
    if begin is None and "truncated" in found:
        return RewindRefusal(
            place.partition,
            f"{found['truncated']}; only a person knows from which offset on its messages are new",
            f"give that offset with --from N, at most {place.log_end}",
        )
    if begin is not None and not place.log_start <= begin <= place.log_end:
        return RewindRefusal(
            place.partition,
            f"the source log reaches from {place.log_start} to {place.log_end}",
            "choose an offset in it for --from",
        )
    floor, meaning = (
        head.floor,
        "relays continue where the journal ends: nothing is lost or doubled",
    )
    if renamed:
        floor = place.log_start if begin is None else begin
        meaning = (
            f"messages of the present log are read from offset {floor} on; messages of the "
            f"earlier log beyond {head.floor} that are not in blocks are never read"
        )
    elif "retention" in found:
        floor = place.log_start
        meaning = (
            f"messages from {head.floor} to {floor - 1} that are not in blocks are never read "
            f"({PERHAPS_NO_MESSAGE})"
        )
    return Note(
        place.partition, tuple(found), "; ".join(found.values()), head.floor, floor, meaning
    )


def _found(place: PartitionPositions, head: Commit) -> Iterator[tuple[str, str]]:
    """Kind and both values of everything that a relay would stop at."""
    made_anew = head.source_topic_id != place.topic_id
    if made_anew:
        yield (
            "topic",
            f"the source topic's id is {place.topic_id}, in the journal {head.source_topic_id}",
        )
    elif head.floor < place.log_start:
        yield (
            "retention",
            f"the source log starts at {place.log_start}, the floor in the journal is {head.floor}",
        )
    elif head.floor > place.log_end:
        yield (
            "truncated",
            f"the source log ends at {place.log_end}, the floor in the journal is {head.floor}",
        )
    # With the topic the broker deletes the group's offsets.
    if not at_head(place) and not (made_anew and place.named is None):
        found = f"floor {head.floor} (n={head.n})"
        yield "offsets", f"the group's offset is {_named(place)}, the journal ends at {found}"


def _journal_lost(place: PartitionPositions, committed: CommittedOffset, head: Commit) -> bool:
    return committed.n > head.n or committed.journal_offset > place.seals.offset


def _named(place: PartitionPositions) -> str:
    if place.named is None:
        return "none"
    committed = place.committed
    if committed is None:
        return f"{place.named[0]} with metadata {place.named[1]!r}, which no relay wrote"
    return f"{committed.floor} (n={committed.n})"
