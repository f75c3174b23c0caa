"""A source partition with its relay's real core, a loader and a table, all in memory, and the
port by which a rewind or an accept changes them; it ends the process at any step.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loader.journal.rewind_check import overtaken
from loader.journal.rewinds import followed
from loader.operate.supersede import Rewound
from relay.blocks import journal
from relay.core import events as ev
from relay.core.offsets import CommittedOffset
from relay.core.takeover import take_over
from relay.errors import Refused, RelayError
from relay.names import BlockId
from relay.operate.rewind.plan import PartitionPositions
from relay.operate.rewind.records import NextLetter, RewindAuthor
from relay.operate.rewind.removal import CountedRows, Replays, RerunTable
from relay.operate.rewind.seals import RecordedRewind, Seals
from relay.records_pb2 import Block, Commit
from tests.verify import histories
from tests.verify.histories import Writer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from relay.core.records import PartitionTruth
    from relay.operate.dead.replay_plan import ReplayMark

NOTHING = 2**63 - 1
AUTHOR = RewindAuthor("rewind", 1, "a test")


class Crash(Exception):
    """The process that rewinds was killed."""


@dataclass(frozen=True)
class Backup:
    """ClickHouse as it was."""

    ledger: dict[str, str]
    rows: Counter[str]
    notes: frozenset[int]


class World(Writer):
    """One app. `crash_at` counts the steps of the port until the process is killed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.log_start = 0
        self.journal_start = 0  # retention took all records of the journal before it
        self.topic, self.topic_id = histories.SOURCE, histories.TOPIC_ID
        self.lost_end: int | None = None  # what the leader says of the committed epoch
        self.named: tuple[int, str | None] | str | None = "as committed"
        self.ledger: dict[str, str] = {}
        self.rows: Counter[str] = Counter()  # by block id
        self.notes: set[int] = set()  # offsets of rewinds, in the ledger
        self.crash_at = -1
        self.steps: list[str] = []
        self.owned = False
        self.target = RerunTable(there=True, engine="MergeTree", stamped=True)
        self.without_id = 0  # rows of each table that carry no id
        self.replayed: list[ReplayMark] = []
        self.marks_deleted = ""
        self.letters = 0

    # ---- what relay and loader do --------------------------------------------------------------

    def relay(self, commits: int) -> None:
        """A relay takes over and commits so many more records."""
        self._source = [m for m in self.messages if m[0] >= self.floor]
        self.run(len(self.journal) + commits)

    def lose_end(self, end: int, new: int) -> None:
        """The log ends at `end`, and so many new messages come; the leader says so where any do."""
        self.messages = [m for m in self.messages if m[0] < end]
        self._end = end + new
        tables = [table for table in histories.TABLES if table]
        self.messages += [(end + i, tables[i % len(tables)]) for i in range(new)]
        self.lost_end = end if new else None

    def lose_beginning(self, start: int) -> None:
        """Retention moves the log's start there."""
        self.log_start = start
        self.messages = [m for m in self.messages if m[0] >= start]

    def settle(self) -> None:
        """A relay takes over, seals all that is there, and stops."""
        self._source = [m for m in self.messages if m[0] >= self.floor]
        self._restart()
        position = self._state.partitions[0].position
        while position < self._end:  # one poll may leave some
            self._poll()
            position = self._state.partitions[0].position
        self._now += 100_000
        self._dispatch(ev.Polled(self._now, (), {}))

    def stops(self) -> str:
        """Why a relay would stop at a take-over; empty: it would not."""
        taken = take_over(self._truth(), 0)
        return taken.message if isinstance(taken, RelayError) else ""

    def _truth(self) -> PartitionTruth:
        found = super()._truth()
        read = found.record and replace(found.record, source_topic=histories.SOURCE)
        return replace(
            found,
            record=read,
            log_start=self.log_start,
            source_topic=self.topic,
            source_topic_id=self.topic_id,
        )

    def load(self, most: int = 10**9) -> None:
        """A loader: so many blocks that the ledger does not know."""
        for block in self.blocks():
            if block.id not in self.ledger and most:
                most -= 1
                self.ledger[block.id] = "loaded"
                self.rows[block.id] += block.rows

    def backup(self) -> Backup:
        """Ledger and rows as they are now."""
        return Backup(dict(self.ledger), self.rows.copy(), frozenset(self.notes))

    def restore(self, backup: Backup) -> None:
        self.ledger, self.rows = dict(backup.ledger), backup.rows.copy()
        self.notes = set(backup.notes)

    def lacks(self) -> bool:
        """Whether a loader that begins with the journal's first record would stop."""
        rows = ((0, at, b"" if c.HasField("rewind") else None) for at, c in self.journal)
        return not {offset for _, offset in followed(rows)} <= self.notes

    def blocks(self) -> Iterator[Block]:
        for _, commit in self.journal:
            yield from commit.blocks

    @property
    def floor(self) -> int:
        return 0 if self._committed is None else self._committed.floor

    # ---- the port ------------------------------------------------------------------------------

    def look(self, beyond: Mapping[int, int]) -> dict[int, PartitionPositions]:
        self._step("look")
        seals = Seals(beyond.get(0, NOTHING))
        for offset, commit in self.journal:
            seals.add(offset, commit)
        committed = self._committed
        named = None if committed is None else (committed.floor, committed.metadata)
        if not isinstance(self.named, str):
            named = self.named
        bounds = self.log_start, self._end, self.lost_end
        journal = self.topic, self.journal_start
        return {0: PartitionPositions(0, named, seals, self.topic_id, *bounds, *journal)}

    @contextlib.contextmanager
    def fenced(self, partitions: Collection[int]) -> Iterator[None]:
        assert set(partitions) == {0}
        self._step("fence")
        self.owned = True
        yield
        self.owned = False

    def write(self, records: Sequence[Commit]) -> None:
        self._step("before the transaction")
        assert self.owned
        (record,) = records
        commit = Commit.FromString(record.SerializeToString())
        self.journal.append((self._next_record, commit))
        self._records = {self._next_record: journal.decode(record.SerializeToString())}
        self._committed = CommittedOffset(commit.floor, commit.n, self._next_record)
        self._next_record += 2
        self.named, self.lost_end = "as committed", None  # committed without an epoch
        self._step("after the transaction")

    def supersede(self, rewind: RecordedRewind) -> int:
        removed = 0
        for block in rewind.blocks:
            self._step(f"before {block.id} is settled")
            self._check(rewind)
            self.ledger.setdefault(block.id, "discarded")
        for block in rewind.blocks:
            self._step(f"before the rows of {block.id} are removed")
            self._check(rewind)
            if block.table not in rewind.record.rewind.kept:
                removed += self.rows.pop(block.id, 0)
        if not rewind.whole:  # the loader's own rule for blocks whose records are gone
            rule = Rewound(rewind.record, rewind.offset, rewind.first_epochs)
            for name in [one for one in self.rows if rule.replaces(one)]:
                if BlockId.parse(name).table not in rewind.record.rewind.kept:
                    removed += self.rows.pop(name)
        self._step("before the note")
        self.notes.add(rewind.offset)
        self._step("after the removal")
        return removed

    def _check(self, rewind: RecordedRewind) -> None:
        """What `loader supersede` asks the journal."""
        found = [commit for offset, commit in self.journal if offset >= rewind.offset]
        if why := overtaken(rewind.record, found[:2]):
            raise Refused(why)

    def noted(self, rewinds: Collection[RecordedRewind]) -> set[tuple[int, int]]:
        return {(0, one.offset) for one in rewinds if one.offset in self.notes}

    def targets(self, tables: Collection[str]) -> dict[str, RerunTable]:
        return dict.fromkeys(tables, self.target)

    def counted(self, blocks: Mapping[str, Collection[str]]) -> dict[str, CountedRows]:
        assert not self.owned, "relays would take their places back meanwhile"
        rows = {block.id: block.rows for block in self.blocks()}
        found = {}
        for table, ids in blocks.items():
            loaded = {one: rows[one] for one in ids if self.ledger.get(one) == "loaded"}
            found[table] = CountedRows(loaded, self.rows, self.without_id)
        return found

    def removed(self, blocks: Mapping[str, Collection[str]]) -> set[str]:
        self._step("removed")
        settled = {one: self.ledger.get(one) for ids in blocks.values() for one in ids}
        return {
            one
            for one, state in settled.items()
            if state == "discarded" or (state == "loaded" and not self.rows[one])
        }

    def replays(self) -> Replays:
        return Replays(self.replayed, self.marks_deleted)

    def next_letters(self, partitions: Collection[int]) -> dict[int, NextLetter]:
        assert self.owned, "another relay could write letters meanwhile"
        self._step("next letters")
        return dict.fromkeys(partitions, NextLetter("dead topic", self.letters))

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 == self.crash_at:
            self.owned = False
            raise Crash(name)

    # ---- the judge -----------------------------------------------------------------------------

    def contents(self) -> Counter[int]:
        """How often each source message is in the table or among the dead letters that count."""
        found: Counter[int] = Counter()
        seals = Seals(-1)
        for offset, commit in self.journal:
            seals.add(offset, commit)
        dead = {
            (one.table, one.first, one.next, one.block.id if one.block else "")
            for table in histories.TABLES
            for one in seals.live(table)
        }
        for table, first, following, block in dead:
            if not block:
                found.update(self._between(table, first, following))
        for block in {b.id: b for b in self.blocks()}.values():
            copies = self.rows[block.id] / block.rows
            assert copies == int(copies)
            between = self._between(
                block.table, block.first_source_offset, block.next_source_offset
            )
            for _ in range(int(copies)):
                found.update(between)
        return found

    def _between(self, table: str, first: int, following: int) -> list[int]:
        return [o for o, t in self.messages if t == table and first <= o < following]

    def everything(self) -> Counter[int]:
        """Each message once."""
        return Counter(offset for offset, _ in self.messages)
