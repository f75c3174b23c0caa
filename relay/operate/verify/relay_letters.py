"""Judges the dead letters that relays wrote against what the journal says was sealed.

Receives the journal's records of a source partition and the letters that its partition of the dead
letter topic shows, gives findings. Pure. Only what is missing is judged: a letter names no epoch,
so one too many cannot be told from one that a rewind superseded, or that is older than the journal.
"""

# pure

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.operator_records import Superseded
from relay.operate.verify.judge.record import UnplacedAnomaly
from relay.program.plural import several
from relay.records_pb2 import Commit, DeadLetters


class RelayLetterJudge:
    """The relays' dead letters of one source partition.

    Args:
        commits: all retained journal records of the partition, in order.
        begin: of the dead letter topic's partition: retention took what was before.

    Attributes:
        not_judged: sentences about what cannot be known; complete after `judge`.
    """

    def __init__(self, commits: Sequence[Commit], begin: int) -> None:
        self._live, self._begin = Superseded(list(commits)).live, begin
        # 8 bytes a letter.
        self._offsets: dict[str, array[int]] = defaultdict(partial(array, "q"))
        self.not_judged: list[str] = []

    def letter(self, table: str, message: int) -> None:
        """Take a letter: the table that its message named, and that message's source offset."""
        self._offsets[table].append(message)

    def judge(self, hidden_from: int | None = None) -> Iterator[UnplacedAnomaly]:
        """Yield what is missing, after the last letter.

        Letters lie in the order of the records that list them, and retention takes the first: of
        what is listed behind one that is there, it took nothing.

        Args:
            hidden_from: offset of an open transaction in the topic's partition; None: none is.
        """
        there = {table: sorted(set(offsets)) for table, offsets in self._offsets.items()}
        gone, reached = 0, self._begin == 0
        for commit in self._live:
            found = [(dead, _count(there.get(dead.table, []), dead)) for dead in commit.dead]
            # Of the record itself retention may have taken the first ones.
            begins, reached = reached, reached or any(count for _, count in found)
            for dead, count in found:
                if count >= dead.messages:
                    continue
                if not begins or hidden_from is not None:
                    gone += dead.messages - count
                    continue
                yield UnplacedAnomaly(
                    AnomalyKind.GAP,
                    f"{dead.table!r} from offset {dead.first_source_offset} to "
                    f"{dead.next_source_offset}: record n={commit.n} lists "
                    f"{several(dead.messages, 'dead letter')}, but the topic has {count}",
                    commit.partition,
                )
        if gone:
            why = (
                f"may have gone by retention: the topic begins at {self._begin}"
                if hidden_from is None
                else f"may be hidden by an open transaction at offset {hidden_from} of the topic"
            )
            self.not_judged.append(
                f"partition {self._live[0].partition}: {several(gone, 'dead letter')} {why}"
            )


def _count(offsets: Sequence[int], dead: DeadLetters) -> int:
    """How many of the messages that a record lists are letters."""
    first = bisect_left(offsets, dead.first_source_offset)
    return bisect_left(offsets, dead.next_source_offset, first) - first
