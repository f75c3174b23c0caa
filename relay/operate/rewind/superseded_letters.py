"""Which dead letters do not count any more, because a rewind had their messages read again. Pure.

The message of such a letter is a row by now, or another letter: sent to the source once more, it
came twice. Of letters that are older than the journal nobody knows that, unless nobody had rewound
until then.
"""

# pure

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from relay.blocks.dead_letter import DeadLetter
from relay.blocks.journal import carried_out, renames_offsets, rewind_starts
from relay.names import BlockId
from relay.records_pb2 import Accept, Commit, Rewind


class LettersBefore(NamedTuple):
    """The dead letters of one source partition that were there when a person's record was written.

    Attributes:
        epoch: that the record began; blocks of before are of earlier ones.
        next_letter: the next offset of the dead letter topic; None in records of earlier versions.
        topic_id: of that dead letter topic; empty in records of earlier versions.
        at_ms: Unix time by the clock of the person's machine; decides where there is nothing else.
    """

    epoch: int
    next_letter: int | None
    topic_id: str
    at_ms: int

    @classmethod
    def of(cls, commit: Commit, decision: Rewind | Accept) -> LettersBefore:
        """Return them as the record says."""
        letter = decision.next_letter if decision.HasField("next_letter") else None
        return cls(commit.epoch, letter, decision.dead_topic_id, commit.written_at_ms)

    def include(self, letter: DeadLetter, topic_id: str) -> bool:
        """Return whether the letter, of the topic of this id, is one of them.

        One of a loader goes with its block. Of relays, all letters of a topic that was made anew
        since are later ones: its offsets name none of those that were there.
        """
        if letter.block:
            return BlockId.parse(letter.block).epoch < self.epoch
        if self.topic_id not in {"", topic_id}:
            return False
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

    def supersedes(self, letter: DeadLetter, topic_id: str) -> bool:
        """Return whether it had the message of this letter, of this topic, read again."""
        start = self.starts.get(letter.table)
        first = BlockId.parse(letter.block).first_offset if letter.block else letter.source.offset
        if start is None or first < start or not self.letters.include(letter, topic_id):
            return False
        return self.settled is None or not self.settled.include(letter, topic_id)


class DeletedRecords(NamedTuple):
    """Journal records of one source partition that retention deleted; rewinds may be among them.

    Attributes:
        epoch: of the last of them.
        until_ms: when the oldest record that is there was written.
    """

    epoch: int
    until_ms: int

    @classmethod
    def before(cls, oldest: Commit) -> DeletedRecords:
        """Return those before a partition's oldest record."""
        begins = oldest.HasField("rewind") or oldest.HasField("accept")
        return cls(oldest.epoch - begins, oldest.written_at_ms)

    def may_supersede(self, letter: DeadLetter) -> bool:
        """Return whether a rewind among them may have had the letter's message read again."""
        if letter.block:
            return BlockId.parse(letter.block).epoch < self.epoch
        return letter.when_ms <= self.until_ms


ALL_DELETED = DeletedRecords(2**63 - 1, 2**63 - 1)
"""No record is left, and nothing tells of any letter."""


class SupersededLetters:
    """Of one app: what the rewinds in its journal say of its dead letters.

    Args:
        topic_id: of the dead letter topic as it is now.
        first_epochs: that a source partition may begin with. As only a rewind or an accept begins
            another, there was neither before a record of one of these.
    """

    def __init__(self, topic_id: str, first_epochs: Collection[int]) -> None:
        self._topic_id = topic_id
        self._first_epochs = first_epochs
        self._begun: set[int] = set()
        self._deleted: dict[int, DeletedRecords] = {}
        self._rewinds: defaultdict[int, list[SourceRewind]] = defaultdict(list)
        self._settled: dict[int, LettersBefore] = {}
        self._open: dict[int, Commit] = {}

    def add(self, commit: Commit) -> None:
        """Take note of a journal record; each partition's come in order, from its oldest on."""
        if commit.partition not in self._begun:
            self._begun.add(commit.partition)
            self._deleted.pop(commit.partition, None)
            before = DeletedRecords.before(commit)
            if commit.n > 1 and before.epoch not in self._first_epochs:
                self._deleted[commit.partition] = before
        if renames_offsets(commit.accept):
            self._settled[commit.partition] = LettersBefore.of(commit, commit.accept)
        if commit.HasField("rewind"):
            letters = LettersBefore.of(commit, commit.rewind)
            settled = self._settled.get(commit.partition)
            self._rewinds[commit.partition].append(
                SourceRewind(rewind_starts(commit), letters, settled)
            )
            self._open[commit.partition] = commit
        elif (begun := self._open.pop(commit.partition, None)) is not None and commit.rewound:
            rewinds = self._rewinds[commit.partition]
            starts = rewind_starts(carried_out(begun, commit))
            rewinds[-1] = rewinds[-1]._replace(starts=starts)

    def emptied(self, partition: int) -> None:
        """Take note that the journal had records of this source partition once."""
        if partition not in self._begun:
            self._deleted[partition] = ALL_DELETED

    def include(self, letter: DeadLetter) -> bool:
        """Return whether a rewind had the letter's message read again after it was written."""
        rewinds = self._rewinds.get(letter.source.partition, ())
        return any(rewind.supersedes(letter, self._topic_id) for rewind in rewinds)

    def may_include(self, letter: DeadLetter) -> bool:
        """Return whether one may have had, whose record was deleted."""
        deleted = self._deleted.get(letter.source.partition)
        return deleted is not None and deleted.may_supersede(letter)
