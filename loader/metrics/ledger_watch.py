"""A look at ledger and journal from time to time, in a thread of its own.

Receives settings and where the loader began; gives the latest LedgerLook: blocks by state,
positions, and the sealed blocks that wait. It is what `loader status` asks, kept small: of the
journal no more is read than one micro-batch would.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException

from loader.clickhouse.ledger import Ledger
from loader.journal.source import JOURNAL, JournalReader, Start
from loader.journal.startup import ledger_of
from relay.errors import RelayError
from relay.records_pb2 import Block

EVERY_SECONDS = 30.0
"""The ledger's counts go over all of its rows."""
GAP_SECONDS = 2 * EVERY_SECONDS
"""From one look to the next no more counts as seen. Where it took longer, a server gave no answer
or this process was stopped, and nobody saw whether a block waited."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerLook:
    """One look at ledger and journal.

    Attributes:
        at: monotonic seconds.
        counts: (table, state, blocks, rows).
        positions: next journal offset by partition; every block before is settled.
        ends: last stable offset by journal partition.
        blocks: by journal partition, how many sealed blocks were seen to wait.
        sealed_ms: and when the oldest of them was sealed, Unix milliseconds.
        since: by journal partition, since when its oldest waiting block is seen to wait, moved on
            by the time in which nobody looked; monotonic.
        failed: why the last look was in vain; the rest is of the one before.
        uncounted: why the blocks could not be counted; only `counts` is of a look before, then.
    """

    at: float
    counts: Sequence[tuple[str, str, int, int]] = ()
    positions: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    blocks: Mapping[int, int] = field(default_factory=dict)
    sealed_ms: Mapping[int, int] = field(default_factory=dict)
    since: Mapping[int, float] = field(default_factory=dict)
    failed: str = ""
    uncounted: str = ""


def waiting(rows: Sequence[tuple[int, int, bytes | None]]) -> tuple[dict[int, int], dict[int, int]]:
    """Return blocks by partition, and when the oldest was sealed, of the journal's rows."""
    times: defaultdict[int, list[int]] = defaultdict(list)
    for partition, _, value in rows:
        if value is not None:
            times[partition].append(Block.FromString(value).sealed_at_ms)
    return {p: len(ms) for p, ms in times.items()}, {p: min(ms) for p, ms in times.items()}


def seen_since(
    before: LedgerLook | None, sealed_ms: Mapping[int, int], now: float
) -> dict[int, float]:
    """Return since when each partition's oldest waiting block is seen to wait, monotonic seconds.

    What was seen the last time, at the look `before`, keeps its time: wall clocks may be set
    meanwhile. `sealed_ms` says when the block that waits now was sealed.
    """
    if before is None:
        return dict.fromkeys(sealed_ms, now)
    unseen = max(0.0, now - before.at - GAP_SECONDS)
    same = {p for p, sealed in sealed_ms.items() if before.sealed_ms.get(p) == sealed}
    return {p: before.since.get(p, now) + unseen if p in same else now for p in sealed_ms}


class LedgerWatch:
    """Look every EVERY_SECONDS, from construction until `close`.

    Attributes:
        latest: None before the first look.
    """

    def __init__(self, start: Start, clock: Callable[[], float] = time.monotonic) -> None:
        self._start = start
        self._clock = clock
        self._reader = JournalReader(start)
        self._ledger: Ledger | None = None
        self._over = threading.Event()
        self.latest: LedgerLook | None = None
        self._thread = threading.Thread(target=self._run, name="look", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the look under way, or leave that to the process's end."""
        self._over.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while True:
            self.look()
            if self._over.wait(EVERY_SECONDS):
                self._reader.rest()
                return

    def look(self) -> None:
        """Look once; keep the last look, and why, if ledger or journal cannot be asked."""
        try:
            self.latest = self._look()
        except (RelayError, KafkaException) as error:
            why = error.message if isinstance(error, RelayError) else f"journal: {error.args[0]}"
            log.warning("cannot read ledger or journal", extra={"why": why})
            before = self.latest or LedgerLook(self._clock())
            self.latest = replace(before, failed=why)

    def _look(self) -> LedgerLook:
        if self._ledger is None:
            self._ledger = ledger_of(self._start.settings)
        known = self._ledger.positions()
        positions = {p: o for (journal, p), o in known.items() if journal == self._start.journal}
        begin = {JOURNAL: self._start.journal, **{str(p): o for p, o in positions.items()}}
        rows, _ = self._reader.read(begin)
        blocks, sealed_ms = waiting(list(rows))
        ends = {int(p): end for p, end in self._reader.ends().items() if p != JOURNAL}
        self._reader.rest()
        counts, uncounted = self._counts(self._ledger)
        now = self._clock()
        since = seen_since(self.latest, sealed_ms, now)
        return LedgerLook(
            now, counts, positions, ends, blocks, sealed_ms, since, uncounted=uncounted
        )

    def _counts(self, ledger: Ledger) -> tuple[Sequence[tuple[str, str, int, int]], str]:
        """Return the counts, and why they are those of the look before, if they are.

        They go over all of the ledger: a limit of the user's meets them first.
        """
        try:
            return ledger.counts(), ""
        except RelayError as error:
            log.warning("cannot count the ledger's blocks", extra={"why": error.message})
            return () if self.latest is None else self.latest.counts, error.message
