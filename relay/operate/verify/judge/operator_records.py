"""Judges what a person recorded: rewinds and accepts. Pure.

A person's record may do what no relay's may: move a floor back, skip messages, name another source
topic. It may do only that, and only so that no message comes twice or is left out beyond what it
says.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from relay.names import sealed
from relay.operate.verify.judge.acknowledgements import ACCEPTED
from relay.operate.verify.judge.anomaly import (
    UnplacedAnomaly,
    backward,
    foreign,
    gap,
    overlap,
    torn,
)
from relay.operate.verify.judge.ledger_history import NOTHING, History
from relay.operate.verify.judge.record import ChainHead, by_person, sealed_parts
from relay.records_pb2 import Block, Commit, DeadLetters

KEPT_PLACES = 4_000_000
"""Places kept of all tables and partitions, 8 bytes each; beyond, the oldest are forgotten."""


def counts_anew(commit: Commit) -> bool:
    """Return whether the messages counted so far say nothing of what is counted from here on."""
    return by_person(commit) and list(commit.accept.kinds) != ["offsets"]


def renames(commit: Commit) -> bool:
    """Return whether an offset may name another message than before."""
    return bool({"topic", "truncated"} & set(commit.accept.kinds))


def as_ended(rewind: Commit, end: Commit) -> Commit:
    """Return a rewind's record with the places from which its end says that it superseded blocks.

    These are later where messages had gone from the source log before their rows were removed.
    """
    marks = {mark.table: mark.offset for mark in end.marks}
    ended = Commit.FromString(rewind.SerializeToString())
    for start in ended.rewind.starts:
        start.offset = max(start.offset, end.floor, marks.get(start.table, 0))
    return ended


def _starts(rewind: Commit) -> dict[str, int]:
    return {start.table: start.offset for start in rewind.rewind.starts}


def in_order(head: ChainHead, commit: Commit) -> Iterator[UnplacedAnomaly]:
    """Judge that a rewind is begun and ended, with nothing in between."""
    if by_person(commit) and head.rewinding:
        yield torn("a person's record comes before the rewind has ended")
    elif not by_person(commit) and commit.rewound != head.rewinding:
        what = (
            "ends no rewind" if commit.rewound else "comes before the unfinished rewind has ended"
        )
        yield torn(f"the record {what}")
    if commit.rewound and (commit.blocks or commit.dead):
        yield torn("the record that ends a rewind lists messages")


def shortens(head: ChainHead, commit: Commit, marks: Mapping[str, int]) -> bool:
    """Return whether the end of a rewind says that it has superseded less than its record says."""
    ends = commit.rewound and head.rewinding
    return ends and (commit.floor, marks) != (head.floor, head.marks)


def shortened(
    head: ChainHead, commit: Commit, marks: Mapping[str, int]
) -> Iterator[UnplacedAnomaly]:
    """Judge that each place is between those of the rewind and those that it found."""
    if (commit.position, commit.reference, commit.count) != (commit.floor, commit.floor, 0):
        text = f"position {commit.position}, reference {commit.reference}, count {commit.count}"
        yield torn(f"a rewind that ends at floor {commit.floor} counts anew: {text}")
    if head.before_rewind is None:
        return
    floor, done = head.before_rewind
    places = {table: max(marks.get(table, 0), commit.floor) for table in {*marks, *head.marks}}
    for table, place in {**places, **dict.fromkeys(done.keys() - places, commit.floor)}.items():
        least = max(head.marks.get(table, 0), head.floor)
        most = max(done.get(table, 0), floor)
        if not least <= place <= most:
            finding = gap if place > most else backward
            yield finding(f"a rewind ends with {table} at {place}, expected {least} to {most}")
    if not head.floor <= commit.floor <= floor:
        finding = gap if commit.floor > floor else backward
        yield finding(f"a rewind ends with floor {commit.floor}, expected {head.floor} to {floor}")


def judge(head: ChainHead, commit: Commit, marks: Mapping[str, int]) -> Iterator[UnplacedAnomaly]:
    """Judge a person's record after another record."""
    if commit.HasField("rewind") and commit.HasField("accept"):
        yield torn("a rewind and an accept in one record")
    if commit.blocks or commit.dead:
        yield torn("a person's record lists messages")
    if commit.epoch != head.epoch + 1:
        finding = backward if commit.epoch <= head.epoch else torn
        yield finding(
            f"a person's record has epoch {commit.epoch}, the record before it {head.epoch}"
        )
    if commit.position != commit.floor:
        yield torn(f"position {commit.position}, floor {commit.floor}")
    if counts_anew(commit) and (commit.reference, commit.count) != (commit.floor, 0):
        text = f"reference {commit.reference}, count {commit.count}, floor {commit.floor}"
        yield torn(f"a person's record counts anew: {text}")
    if commit.HasField("rewind"):
        yield from _rewind(head, commit, marks)
    else:
        yield from _accept(head, commit, marks)


