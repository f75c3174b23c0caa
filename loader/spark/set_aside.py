"""Sets blocks aside in the ledger, and tries them again beside the micro-batches.

Receives blocks that hold up others, gives them a row in the ledger and a try from time to time, in
a thread of the driver with a worker of its own: no micro-batch waits for it, and none of Spark's
slots is taken. loader.core.set_aside_plan decides which and when.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence

from loader.blocks.attempt import Outcome
from loader.blocks.worker import Worker
from loader.clickhouse.forgotten_blocks import Forgotten
from loader.clickhouse.ledger import Ledger
from loader.console import Say
from loader.core.entries import NewEntry, ParkedEntry
from loader.core.plan import ASIDE, DEAD, PARKED, settled
from loader.core.retry_cause import RetryCause
from loader.core.set_aside_plan import KEPT, Aside, Asides, entry, queue
from loader.core.waiting import turn
from loader.journal.begin_plan import forgot
from loader.metrics.observer import NOTHING, LoaderObserver
from relay.clickhouse.errors import About
from relay.config.settings import Settings
from relay.errors import RelayError, Unavailable
from relay.records_pb2 import Block

_LOOK_SECONDS = 0.5
"""That a block may be late."""
_LIST_SECONDS = 60.0
"""From one look into the ledger to the next: another loader may have set blocks aside, or a person
have settled some."""
_CLOCKS_MS = 60_000
"""By how much the clocks of the ledger's replicas may differ."""
_END_SECONDS = 5.0
"""That the end of the loader waits for a try under way; it is safe to break off."""


def set_aside(ledger: Ledger, blocks: Sequence[Aside]) -> dict[str, str]:
    """Set blocks aside in the ledger; return the state of those that are settled already, by id.

    Raises:
        Unavailable, Refused: as the ledger.
    """
    known = ledger.kept_entries([aside.block for aside in blocks])
    claim, rows, others = uuid.uuid4().hex, [], {}
    for aside in blocks:
        entries = known.get(aside.block.id, ())
        new = entry(entries, claim, aside.block.rows, aside.reason)
        if new is not None:
            rows.append(NewEntry(aside.block, new))
        elif (last := settled(entries)) is not None and last.state != ASIDE:
            others[aside.block.id] = last.state
    ledger.write(rows)
    return others


