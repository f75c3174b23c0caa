"""Judges the messages of a source partition against what its journal says was sealed. Pure."""

# pure

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from relay.operate.verify.judge.anomaly import UnplacedAnomaly, gap, overlap
from relay.operate.verify.judge.beginning import ToldFrom, told_from
from relay.operate.verify.judge.operator_records import Superseded
from relay.operate.verify.judge.record import by_person, sealed_parts
from relay.program.plural import several
from relay.records_pb2 import Commit

_Stretch = tuple[int, int, int]
"""First and next source offset of a table's sealed buffer, and how many messages it had."""
_UNTOLD = (
    ". If its cleanup.policy has compact, compaction may have deleted the others: grant this user "
    "DescribeConfigs on the topic, and it is not judged then"
)


class SourceJudge:
    """The messages of one source partition.

    Args:
        commits: all retained journal records of the partition, in order; at least one.
        start: of the source partition's log.
        later: the partition is newer than its app, so that no message of it is to be passed over.
        compacted: whether compaction deletes messages of the topic, too; None: nobody says so.
    """

    def __init__(
        self,
        commits: Sequence[Commit],
        start: int,
        *,
        later: bool = False,
        compacted: bool | None = False,
    ) -> None:
        self._live = Superseded(list(commits)).live
        self._start, self._told = start, _told_from(self._live)
        oldest = self._live[0]
        floor = oldest.floor if by_person(oldest) else oldest.previous_floor
        begun = min([floor, *self._told.tables.values()])
        # A log's start only grows: what is there now, was there when the partition was begun.
        whole = oldest.n <= 1 and not by_person(oldest)
        self._passed_over, self._later = range(start, begun if whole else start), later
        self._compacted, self._fewer = compacted, Counter[str]()
        # Source offsets from and up to which messages have to be read.
        self.first = max(start, begun)
        self.next = commits[-1].floor
        # 8 bytes a message.
        self._offsets: dict[str, array[int]] = defaultdict(partial(array, "q"))
        self._before: dict[str, int] = defaultdict(int)

    def message(self, offset: int, table: str) -> None:
        """Take the next visible message, in order of offsets."""
        if offset < self._told.of(table):
            self._before[table] += 1
        else:
            self._offsets[table].append(offset)

    def judge(self) -> Iterator[UnplacedAnomaly]:
        """Yield what is wrong, after the last message."""
        if self._passed_over and self._later:
            yield gap(
                f"{self._begun()}: the messages before were passed over, although the partition is "
                "newer than the app, which begins such a one with its first message"
            )
        sealed = _sealed(self._live)
        for table in {**sealed, **self._offsets}:
            yield from self._table(table, sealed[table], self._offsets[table])

    def _table(
        self, table: str, sealed: Sequence[_Stretch], offsets: Sequence[int]
    ) -> Iterator[UnplacedAnomaly]:
        """Judge one table: each message is in a stretch, and each stretch has all of its own.

        A stretch that begins before what is judged, or ends after it, has messages that were not
        read: it cannot be counted, but those that were read are in it.
        """
        judged_from, end = max(self._start, self._told.of(table)), 0
        for first, following, messages in sealed:
            begin = bisect_left(offsets, first, end)
            yield from _nowhere(table, offsets[end:begin])
            end = bisect_left(offsets, following, begin)
            if first >= judged_from and following <= self.next and end - begin != messages:
                yield from self._other_number(table, (first, following, messages), end - begin)
        # All that lies before the floor is done.
        yield from _nowhere(table, offsets[end:])

    def _other_number(self, table: str, stretch: _Stretch, there: int) -> Iterator[UnplacedAnomaly]:
        """Judge a stretch of which the source topic has more messages than listed, or fewer."""
        first, following, messages = stretch
        fewer = there < messages
        if fewer and self._compacted:
            self._fewer[table] += 1
            return
        untold = fewer and self._compacted is None
        finding = overlap if fewer else gap
        yield finding(
            f"{table!r} from offset {first} to {following}: the journal lists "
            f"{messages} messages, but the source topic has {there}{_UNTOLD if untold else ''}",
        )

    def not_judged(self, partition: int) -> Iterator[str]:
        """Yield what cannot be known, after `judge`."""
        if self._passed_over and not self._later:
            yield (
                f"partition {partition}: {self._begun()}: whether the messages before were to be "
                "passed over (source.start) is not known"
            )
        if self._before:
            tables = several(len(self._before), "table")
            messages = several(sum(self._before.values()), "source message")
            beyond = max(map(self._told.of, self._before))
            yield (
                f"partition {partition}: {messages} of {tables}, from source offset {self.first} "
                f"to {beyond}: the journal records that told of them were deleted"
            )
        if self._fewer:
            buffers = several(sum(self._fewer.values()), "sealed buffer")
            tables = several(len(self._fewer), "table")
            yield (
                f"partition {partition}: {buffers} of {tables}: the source topic has fewer "
                "messages than the journal lists, as its cleanup.policy has compact; whether any "
                "is in blocks twice is not known"
            )

    def _begun(self) -> str:
        return (
            f"the app began at source offset {self._passed_over.stop}, and the log begins at "
            f"{self._passed_over.start}"
        )


def _told_from(commits: Sequence[Commit]) -> ToldFrom:
    """Return from where on these records tell of each table: if it is read again, from there."""
    oldest = told_from(commits[0])
    tables = dict(oldest.tables)
    for commit in commits:
        for start in commit.rewind.starts:
            tables[start.table] = min(start.offset, tables.get(start.table, oldest.floor))
    return ToldFrom(oldest.floor, tables)


def _nowhere(table: str, offsets: Sequence[int]) -> Iterator[UnplacedAnomaly]:
    for offset in offsets:
        yield gap(f"source message {offset} of {table!r} is in no block and no dead letter")


def _sealed(commits: Sequence[Commit]) -> dict[str, list[_Stretch]]:
    """Return each table's stretches in order; block and dead letters of a buffer are one."""
    sealed: dict[str, list[_Stretch]] = defaultdict(list)
    for commit in commits:
        messages: dict[tuple[str, int, int], int] = defaultdict(int)
        for part in sealed_parts(commit):
            place = part.table, part.first_source_offset, part.next_source_offset
            messages[place] += part.messages
        for (table, first, following), count in messages.items():
            sealed[table].append((first, following, count))
    return sealed
