"""Which dead letters do not count any more, because a rewind had their messages read again. Pure.

Receives journal records and dead letters. The message of such a letter is a row by now, or another
letter: sent to the source once more, it came twice.
"""

# pure

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from relay.blocks.dead_letter import DeadLetter
from relay.blocks.journal import renames_offsets
from relay.names import BlockId
from relay.records_pb2 import Accept, Commit, Rewind


class LettersBefore(NamedTuple):
    """The dead letters of one source partition that were there when a person's record was written.

    Attributes:
        epoch: that the record began; blocks of before are of earlier ones.
        next_letter: the offset of the dead letter topic that came next; None where an earlier
            version wrote the record.
        at_ms: Unix time by the clock of the person's machine; decides where there is nothing else.
    """

    epoch: int
    next_letter: int | None
    at_ms: int

    @classmethod
    def of(cls, commit: Commit, decision: Rewind | Accept) -> LettersBefore:
        """Return them as the record says."""
        letter = decision.next_letter if decision.HasField("next_letter") else None
        return cls(commit.epoch, letter, commit.written_at_ms)

    def include(self, letter: DeadLetter) -> bool:
        """Return whether the letter is one of them; one of a loader goes with its block."""
        if letter.block:
            return BlockId.parse(letter.block).epoch < self.epoch
        if self.next_letter is None:
            return letter.when_ms < self.at_ms
        return letter.place.offset < self.next_letter


class SourceRewind(NamedTuple):
    """A rewind of one source partition.

    Attributes:
        starts: by table, the first source offset that was read again.
        letters: that were there.
        settled: of them, those of a source log that is gone; None: it is the first.
    """

    starts: dict[str, int]
    letters: LettersBefore
    settled: LettersBefore | None

    def supersedes(self, letter: DeadLetter) -> bool:
        """Return whether it had the letter's message read again."""
        start = self.starts.get(letter.table)
        first = BlockId.parse(letter.block).first_offset if letter.block else letter.source.offset
        if start is None or first < start or not self.letters.include(letter):
            return False
        return self.settled is None or not self.settled.include(letter)


class SupersededLetters:
    """Of one app: what the rewinds in its journal say of its dead letters."""

    def __init__(self) -> None:
        self._rewinds: defaultdict[int, list[SourceRewind]] = defaultdict(list)
        self._settled: dict[int, LettersBefore] = {}

    def add(self, commit: Commit) -> None:
        """Take note of a journal record; each partition's come in order."""
        if renames_offsets(commit.accept):
            self._settled[commit.partition] = LettersBefore.of(commit, commit.accept)
        if commit.HasField("rewind"):
            starts = {start.table: start.offset for start in commit.rewind.starts}
            there = LettersBefore.of(commit, commit.rewind)
            rewind = SourceRewind(starts, there, self._settled.get(commit.partition))
            self._rewinds[commit.partition].append(rewind)

    def include(self, letter: DeadLetter) -> bool:
        """Return whether a rewind had the letter's message read again after it was written."""
        rewinds = self._rewinds.get(letter.source.partition, ())
        return any(rewind.supersedes(letter) for rewind in rewinds)