class SetAside:
    """Try the set-aside blocks of one loader again.

    Attributes:
        parked: blocks that wait for a person, by the last look into the ledger.
    """

    def __init__(
        self, settings: Settings, ledger: Ledger, say: Say, observer: LoaderObserver = NOTHING
    ) -> None:
        self._settings, self._ledger, self._say = settings, ledger, say
        self._observer = observer
        self._forgotten = Forgotten.of_waiting(ledger, settings)
        self._asides = Asides()
        self._lock = threading.Lock()
        self._trying = threading.Lock()
        self._said: dict[str, str] = {}
        self._leaves_out = False
        self.parked = 0
        self._stopping, self._asked = threading.Event(), threading.Event()
        self._worker: Worker | None = None
        self._listed: float | None = None
        self._lists = True
        self._begun_ms = 0
        self._error: Exception | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Try blocks again until the context ends."""
        thread = threading.Thread(target=self._run, name="set aside", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(_END_SECONDS)

    def stop(self) -> None:
        """Ask the tries to end, the last ones as well; may be called from a signal handler."""
        self._asked.set()

    def check(self) -> None:
        """Raise the unexpected error that ended the tries."""
        if self._error is not None:
            raise self._error

    def shut(self, table: str) -> str:
        """Return why a new block of the table would fail as well; empty: it is to be tried."""
        with self._lock:
            return self._asides.shut(table)

    def loaded(self, table: str) -> None:
        """Note that a block of the table was loaded which was not set aside."""
        with self._lock:
            self._asides.loaded(table, time.monotonic())

    def put(self, blocks: Sequence[Aside]) -> dict[str, str]:
        """Set blocks aside; return the state of those that are settled already, by id.

        Raises:
            Unavailable, Refused: as the ledger.
        """
        others = set_aside(self._ledger, blocks)
        now = time.monotonic()
        with self._lock:
            for aside in blocks:
                if aside.block.id not in others:
                    self._asides.put(aside, now)
        return others

    def finish(self) -> None:
        """Try each table's blocks once more, for a run that ends; say how many are left.

        Once the tries are asked to end, none is begun any more, and what one has found out stays.

        Raises:
            Refused: ClickHouse denies what no block can be loaded without.
        """
        try:
            self._list(time.monotonic())
            with self._lock:
                self._asides.hurry(time.monotonic())
            while not self._asked.is_set() and (self._try_due() or self._list_left_out()):
                pass
        except Unavailable as error:
            self._report("try", error)
        finally:
            self._drop()
        with self._lock:
            left = len(self._asides)
        if left:
            stand = "1 block stands" if left == 1 else f"{left} blocks stand"
            self._say(
                f"{stand} aside; `loader parked ls` says why", level=logging.WARNING, aside=left
            )

    def _run(self) -> None:
        while not self._ends():
            try:
                now = time.monotonic()
                if self._listed is None or now - self._listed > _LIST_SECONDS:
                    self._list(now)
                while not self._ends() and (self._try_due() or self._list_left_out()):
                    pass
            except RelayError as error:  # of all tables: the micro-batches end or wait for it
                self._report("try", error)
                self._drop()
            except Exception as error:  # noqa: BLE001 - raised by the job, whose thread it ends
                self._error = error
                break
            self._stopping.wait(_LOOK_SECONDS)
        with self._trying:
            self._drop()

    def _ends(self) -> bool:
        return self._stopping.is_set() or self._asked.is_set()

    def _report(self, do: str, error: RelayError) -> None:
        if error.message != self._said.get(do):
            text = f"cannot {do} the blocks that stand aside: {error.message}"
            self._say(text, level=logging.WARNING)
            self._said[do] = error.message

    def _list(self, now: float) -> None:
        """Look into the ledger, which may meet a limit of the user, as it reads all of the app.

        Then the blocks in memory are tried without it. Nor is it asked again at once, however long
        the answer took.

        Raises:
            Unavailable, Refused: as the ledger, where it answers nothing else either.
        """
        self._begun_ms = self._begun_ms or self._ledger.now_ms()
        with self._lock:
            after = self._asides.places()
        try:
            resting = self._ledger.next_aside(after, KEPT)
        except Unavailable as error:
            self._ledger.now_ms()
            self._listed, self._lists = time.monotonic(), False
            self._report("list", error)
            return
        self._listed, self._lists, self.parked = time.monotonic(), True, resting.parked
        asides, rest = [self._aside(one) for one in resting.next], Counter(resting.counts)
        rest.subtract(turn(one.block) for one in asides)
        with self._lock:
            self._asides.found(asides, +rest, now)

    def _aside(self, parked: ParkedEntry) -> Aside:
        before = parked.since_ms < self._begun_ms + _CLOCKS_MS
        forgotten = before and forgot(parked.claims, "unsure")
        return Aside(parked.block, parked.reason, since_ms=parked.since_ms, forgotten=forgotten)

    def _list_left_out(self) -> bool:
        """Look for messages that just-loaded blocks left out, to make them dead letters."""
        if not self._leaves_out:
            return False
        self._leaves_out = False
        self._list(time.monotonic())  # they are due at once, unless letters cannot be written now
        return True

    def _try_due(self) -> bool:
        """Try the blocks that are due; return whether there were any."""
        with self._trying:
            now = time.monotonic()
            with self._lock:
                lacks = self._asides.lacks(now)
            if lacks and self._lists:
                self._list(now)
            with self._lock:
                blocks = self._asides.due(now)
            if blocks:
                self._try(blocks)
        return bool(blocks)

    def _try(self, blocks: Sequence[Block]) -> None:
        if self._worker is None:
            self._worker = Worker(self._settings, isolates=True, ends=self._asked.is_set)
        self._ask_tables(queue(blocks[0]))
        dead = blocks[0].to_dead_letters
        outcomes = self._worker.load(blocks, (), "dead" if dead else "retry")
        table, by_id = blocks[0].table, {block.id: block for block in blocks}
        if any(result.about == About.CONNECTION for result in outcomes):
            self._drop()
        asides = [
            _still_aside(by_id[result.block], result) for result in outcomes if _waits(result)
        ]
        settled_as = {result.block: result.outcome for result in outcomes if not _waits(result)}
        # If somebody else works on a block, a row of ours would take it out of their hands: of a
        # person who gives it up, for instance.
        settled_as |= set_aside(self._ledger, [aside for aside in asides if aside.about])
        asides = [aside for aside in asides if aside.block.id not in settled_as]
        self._observer.tried_again(outcomes, by_id)
        with self._lock:
            self._asides.tried(queue(blocks[0]), settled_as, asides, time.monotonic())
        without = {result.block: result.left_out for result in outcomes}
        self._leaves_out |= self._settings.loader.rejected == "dead" and any(without.values())
        reasons = {result.block: result.reason for result in outcomes}
        for block, state in settled_as.items():
            left_out = without.get(block, 0)
            but = f", without {left_out} messages that the table refuses" if left_out else ""
            text = f"{state} {block}, which had been set aside{but}"
            if state in {DEAD, PARKED} and reasons.get(block):
                text += f": {reasons[block]}"
            self._say(text, block=block, table=table, left_out=left_out)

    def _ask_tables(self, of: str) -> None:
        """Record for which blocks of a queue the ledger may have lost what settled them.

        A restored ledger may call a block set aside that is loaded, and what settles it moves no
        position. So the table is asked before such a block is tried, for some of them at once: at
        a start it would hold up all tables while many wait.
        """
        with self._lock:
            some = self._asides.forgotten(of)
        if some:
            self._forgotten.doubt(some)
            with self._lock:
                self._asides.asked(of, some)

    def _drop(self) -> None:
        """Drop the worker: its server may be another one now."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


def _still_aside(block: Block, result: Outcome) -> Aside:
    """Return a block that is still set aside: by this attempt, or by another loader meanwhile."""
    cause = result.cause if result.outcome == "retry" else RetryCause.ANOTHER_LOADER
    return Aside(block, result.reason, result.about, cause=cause)


def _waits(result: Outcome) -> bool:
    return result.outcome in {"retry", ASIDE}
