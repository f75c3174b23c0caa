"""Which dead letters do not count any more, because a rewind had their messages read again. Pure.

Receives journal records and dead letters. The message of such a letter is a row by now, or another
letter: sent to the source once more, it came twice.
"""

# pure

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from relay.blocks.dead_letter import DeadLetter
from relay.operate.rewind.seals import is_superseded
from relay.records_pb2 import Commit


class RewindRecord(NamedTuple):
    """A rewind of one source partition.

    Attributes:
        epoch: of the blocks since.
        starts: by table, the first source offset that was read again.
        next_letter: letters from this offset of the dead letter topic on are of later messages;
            None where an earlier version wrote the record.
        at_ms: Unix time by the clock of the person's machine; decides where there is nothing else.
    """

    epoch: int
    starts: dict[str, int]
    next_letter: int | None
    at_ms: int


class SupersededLetters:
    """Of one app: what the rewinds in its journal say of its dead letters."""

    def __init__(self) -> None:
        self._rewinds: defaultdict[int, list[RewindRecord]] = defaultdict(list)

    def add(self, commit: Commit) -> None:
        """Take note of a journal record."""
        if commit.HasField("rewind"):
            told = commit.rewind
            starts = {start.table: start.offset for start in told.starts}
            letter = told.next_letter if told.HasField("next_letter") else None
            rewind = RewindRecord(commit.epoch, starts, letter, commit.written_at_ms)
            self._rewinds[commit.partition].append(rewind)

    def include(self, letter: DeadLetter) -> bool:
        """Return whether a rewind had the letter's message read again after it was written."""
        rewinds = self._rewinds.get(letter.source.partition, ())
        return any(_supersedes(rewind, letter) for rewind in rewinds)


def _supersedes(rewind: RewindRecord, letter: DeadLetter) -> bool:
    if letter.block:  # a loader's, which may come long after the block was superseded
        return is_superseded(letter.block, letter.source.partition, rewind.epoch, rewind.starts)
    start = rewind.starts.get(letter.table)
    if start is None or letter.source.offset < start:
        return False
    if rewind.next_letter is None:
        return letter.when_ms < rewind.at_ms
    return letter.place.offset < rewind.next_letter
