"""Decides which blocks stand aside, and when they are tried again. Pure: the time is given.

A block that its table or its own size keeps from being loaded must hold up no other. It is set
aside in the ledger, the journal's position moves on, and it is tried again from time to time: one
block of a table first, and when that one is loaded, all the others of the table. So a table that
takes nothing costs one INSERT in a while, however many of its blocks wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from loader.core.plan import ASIDE, DEAD, LOADED, Entry, settled
from loader.core.retry_cause import RetryCause
from loader.core.waiting import LETTERS, Place, turn
from relay.clickhouse.errors import About
from relay.program.waiting import backoff
from relay.records_pb2 import Block

TRIES = 6
"""Failures of a block alone, while others are loaded, before it stands aside: six seconds."""
PATIENCE_SECONDS = 60.0
"""The same while nothing else could be tried, which might have the same trouble; and where each
failure takes long, as waiting for a silent server does, which nothing else is tried beside."""
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 120.0
"""From one try of a table's blocks to the next; doubled each time."""
FEW = 32
"""Blocks tried together, once one of their table was loaded."""
KEPT = 8 * FEW
"""Blocks of a queue that a loader has in memory, some 1.4 kB each. The ledger has the others."""
_ALONE = frozenset({About.SIZE, About.BLOCK, About.UNKNOWN})
"""What says nothing of the next block of the same table."""
_AT_ONCE = _ALONE | {About.TABLE}
_SHUTS = frozenset({About.TABLE, About.TABLE_NOW, About.SERVER})
"""What the next block of the same table would meet as well."""


def stands_aside(about: str, tries: int, seconds: float, *, others_loaded: bool) -> bool:
    """Decide whether a block that failed is set aside instead of holding up the micro-batch.

    Args:
        about: what its last failure was about, of relay.clickhouse.errors; empty: something else.
        tries: failures in a row.
        seconds: since the first of them was known.
        others_loaded: whether blocks of other tables were loaded meanwhile: then it is not the
            server that is away.
    """
    if about in _AT_ONCE or seconds >= PATIENCE_SECONDS:
        return True
    return tries >= TRIES and (others_loaded or about == About.TABLE_NOW)


def entry(entries: Sequence[Entry], claim: str, rows: int, reason: str) -> Entry | None:
    """Return the ledger row that sets a block aside; None where it is settled already."""
    if settled(entries) is not None:
        return None
    attempt = 1 + max((entry.attempt for entry in entries), default=0)
    return Entry(ASIDE, attempt, claim, reason=reason, rows=rows)


@dataclass(frozen=True, slots=True)
class Aside:
    """A block that stands aside, and why.

    Attributes:
        since_ms: as of its row in the ledger; 0: it is not read yet.
        forgotten: the ledger may have lost what settled it: its table is to be asked before.
        cause: of its last failure, which ended in a retry.
    """

    block: Block
    reason: str = ""
    about: str = ""
    since_ms: int = 0
    forgotten: bool = False
    cause: RetryCause = RetryCause.ERROR

    @property
    def tells_of_others(self) -> bool:
        """Return whether the next block of the same table would meet the same.

        An error without a word of what it is about is the ledger's or Kafka's. A statement that
        still runs, another loader, a table that was altered just now are this block's own trouble.
        """
        if self.about:
            return self.about not in _ALONE
        return self.cause is RetryCause.ERROR


def queue(block: Block) -> str:
    """Return whose turn a block waits for: its table's, or that of its table's dead letters.

    What keeps these from being written keeps no block from being loaded, nor the other way round.
    """
    return f"{block.table}{LETTERS if block.to_dead_letters else ''}"


@dataclass(slots=True)
class _TableAsides:
    """The blocks of one queue that stand aside, the one tried longest ago first.

    Attributes:
        waiting: those in memory, KEPT at most.
        rest: how many more the ledger has, behind these.
        after: the block that was tried last.
        due: when the next is tried.
        failures: tries in a row that loaded nothing.
        flows: how many are still to be tried, since one was loaded.
        last: how many are still to have their last try in a run that ends.
        elsewhere: of its turn, the last look into the ledger found blocks of another queue alone.
        shut: why its new blocks need not be tried; empty: they are.
        troubles: of _SHUTS, what the failures were about since a block was loaded.
    """

    due: float
    waiting: dict[str, Aside] = field(default_factory=dict)
    rest: int = 0
    after: Place | None = None
    failures: int = 0
    flows: int = 0
    last: int = 0
    elsewhere: bool = False
    shut: str = ""
    troubles: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.waiting) + self.rest

    def put(self, aside: Aside) -> None:
        """Add a block behind all others; where there are many, only the ledger has it."""
        self.waiting.pop(aside.block.id, None)
        if self.rest or len(self.waiting) >= KEPT:
            self.rest += 1
        else:
            self.waiting[aside.block.id] = aside

    def open(self, now: float) -> None:
        """Note that a block was loaded: nothing is known to be in the way of the others."""
        self.failures, self.due, self.shut = 0, now, ""
        self.troubles.clear()


