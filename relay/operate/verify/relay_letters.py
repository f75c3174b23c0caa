"""Judges the dead letters that relays wrote against what the journal says was sealed.

Pure. Only what is missing is judged: a letter names no epoch, so one too many cannot be told from
one that a rewind superseded, or that is older than the journal.
"""

# pure

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from relay.operate.verify.judge.anomaly import UnplacedAnomaly, gap
from relay.operate.verify.judge.operator_records import Superseded
from relay.program.plural import several
from relay.records_pb2 import Commit, DeadLetters


class RelayLetterJudge:
    """The relays' dead letters of one source partition.

    Args:
        commits: all retained journal records of the partition, in order.
        begin: of the dead letter topic's partition: retention took what was before.
    """

    def __init__(self, commits: Sequence[Commit], begin: int) -> None:
        self._live, self._begin = Superseded(list(commits)).live, begin
        self._old = _superseded(commits, self._live)
        # 8 bytes a letter.
        self._offsets: dict[str, array[int]] = defaultdict(partial(array, "q"))
        self.not_judged: list[str] = []
        """What cannot be known, and why; complete after `judge`."""

    def letter(self, table: str, message: int) -> None:
        """Take a letter: the table that its message named, and that message's source offset."""
        self._offsets[table].append(message)

    def judge(self, hidden_from: int | None = None) -> Iterator[UnplacedAnomaly]:
        """Yield what is missing, after the last letter.

        Letters lie in the order of the records that list them. Retention takes the first: of what
        is listed behind one that is there, it took nothing. An open transaction hides the last: of
        what is listed before one that is there, it hides nothing: `hidden_from` is its offset.
        """
        there = {table: sorted(set(offsets)) for table, offsets in self._offsets.items()}
        counts = [
            [(dead, _count(there.get(dead.table, []), dead)) for dead in commit.dead]
            for commit in self._live
        ]
        last = max((n for n, letters in enumerate(counts) if self._shows(letters)), default=0)
        gone, hidden, reached = 0, 0, self._begin == 0
        for n, (commit, letters) in enumerate(zip(self._live, counts, strict=True)):
            # Of the record itself retention may have taken the first ones, and the transaction may
            # hide the last.
            begins, reached = reached, reached or any(count for _, count in letters)
            for dead, count in letters:
                if count >= dead.messages:
                    continue
                if hidden_from is not None and n >= last:
                    hidden += dead.messages - count
                elif not begins:
                    gone += dead.messages - count
                else:
                    yield _gap(commit, dead, count)
        if gone:
            self._unknown(gone, f"have gone by retention: the topic begins at {self._begin}")
        if hidden:
            self._unknown(
                hidden, f"be hidden by an open transaction at offset {hidden_from} of the topic"
            )

    def _shows(self, found: Iterable[tuple[DeadLetters, int]]) -> bool:
        """Return whether a letter is there that can be of no other record than the one."""
        return any(
            count
            and not (
                (old := self._old.get(dead.table))
                and dead.first_source_offset < old.stop
                and old.start < dead.next_source_offset
            )
            for dead, count in found
        )

    def _unknown(self, letters: int, why: str) -> None:
        self.not_judged.append(
            f"partition {self._live[0].partition}: {several(letters, 'dead letter')} may {why}"
        )


def _superseded(commits: Iterable[Commit], live: Iterable[Commit]) -> dict[str, range]:
    """Return by table the source offsets between which letters do not count any more.

    They may still be in the topic, and no letter says of which record it is.
    """
    counting = {
        (commit.n, dead.table, dead.first_source_offset) for commit in live for dead in commit.dead
    }
    ranges: dict[str, range] = {}
    for commit in commits:
        for dead in commit.dead:
            first, following = dead.first_source_offset, dead.next_source_offset
            if (commit.n, dead.table, first) not in counting:
                span = ranges.get(dead.table, range(first, following))
                ranges[dead.table] = range(min(span.start, first), max(span.stop, following))
    return ranges


def _gap(commit: Commit, dead: DeadLetters, count: int) -> UnplacedAnomaly:
    return gap(
        f"{dead.table!r} from offset {dead.first_source_offset} to {dead.next_source_offset}: "
        f"record n={commit.n} lists {several(dead.messages, 'dead letter')}, but the topic has "
        f"{count}",
        commit.partition,
    )


def _count(offsets: Sequence[int], dead: DeadLetters) -> int:
    """Count the messages that a record lists and that are letters."""
    first = bisect_left(offsets, dead.first_source_offset)
    return bisect_left(offsets, dead.next_source_offset, first) - first
