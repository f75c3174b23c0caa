"""Where the history that was audited begins, and what lay before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from relay.errors import PERHAPS_NO_MESSAGE
from relay.operate.verify.judge.acknowledgements import utc
from relay.operate.verify.judge.record import sealed_parts
from relay.program.plural import several
from relay.records_pb2 import Commit


@dataclass(frozen=True, slots=True)
class First:
    """The oldest record that was there."""

    offset: int
    n: int
    floor: int
    """Before it: what lies below is told of by none of the records."""
    written_at_ms: int


@dataclass(frozen=True, slots=True)
class LedgerReach:
    """What the ledger has settled of one journal partition.

    Attributes:
        settled: journal offset before which it has settled all.
        began: where its first loader began; None: not known, or a person took note of it.
    """

    settled: int
    began: int | None = None


def reaches(journal: str, rows: Iterable[tuple[str, int, int, int]]) -> dict[int, LedgerReach]:
    """Return what the ledger has settled, by partition.

    A first start notes its position and, at the same time, up to where its tables have to be asked
    (loader.core.positions). A position of a later time is not its first: the older were cleaned.

    Args:
        journal: topic id.
        rows: block, greatest attempt, first attempt and time of the first, of position rows.
    """
    first_starts: dict[int, int] = {}
    noted, positions = set(), {}
    for block, settled, first, at in rows:
        name, _, partition = block.rpartition(":")
        topic, _, kind = name.partition("#")
        if topic != journal:
            continue
        if not kind:
            positions[int(partition)] = settled, first, at
        elif kind == "unsure":
            first_starts[int(partition)] = at
        elif kind == "lost":
            noted.add(int(partition))
    return {
        p: LedgerReach(settled, first if first_starts.get(p) == at and p not in noted else None)
        for p, (settled, first, at) in positions.items()
    }


@dataclass(frozen=True, slots=True)
class JournalBeginning:
    """How the history of one source partition begins.

    Attributes:
        first: None where the journal's partition holds no record.
        journal_start: offset at which the journal's partition begins.
        source_start: offset at which the source's partition begins; None: not known.
        floor: of the last record; None: there is none.
        settled, began: of LedgerReach; None: the ledger has none, or was not asked.
    """

    partition: int
    first: First | None
    journal_start: int
    source_start: int | None = None
    floor: int | None = None
    settled: int | None = None
    asked: bool = False
    began: int | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is missing before it."""
        if self.first is None:
            return self.journal_start == 0
        return self.first.n == 1

    @property
    def unsettled(self) -> bool:
        """Whether records were deleted that nobody had settled.

        Behind each record lies the marker of its transaction, at which the ledger's position
        stands: that alone holds nothing.
        """
        if self.whole or not self.asked:
            return False
        return self.journal_start > (0 if self.settled is None else self.settled + 1)

    @property
    def passed_over(self) -> bool:
        """Whether the first loader began behind records that were deleted; it stops there."""
        return not self.whole and bool(self.began)

    @property
    def unread(self) -> bool:
        """Whether source messages were deleted that are in no block; a relay stops there, too."""
        if self.source_start is None or self.floor is None:
            return False
        return self.source_start > self.floor


def first_of(offset: int, commit: Commit) -> First:
    """Return the first record of a partition, from its oldest record."""
    return First(offset, commit.n, commit.previous_floor, commit.written_at_ms)


def beginnings(
    firsts: Mapping[int, First],
    journal: Mapping[int, int],
    source: Mapping[int, int],
    floors: Mapping[int, int],
    ledger: Mapping[int, LedgerReach] | None,
) -> list[JournalBeginning]:
    """Return the beginning of every partition of the journal.

    `source` says where each of the source began, as far as that is known, before the journal was
    read: what is read of it meanwhile is no gap. A ledger of None was not asked.
    """

    def begin(partition: int, start: int) -> JournalBeginning:
        reach = (ledger or {}).get(partition)
        settled, began = (reach.settled, reach.began) if reach is not None else (None, None)
        places = start, source.get(partition), floors.get(partition)
        first, asked = firsts.get(partition), ledger is not None
        return JournalBeginning(partition, first, *places, settled, asked, began)

    return [begin(partition, start) for partition, start in sorted(journal.items())]


