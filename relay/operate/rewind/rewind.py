"""Carries a rewind out, in the order that lets any step be repeated.

    fence the relays ─► look ─► record: floors moved, epoch + 1, "rewinding" ─► look, settle and
    remove old blocks ─► fence ─► look ─► record: "rewound"

Each record, and the group's offset with it, is one Kafka transaction. Before the first one nothing
has happened. After it relays stop at the partition, so no new block can meet an old row; which
blocks are superseded stands in the journal. So whoever finds the first record without the second
goes on from there, whatever was asked for.

Before the rows of a partition are removed the source log is looked at once more. Blocks whose first
messages have gone meanwhile count again: the second record says so by later places than the first.

The ledger notes a rewind when its old blocks are settled and their rows removed. Where it has no
note of one that has ended, it was lost, or restored with the tables from an older backup, and the
old rows may be there again: then they are settled and removed once more.
"""

# pure

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from relay.errors import ConfigError, Unavailable
from relay.operate.rewind import records, removal
from relay.operate.rewind.plan import (
    Course,
    PartitionPositions,
    RewindEnding,
    check_refusals,
    course,
    ending,
)
from relay.operate.rewind.ports import RewindPort
from relay.operate.rewind.records import RewindAuthor
from relay.operate.rewind.removal import RerunTable, RewindConsent
from relay.operate.rewind.seals import RecordedRewind
from relay.program.plural import several
from relay.records_pb2 import Block


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """What to re-run: messages from these offsets on, of one table or of all (None)."""

    offsets: Mapping[int, int]
    table: str | None
    consent: RewindConsent


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What a rewind would do, by partition that has something to re-run, and to which tables."""

    courses: tuple[Course, ...]
    targets: Mapping[str, RerunTable]


@dataclass(frozen=True, slots=True)
class RewindResult:
    """What was done.

    Attributes:
        partitions: where relays go on in each.
        resumed: whether the rewind had been begun before.
        repeated: rewinds that had ended, and of which the ledger had no note.
        shortened: how those ended of which messages had gone from the source log.
    """

    partitions: Mapping[int, int]
    blocks: int
    rows: int
    resumed: bool
    repeated: Sequence[RecordedRewind] = ()
    shortened: Sequence[RewindEnding] = ()


def unfinished(places: Mapping[int, PartitionPositions]) -> dict[int, PartitionPositions]:
    """Return partitions whose rewind was begun and has not ended."""
    return {
        p: place
        for p, place in places.items()
        if place.seals.head is not None and place.head.HasField("rewind")
    }


def without_note(
    servers: RewindPort, places: Mapping[int, PartitionPositions]
) -> list[RecordedRewind]:
    """Return rewinds that ended and of which the ledger has no note, with what they superseded.

    Raises:
        RelayError: as the servers raise it.
    """
    ended = {(r.partition, r.offset): r for place in places.values() for r in place.seals.ended()}
    lacking = ended.keys() - set(servers.noted(ended.values())) if ended else ()
    if not lacking:
        return []
    begins: dict[int, int] = {}
    for key in lacking:
        first = ended[key].begins
        begins[key[0]] = min(first, begins.get(key[0], first))
    again = servers.look(begins)
    return [
        rewind
        for p in sorted(begins)
        for rewind in again[p].seals.rewinds
        if (rewind.partition, rewind.offset) in lacking
    ]


def ready(
    servers: RewindPort,
    places: Mapping[int, PartitionPositions],
    wanted: RewindRequest,
    column: str,
    *,
    count: bool = True,
) -> RewindPlan:
    """Return the plan of the rewind, from the servers' present state.

    To `count` rows by their block ids reads that column of whole tables.

    Raises:
        ConfigError: it is impossible, or needs options; the error names all of them.
        ContractBroken: recorded and found state disagree already.
    """
    courses = check_refusals(
        course(places[p], offset, wanted.table) for p, offset in sorted(wanted.offsets.items())
    )
    blocks = _ids_by_table(block for c in courses for block in c.blocks)
    targets = servers.targets(blocks) if blocks else {}
    judged = [(t, targets[t], ids, wanted.consent, column) for t, ids in sorted(blocks.items())]
    why_not = [reason for case in judged for reason in removal.reasons(*case)]
    if count:
        countable = {case[0]: case[2] for case in judged if removal.countable(*case)}
        counted = servers.counted(countable) if countable else {}
        for table, rows in sorted(counted.items()):
            why_not += removal.without_id(table, rows, column)
    if not wanted.consent.despite_replays:
        why_not += removal.replayed(courses, servers.replays())
    if why_not:
        raise ConfigError(
            "\n  ".join(["the rewind was not begun:", *why_not]),
            "do what each line names, or give its option",
        )
    return RewindPlan(tuple(courses), targets)


def rewind(
    servers: RewindPort,
    wanted: RewindRequest | None,
    column: str,
    author: Callable[[], RewindAuthor],
) -> RewindResult:
    """Do it, or go on with the one that was begun.

    Where nothing is wanted (None), only finish what was begun, and repeat what the ledger has no
    note of.

    Raises:
        ConfigError, ContractBroken: as `ready` does; nothing was changed.
        RelayError: as the servers raise it; run again.
    """
    offsets = {} if wanted is None else wanted.offsets
    places = servers.look(offsets)
    repeated = without_note(servers, places) if wanted is None else []
    begun = _begun(servers, places, offsets)
    resumed = bool(begun)
    if not begun and wanted is None and not repeated:
        raise ConfigError("there is no unfinished rewind", "say what to rewind")
    if not begun and wanted is not None:
        if not ready(servers, places, wanted, column).courses:
            return RewindResult({}, 0, 0, resumed=False)
        begun, resumed = _begin(servers, wanted, column, author)
    rows = sum(map(servers.supersede, repeated))
    endings: dict[int, RewindEnding] = {}
    for _, place in sorted(begun.items()):
        if (end := _ending(servers, place)) is not None:
            rows += servers.supersede(end.rewind)
            _check_kept(servers, place, end)
            endings[place.partition] = end
    blocks = sum(len(r.blocks) for r in [*repeated, *(end.rewind for end in endings.values())])
    partitions = _finish(servers, begun, endings, author) if begun else {}
    shortened = [end for end in endings.values() if end.kept]
    return RewindResult(partitions, blocks, rows, resumed, repeated, shortened)


def _begun(
    servers: RewindPort, places: Mapping[int, PartitionPositions], offsets: Mapping[int, int]
) -> dict[int, PartitionPositions]:
    """Unfinished ones, with every block that they supersede."""
    begun = unfinished(places)
    if not begun:
        return {}
    starts = {p: min(s.offset for s in place.head.rewind.starts) for p, place in begun.items()}
    beyond = {p: min(d[p] for d in (offsets, starts) if p in d) for p in {*offsets, *starts}}
    return unfinished(servers.look(beyond))


def _begin(
    servers: RewindPort, wanted: RewindRequest, column: str, author: Callable[[], RewindAuthor]
) -> tuple[dict[int, PartitionPositions], bool]:
    """Decide everything anew, because now nobody else commits; True: it was begun before."""
    with servers.fenced(wanted.offsets.keys()):
        places = servers.look(wanted.offsets)
        if begun := _begun(servers, places, wanted.offsets):
            return begun, True  # somebody was faster
        # Rows were counted before: the places in the group do not outlast a long query.
        courses = ready(servers, places, wanted, column, count=False).courses
        letters = servers.next_letters([c.partition for c in courses])
        keep = wanted.consent.keep
        servers.write(
            [
                records.rewinding(places[c.partition].head, c, keep, letters[c.partition], author())
                for c in courses
            ]
        )
    return _begun(servers, servers.look(wanted.offsets), wanted.offsets), False


def _ending(servers: RewindPort, begun: PartitionPositions) -> RewindEnding | None:
    """How it ends by the source log of now: messages that are gone make no rows again."""
    place = servers.look({begun.partition: begun.seals.beyond})[begun.partition]
    if place.head.n != begun.head.n:
        return None  # another has finished it
    found = ending(place)
    if isinstance(found, RewindEnding):
        found = ending(place, _removed(servers, place, found))
    return check_refusals([found])[0]


def _removed(
    servers: RewindPort, place: PartitionPositions, found: RewindEnding
) -> Collection[str]:
    """Which of the blocks that would stay have lost their rows."""
    keep_rows = place.head.rewind.kept
    kept = _ids_by_table(block for block in found.kept if block.table not in keep_rows)
    return servers.removed(kept) if kept else ()


def _ids_by_table(blocks: Iterable[Block]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for block in blocks:
        ids.setdefault(block.table, []).append(block.id)
    return ids


def _check_kept(servers: RewindPort, place: PartitionPositions, found: RewindEnding) -> None:
    """Look once more before it is on record that blocks stay: another run may be at them, too."""
    if gone := _removed(servers, place, found):
        raise Unavailable(
            f"source partition {place.partition}: rows of {several(len(gone), 'block')} that were "
            f"to stay were removed meanwhile, as of {min(gone)}: another `relay rewind` is running",
            "wait until it has ended, then run it again: it continues where it stopped",
        )


def _finish(
    servers: RewindPort,
    begun: Mapping[int, PartitionPositions],
    endings: Mapping[int, RewindEnding],
    author: Callable[[], RewindAuthor],
) -> dict[int, int]:
    with servers.fenced(begun.keys()):
        places = servers.look({p: place.seals.beyond for p, place in begun.items()})
        # Another may have finished some, and a further rewind may have been begun since.
        ends = [
            records.rewound(place.head, (endings[p].floor, endings[p].marks), author())
            for p, place in sorted(unfinished(places).items())
            if p in endings and place.head.n == begun[p].head.n
        ]
        if ends:
            servers.write(ends)
    return {
        p: endings[p].floor if p in endings else place.head.floor
        for p, place in sorted(begun.items())
    }