def _rewind(head: ChainHead, commit: Commit, marks: Mapping[str, int]) -> Iterator[UnplacedAnomaly]:
    starts = _starts(commit)
    if commit.source_topic_id != head.topic_id:
        yield foreign(f"topic id {commit.source_topic_id}, before {head.topic_id}")
    expected = min([head.floor, *starts.values()])
    if not starts or commit.floor != expected:
        finding = gap if commit.floor > expected else backward
        yield finding(f"rewound to {commit.floor}, its tables start at {expected}")
    for table, start in starts.items():
        done = max(head.marks.get(table, 0), head.floor)
        if start > done:
            yield gap(f"{table} rewound to {start}, done up to {done}")
    for table in sorted({*marks, *starts, *head.marks}):
        done = max(head.marks.get(table, 0), head.floor)
        expected_mark = starts.get(table, done)
        mark = marks.get(table, 0)
        if mark != (expected_mark if expected_mark > commit.floor else 0):
            finding = gap if mark > expected_mark else overlap
            yield finding(f"mark of {table} is {mark or 'none'}, expected {expected_mark}")


def _accept(head: ChainHead, commit: Commit, marks: Mapping[str, int]) -> Iterator[UnplacedAnomaly]:
    kinds = set(commit.accept.kinds)
    if not kinds or kinds - {*ACCEPTED}:
        yield torn(f"accepted: {sorted(kinds) or 'nothing'}")
    if (commit.source_topic_id != head.topic_id) != ("topic" in kinds):
        yield foreign(
            f"source topic id {commit.source_topic_id}, before {head.topic_id}; accepted: "
            f"{', '.join(sorted(kinds))}"
        )
    moved = (commit.floor > head.floor) - (commit.floor < head.floor)
    # Where the log lost its end behind the floor, only marks go back.
    new_from = max([commit.floor, *marks.values()])
    shortened = new_from < max([head.floor, *head.marks.values()])
    behind = {-1, 0} if shortened else {-1}
    allowed = {1} if "retention" in kinds else behind if "truncated" in kinds else {0}
    if "topic" not in kinds and moved not in allowed:
        finding = gap if moved > 0 else backward
        yield finding(
            f"floor {commit.floor} after {head.floor}; accepted: {', '.join(sorted(kinds))}"
        )
    kept: Mapping[str, int] = {} if "topic" in kinds else head.marks
    if "truncated" in kinds:
        kept = {table: min(mark, new_from) for table, mark in kept.items()}
    if marks != {table: mark for table, mark in kept.items() if mark > commit.floor}:
        yield overlap(f"marks {dict(marks)}, before {dict(head.marks)}")