@dataclass(frozen=True, slots=True)
class ToldFrom:
    """Source offsets from which on retained records tell what became of messages.

    By table, and for all other tables the floor.
    """

    floor: int
    tables: Mapping[str, int]

    def of(self, table: str) -> int:
        """Return the source offset before which a deleted record may have sealed the table."""
        return self.tables.get(table, self.floor)


def told_from(oldest: Commit) -> ToldFrom:
    """Return from where on the records of one source partition tell of each table.

    `oldest`: the oldest record that is retained, or from which on records count.
    Tables are sealed at different times, so a busy one was sealed far beyond the floor that a quiet
    one holds. What was done before a record shows in the record: of a table that it seals, all
    before what it seals; of another, all before its mark, or before the floor where it has none.
    """
    if oldest.n <= 1:
        return ToldFrom(oldest.previous_floor, {})
    tables = {mark.table: mark.offset for mark in oldest.marks}
    sealed: dict[str, int] = {}
    for part in sealed_parts(oldest):
        first = part.first_source_offset
        sealed[part.table] = min(first, sealed.get(part.table, first))
    return ToldFrom(oldest.floor, tables | sealed)


def came_later(partition: int, oldest: Iterable[Commit]) -> bool:
    """Return whether a source partition is newer than its app.

    The oldest record of each journal partition says how many partitions the source had when the
    record's writer took it over; 0: an older version wrote it.
    """
    return any(0 < record.source_partitions <= partition for record in oldest)


def history_lines(every: Sequence[JournalBeginning]) -> Iterator[str]:
    """Say one line where nothing is missing, else one for each partition cut short."""
    whole = [one for one in every if one.whole]
    if whole:
        all_of = "all partitions" if len(whole) == len(every) else several(len(whole), "partition")
        yield f"history: {all_of} from the journal's first record on"
    for one in every:
        if not one.whole:
            yield f"history: {_cut(one)}"
    for one in every:
        floor = 0 if one.first is None else one.first.floor
        if one.source_start is not None and one.source_start > floor:
            yield (
                f"history: partition {one.partition}: the source log begins at offset "
                f"{one.source_start}: messages before it are deleted, and --deep counts from there"
            )


def _cut(one: JournalBeginning) -> str:
    if one.first is None:
        return (
            f"partition {one.partition} has no history: the journal's log begins at offset "
            f"{one.journal_start} and holds no record, because retention deleted them"
        )
    records = several(one.first.n - 1, "record before it is", "records before it are")
    return (
        f"partition {one.partition} begins at n={one.first.n}, journal offset {one.first.offset}, "
        f"written {utc(one.first.written_at_ms)}: {records} deleted, so source offsets before "
        f"{one.first.floor} are not judged"
    )


def gaps(every: Sequence[JournalBeginning]) -> Iterator[str]:
    """Yield what was deleted before it was read, or settled, with both numbers."""
    for one in every:
        if one.unread:
            yield (
                f"partition {one.partition}: the source log begins at offset {one.source_start}, "
                f"but the journal's floor is {one.floor}: the messages between them were deleted "
                f"before they were in blocks ({PERHAPS_NO_MESSAGE})"
            )
        if one.unsettled:
            at = "no position" if one.settled is None else f"offset {one.settled}"
            yield (
                f"partition {one.partition}: the journal begins at offset {one.journal_start}, "
                f"but the ledger is settled up to {at}: the records between them were deleted "
                "before a loader settled them"
            )
        if one.passed_over:
            yield (
                f"partition {one.partition}: the ledger's first loader began at journal offset "
                f"{one.began}, behind records that were deleted before any loader settled them "
                "(`loader run CONFIG --once --ledger-lost` takes note of it)"
            )


def next_steps(every: Sequence[JournalBeginning]) -> Iterator[str]:
    """Yield what a person does about the gaps, for each kind of them that is there."""
    if any(one.unread for one in every):
        yield (
            "Messages that were deleted before they were in blocks can only be loaded by running "
            "the source again; `relay accept` acknowledges that they are lost"
        )
    if any(one.unsettled or one.passed_over for one in every):
        yield (
            "Blocks whose journal records were deleted before a loader settled them can only be "
            "loaded by running the source again; `loader run CONFIG --once --ledger-lost` takes "
            "note of it and loads those that are left"
        )


def as_json(one: JournalBeginning) -> dict[str, Any]:
    """Return it as JSON has it; what is not known is null."""
    judged = ("whole", "unsettled", "passed_over", "unread")
    return {**asdict(one), **{name: getattr(one, name) for name in judged}}