class Asides:
    """The set-aside blocks of one app, as one loader knows them; the caller locks."""

    def __init__(self) -> None:
        self._tables: dict[str, _TableAsides] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def __contains__(self, block: str) -> bool:
        return any(block in table.waiting for table in self._tables.values())

    def shut(self, table: str) -> str:
        """Return why a new block of the table would fail as well; empty: try it."""
        return self._tables[table].shut if table in self._tables else ""

    def put(self, aside: Aside, now: float) -> None:
        """Note a block that was set aside just now."""
        table = self._tables.setdefault(queue(aside.block), _TableAsides(now + FIRST_SECONDS))
        table.put(aside)
        if aside.about in _SHUTS:
            table.shut = aside.reason
            table.troubles.add(aside.about)

    def places(self) -> dict[str, Place]:
        """Return by queue, of those not all in memory, behind which block the next are."""
        return {
            name: table.after
            for name, table in self._tables.items()
            if table.rest and table.after is not None
        }

    def lacks(self, now: float) -> bool:
        """Return whether the next blocks to try are in the ledger alone."""
        return any(
            table.rest
            and not table.waiting
            and table.due <= now
            and not (table.elsewhere and self._has(name))
            for name, table in self._tables.items()
        )

    def _has(self, name: str) -> bool:
        """Return whether blocks of a turn are in memory, whatever their queues."""
        waiting = (aside for table in self._tables.values() for aside in table.waiting.values())
        return any(turn(aside.block) == name for aside in waiting)

    def found(self, blocks: Iterable[Aside], rest: Mapping[str, int], now: float) -> None:
        """Take the ledger's list of set-aside blocks; forget all others.

        `blocks`: the next of each queue; `rest`: by queue, how many more there are.
        """
        by_id = {aside.block.id: aside for aside in blocks}
        last = {turn(aside.block): (aside.since_ms, name) for name, aside in by_id.items()}
        queues = {name: queue(aside.block) for name, aside in by_id.items()}
        for key, table in self._tables.items():
            table.rest, table.elsewhere = 0, False
            table.waiting = {
                name: replace(aside, since_ms=by_id.pop(name).since_ms)
                for name, aside in table.waiting.items()
                if queues.get(name) == key
            }
        for name, aside in by_id.items():
            self._tables.setdefault(queues[name], _TableAsides(now)).waiting[name] = aside
        for key, more in rest.items():
            table = self._tables.setdefault(key, _TableAsides(now))
            table.rest = more
            if not table.waiting:  # all of these have another queue
                table.elsewhere, table.after = True, last.get(key, table.after)
        self._forget()

    def loaded(self, table: str, now: float) -> None:
        """Note that a block of the table was loaded which was not set aside.

        Every loaded block of every table comes here: it looks at no block that waits.
        """
        for name, asides in self._tables.items():
            if asides.flows or not asides.troubles:
                continue
            if name == table:
                asides.open(now)
                asides.flows = len(asides)
            elif About.SERVER in asides.troubles and asides.failures > 1:
                asides.due, asides.failures = min(asides.due, now), 1

    def hurry(self, now: float) -> None:
        """Make the blocks of every table due now, each of them once, for a run that ends."""
        for table in self._tables.values():
            table.due, table.last = now, len(table)

    def due(self, now: float) -> list[Block]:
        """Return the blocks to try next, all of one queue; none if it is too early."""
        due = [table for table in self._tables.values() if table.waiting and table.due <= now]
        if not due:
            return []
        table = min(due, key=lambda table: table.due)
        count = max(1, min(FEW, table.flows))
        return [aside.block for aside in islice(table.waiting.values(), count)]

    def forgotten(self, name: str) -> list[Block]:
        """Return the blocks of a queue, in memory, of which their table is to be asked."""
        return [aside.block for aside in self._tables[name].waiting.values() if aside.forgotten]

    def asked(self, name: str, blocks: Sequence[Block]) -> None:
        """Note that their table was asked."""
        waiting = self._tables[name].waiting
        for block in blocks:
            if block.id in waiting:
                waiting[block.id] = replace(waiting[block.id], forgotten=False)

    def tried(self, name: str, gone: Mapping[str, str], left: Sequence[Aside], now: float) -> None:
        """Record the outcome of blocks that were due.

        `name`: of their queue; `gone`: the state of each that stands aside no more; `left`: set
        aside again.
        """
        table = self._tables[name]
        tried = gone.keys() | {aside.block.id for aside in left}
        for block, aside in table.waiting.items():
            if block in tried and aside.since_ms:
                table.after = aside.since_ms, block
        for block in gone:
            table.waiting.pop(block, None)
        table.flows = max(0, table.flows - len(gone) - len(left))
        table.last = max(0, table.last - len(gone) - len(left))
        if LOADED in gone.values() or DEAD in gone.values():
            table.open(now)
            # Those that wait since before; the ones that failed just now have had their turn.
            table.flows = max(table.flows, len(table) - len(left))
        if any(aside.about in _SHUTS for aside in left):
            table.flows = 0
            table.troubles.clear()  # this is newer
        if any(aside.tells_of_others for aside in left):
            table.last = 0
        for aside in left:
            self.put(aside, now)
        table.due = max(table.due, now)  # behind all that are due longer
        if left and not table.flows:
            table.failures += 1
            if not table.last:
                table.due = now + backoff(FIRST_SECONDS, LONGEST_SECONDS, table.failures)
        self._forget()

    def _forget(self) -> None:
        self._tables = {name: table for name, table in self._tables.items() if len(table)}