class SealedStarts:
    """Where blocks and dead letters began, of all source partitions: the latest KEPT_PLACES.

    A rewind to a place before those that are kept is not judged by them, as one to before the
    oldest record that is retained.
    """

    def __init__(self) -> None:
        self._of: dict[int, _PartitionStarts] = {}
        self._kept = 0

    def add(self, partition: int, commit: Commit) -> Iterator[UnplacedAnomaly]:
        """Yield the next record; of a rewind, what is wrong with the places that it names."""
        starts = self._of.get(partition)
        if starts is None:
            starts = self._of[partition] = _PartitionStarts()
        yield from starts.add(commit)
        self._kept += len(commit.blocks) + len(commit.dead)
        if self._kept > KEPT_PLACES:
            self._forget_older()

    def forget(self, partition: int) -> None:
        """Forget a partition: records of it are missing."""
        self._of.pop(partition, None)

    def _forget_older(self) -> None:
        """Halve what takes most room: a table of few blocks keeps its places beside busy ones."""
        tables = [places for partition in self._of.values() for places in partition.places()]
        self._kept = sum(map(len, tables))  # a rewind has taken some
        if self._kept <= KEPT_PLACES:
            return
        # Those below half the mean have less than half of all: a quarter goes at the least.
        for places in tables:
            if 2 * len(places) * len(tables) >= self._kept:
                del places[: len(places) // 2]
        self._kept = sum(map(len, tables))


class _PartitionStarts:
    """Starts of one source partition, as far as they still count."""

    def __init__(self) -> None:
        self._firsts: dict[str, array[int]] = {}
        self._latest: dict[str, int] = {}
        self._begun: Commit | None = None
        self._gone: dict[str, tuple[array[int], int]] = {}
        """By table that is rewound now: the places that do not count, and how far they reach."""

    def places(self) -> Iterable[array[int]]:
        """Give the places of each table, which the caller may shorten from the front."""
        return self._firsts.values()

    def add(self, commit: Commit) -> Iterator[UnplacedAnomaly]:
        """Yield the next record; of a rewind, what is wrong with the places that it names."""
        rewind, self._begun = self._begun, None
        if commit.HasField("accept") and renames(commit):
            self._firsts, self._latest = {}, {}
        elif commit.HasField("rewind"):
            yield from self._rewound(commit)
            self._begun = commit
        elif commit.rewound and rewind is not None:
            yield from self._ended(rewind, commit)
        for part in sealed_parts(commit):
            table, first = part.table, part.first_source_offset
            firsts = self._firsts.setdefault(table, array("q"))
            if not firsts or first > firsts[-1]:
                firsts.append(first)
            self._latest[table] = max(part.next_source_offset, self._latest.get(table, 0))

    def _rewound(self, commit: Commit) -> Iterator[UnplacedAnomaly]:
        starts = _starts(commit)
        marked = {mark.table for mark in commit.marks}
        for table, latest in self._latest.items():
            if latest > commit.floor and table not in starts and table not in marked:
                yield overlap(
                    f"{table} has blocks up to offset {latest}, but is read again from "
                    f"{commit.floor}"
                )
        self._gone = {}
        for table, start in starts.items():
            firsts = self._firsts.get(table, array("q"))
            index = bisect_left(firsts, start)
            if firsts and firsts[0] <= start and (index == len(firsts) or firsts[index] != start):
                yield overlap(f"{table} rewound to {start}, where no block of it begins")
            latest = self._latest.get(table, start)
            self._gone[table] = firsts[index:], latest
            del firsts[index:]
            self._latest[table] = min(start, latest)

    def _ended(self, rewind: Commit, end: Commit) -> Iterator[UnplacedAnomaly]:
        """Count again what begins before the places of the rewind's end."""
        before = _starts(rewind)
        starts = _starts(as_ended(rewind, end))
        for table, start in starts.items():
            firsts, latest = self._gone[table]
            if start == before[table]:
                continue
            index = bisect_left(firsts, start)
            inside = bool(firsts) and firsts[0] <= start < latest
            if inside and (index == len(firsts) or firsts[index] != start):
                yield overlap(f"a rewind ends with {table} at {start}, where no block of it begins")
            self._firsts.setdefault(table, array("q")).extend(firsts[:index])
            self._latest[table] = min(start, latest)
        self._gone = {}


class Superseded:
    """Blocks that a rewind replaced, of one source partition's retained records in order."""

    def __init__(self, commits: list[Commit]) -> None:
        self.kept: set[str] = set()
        self.removed: set[str] = set()
        self.live: list[Commit] = []
        """The records again, without what was superseded, since offsets name what they name."""
        for commit, after in zip_longest(commits, commits[1:]):
            if commit.HasField("accept") and renames(commit):
                self.live = []
            ends = commit.HasField("rewind") and after is not None and after.rewound
            record = as_ended(commit, after) if ends else commit
            if record.HasField("rewind"):
                self._supersede(record)
            self.live.append(record)
        # Until the rewind has ended, some of their rows may be there and some not.
        self.unfinished = bool(commits) and commits[-1].HasField("rewind")

    def _supersede(self, rewind: Commit) -> None:
        starts = _starts(rewind)
        kept = set(rewind.rewind.kept)
        for index, commit in enumerate(self.live):
            if not any(_from(starts, part) for part in sealed_parts(commit)):
                continue
            remaining = Commit()
            remaining.CopyFrom(commit)
            del remaining.blocks[:], remaining.dead[:]
            remaining.dead.extend(dead for dead in commit.dead if not _from(starts, dead))
            for block in commit.blocks:
                if not _from(starts, block):
                    remaining.blocks.append(block)
                else:
                    (self.kept if block.table in kept else self.removed).add(block.id)
            self.live[index] = remaining


def _from(starts: Mapping[str, int], part: Block | DeadLetters) -> bool:
    return part.table in starts and part.first_source_offset >= starts[part.table]


def replaced(
    blocks: Mapping[str, Block],
    superseded: Superseded,
    counted: Mapping[str, int] | None,
    ledger: Mapping[str, History],
    made: Mapping[str, int] | None = None,
) -> Iterator[UnplacedAnomaly]:
    """Judge superseded blocks of one table and partition by ledger and rows.

    Blocks are by id; `counted`, `ledger` and `made` are those of `contents.landed`.
    """
    if superseded.unfinished:
        return
    for name, block in blocks.items():
        rows = 0 if counted is None else counted.get(name, 0)
        whole = (made or {}).get(name, block.rows)
        allowed = whole if sealed(name) in superseded.kept else 0
        if rows > allowed:
            yield overlap(
                f"a rewind superseded block {name}, but {rows} of its rows are in the table"
            )
        state = ledger.get(name, NOTHING).state
        if state not in {"loaded", "discarded", "dead"}:
            yield overlap(
                f"a rewind superseded block {name}, but it may still be loaded: its state is "
                f"{state or 'not touched'}"
            )
