"""`relay accept`: a person takes note of two records that differ, where a relay stops. Pure.

`decide` says what can be accepted in one source partition, and from where relays go on after
that. `accept` carries it out on all: look, fence, look again, record. One transaction moves the
group's offsets and records why: an accept has happened or it has not.
"""

# pure

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from relay.errors import PERHAPS_NO_MESSAGE, ConfigError
from relay.operate.rewind import records
from relay.operate.rewind.plan import (
    RESTORE,
    Note,
    PartitionPositions,
    RewindRefusal,
    at_head,
    check_refusals,
    forgotten,
    other_source,
    truncation,
)
from relay.operate.rewind.ports import RewindPort
from relay.operate.rewind.records import RewindAuthor
from relay.records_pb2 import Commit


def accept(
    servers: RewindPort,
    begins: Mapping[int, int],
    only: int | None,
    author: Callable[[], RewindAuthor] | None,
) -> list[Note]:
    """Take note of all that relays stop at.

    Args:
        servers: the brokers and ClickHouse.
        begins: by partition, the offset from which the person lets relays go on.
        only: this partition; None: every one.
        author: of the records; None: change nothing, return what would be accepted.

    Raises:
        ContractBroken: something cannot be accepted; nothing was changed.
        RelayError: as the servers raise it; run again.
    """
    notes = _notes(servers, begins, only)[1]
    if author is None or not notes:
        return notes
    with servers.fenced([note.partition for note in notes]):
        places, notes = _notes(servers, begins, only)
        letters = servers.next_letters([note.partition for note in notes])
        servers.write(
            [
                records.accepted(places[note.partition], note, letters[note.partition], author())
                for note in notes
            ]
        )
    return notes


def _notes(
    servers: RewindPort, begins: Mapping[int, int], only: int | None
) -> tuple[Mapping[int, PartitionPositions], list[Note]]:
    places = servers.look({})
    if only is not None and only not in places:
        raise ConfigError(f"there is no source partition {only}", "choose another --partition")
    partitions = sorted(places) if only is None else [only]
    return places, check_refusals(decide(places[p], begins.get(p)) for p in partitions)


def decide(place: PartitionPositions, begin: int | None = None) -> Note | RewindRefusal | None:
    """Return what can be accepted in a partition; None: there is nothing to accept.

    Where offsets name other messages now, the person says with `begin` where to go on.
    """
    head = place.seals.head
    if head is None:
        if place.named is None:
            return forgotten(place)
        return place.refuse(
            f"the group's offset is {_named(place)}, but the journal has no record: nothing says "
            "which messages are in blocks",
            RESTORE,
        )
    if other := other_source(place):
        return other
    if head.HasField("rewind"):
        return place.refuse(
            "a rewind was begun and is not finished",
            "finish the rewind first: `relay rewind CONFIG --run`",
        )
    committed = place.committed
    if committed is not None and (
        committed.n > head.n or committed.journal_offset > place.seals.offset
    ):
        return place.refuse(
            f"the group's offset is {_named(place)}, but the journal ends before it, at "
            f"n={head.n}: nothing says which messages are in blocks",
            RESTORE,
        )
    found = dict(_found(place, head))
    if not found:
        if begin is None:
            return None
        return place.refuse("there is nothing to accept", "leave out --from")
    return _note(place, head, found, begin)


def _note(
    place: PartitionPositions, head: Commit, found: dict[str, str], begin: int | None
) -> Note | RewindRefusal | None:
    renamed = {"topic", "truncated", "epoch"} & set(found)
    if begin is not None and not renamed:
        return place.refuse(
            "the journal says where to continue: after the messages that are in blocks",
            "leave out --from; `relay rewind` goes back",
        )
    if refusal := _out_of_reach(place, found, begin):
        return refusal
    if "epoch" in found and begin is not None and begin < place.reached:
        found = {"truncated" if kind == "epoch" else kind: text for kind, text in found.items()}
    floor, marks = _places(place, head, found, begin)
    meaning = "relays continue where the journal ends: nothing is lost or doubled"
    if "topic" in found:
        meaning = (
            f"messages of the present log are read from offset {floor} on; messages of the "
            f"earlier log beyond {head.floor} that are not in blocks are never read"
        )
    elif "truncated" in found:
        between = f"; of those before it, from {floor} on, what is in no block" if marks else ""
        meaning = (
            f"messages from offset {begin} on are read as new ones{between}; messages that the log "
            f"lost, beyond {head.floor} and not in blocks, are never read"
        )
    elif "epoch" in found:
        meaning = (
            "relays go on where they stood, as the log is the one that was read: if it is not, "
            f"messages before {place.reached} that took the place of others are never read"
        )
    elif "retention" in found:
        meaning = (
            f"messages from {head.floor} to {floor - 1} that are not in blocks are never read "
            f"({PERHAPS_NO_MESSAGE})"
        )
    return Note(
        place.partition, tuple(found), "; ".join(found.values()), head.floor, floor, marks, meaning
    )


def _out_of_reach(
    place: PartitionPositions, found: dict[str, str], begin: int | None
) -> RewindRefusal | None:
    """Why the person has to name another offset; behind a lost end all messages are new."""
    if begin is None and "truncated" in found:
        proposal = ""
        if place.lost_end is not None and place.lost_end >= 0:
            proposal = (
                f"; the leader says that its log is another one from offset {place.new_from} on, "
                f"so --from {place.new_from} is right unless you know better"
            )
        return place.refuse(
            f"{found['truncated']}; only a person knows from which offset on its messages are new",
            f"give that offset with --from N, at most {place.new_from}{proposal}",
        )
    if begin is None and "epoch" in found:
        return place.refuse(
            found["epoch"],
            f"find out whether the log is whole: then --from {place.reached} goes on where relays "
            "stood. With a lower N, messages from N on are read as new ones, and those that are in "
            "blocks become rows once more",
        )
    most = place.log_end
    if "epoch" in found:
        most = place.reached
    elif place.new_from is not None and "truncated" in found:
        most = place.new_from
    if begin is None or place.log_start <= begin <= most:
        return None
    if begin > place.log_end or begin < place.log_start:
        return place.refuse(
            f"the source log reaches from {place.log_start} to {place.log_end}",
            "choose an offset in it for --from",
        )
    return place.refuse(
        f"messages from offset {most} on are new, and those before {begin} would be passed over",
        f"choose an offset from {place.log_start} to {most} for --from",
    )


def _places(
    place: PartitionPositions, head: Commit, found: dict[str, str], begin: int | None
) -> tuple[int, dict[str, int]]:
    """Floor and marks from which relays go on.

    Messages before a lost end are the same as ever: those that are in blocks are not read again.
    """
    if "topic" in found:
        return place.log_start if begin is None else begin, {}
    marks = {mark.table: mark.offset for mark in head.marks}
    floor = head.floor
    if begin is not None:
        floor = min(floor, begin)
        marks = {table: min(mark, begin) for table, mark in marks.items()}
    floor = max(floor, place.log_start) if {"retention", "truncated"} & set(found) else floor
    return floor, {table: mark for table, mark in marks.items() if mark > floor}


def _found(place: PartitionPositions, head: Commit) -> Iterator[tuple[str, str]]:
    """Kind and both values of everything that a relay would stop at."""
    made_anew = head.source_topic_id != place.topic_id
    if made_anew:
        yield (
            "topic",
            f"the source topic's id is {place.topic_id}, in the journal {head.source_topic_id}",
        )
    elif place.new_from is not None:
        yield "truncated", truncation(place)
    elif place.is_unproved:
        yield "epoch", truncation(place)
    if not made_anew and head.floor < place.log_start:
        yield (
            "retention",
            f"the source log starts at {place.log_start}, the floor in the journal is {head.floor}",
        )
    # With the topic the broker deletes the group's offsets.
    if not at_head(place) and not (made_anew and place.named is None):
        found = f"floor {head.floor} (n={head.n})"
        yield "offsets", f"the group's offset is {_named(place)}, the journal ends at {found}"


def _named(place: PartitionPositions) -> str:
    if place.named is None:
        return "none"
    committed = place.committed
    if committed is None:
        return f"{place.named[0]} with metadata {place.named[1]!r}, which no relay wrote"
    return f"{committed.floor} (n={committed.n})"
