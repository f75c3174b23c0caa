"""One audit over all source partitions: the journal's chain, the group's offsets, what moves.

Receives records, committed offsets and topic ends as they were read, with the time; gives
anomalies, each once. Pure: relay.verify.run reads, and asks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.records_pb2 import Commit
from relay.verify import committed as offsets
from relay.verify.anomaly import Anomaly, Kind
from relay.verify.chain import Head, check
from relay.verify.committed import NOTHING, Record
from relay.verify.record import Place

GRACE_SECONDS = 5.0
"""A transaction's markers reach its partitions one after the other, within moments."""


@dataclass(slots=True)
class Totals:
    """What was looked at."""

    records: int = 0
    blocks: int = 0
    rows: int = 0
    messages: int = 0
    dead_letters: int = 0
    flush_points: int = 0
    rows_by_table: Counter[str] = field(default_factory=Counter)

    def add(self, commit: Commit) -> None:
        """One more record."""
        self.records += 1
        self.flush_points += commit.flush_point
        for block in commit.blocks:
            self.blocks += 1
            self.rows += block.rows
            self.messages += block.messages
            self.rows_by_table[block.table] += block.rows
        for dead in commit.dead:
            self.dead_letters += dead.messages
            self.messages += dead.messages


class Audit:
    """What is known so far, and every anomaly found.

    Args:
        app, source_topic: whose journal it is.
        stuck_seconds: how long an open transaction may hold a topic's last stable offset.
    """

    def __init__(self, app: str, source_topic: str, stuck_seconds: float) -> None:
        self._app, self._source_topic = app, source_topic
        self._stuck_seconds = stuck_seconds
        self._heads: dict[int, Head] = {}
        self._before: dict[int, Record] = {}
        self._recent: dict[int, dict[int, Record]] = {}
        self._ahead: dict[int, tuple[Record, float]] = {}
        self._said: dict[int, str] = {}
        self._held: dict[tuple[str, int], tuple[int, float]] = {}
        self.totals = Totals()
        self.anomalies: list[Anomaly] = []

    def begin_round(self) -> None:
        """Offsets that are read from now on name a record from here on."""
        for partition, recent in self._recent.items():
            self._before[partition] = recent[max(recent)]
            self._recent[partition] = {self._before[partition].n: self._before[partition]}

    def record(self, partition: int, offset: int, commit: Commit) -> list[Anomaly]:
        """The next visible record of a journal partition."""
        place = Place(self._app, self._source_topic, partition)
        head, found = check(place, self._heads.get(partition), offset, commit)
        self._heads[partition] = head
        entry = Record(commit.n, commit.floor, offset)
        self._recent.setdefault(partition, {})[commit.n] = entry
        self.totals.add(commit)
        self.anomalies += found
        return found

    def committed(
        self, read: Mapping[int, tuple[int, str | None] | None], now: float
    ) -> list[Anomaly]:
        """The group's offsets: floor and metadata per partition; None: it has none."""
        found = [one for p, entry in read.items() if (one := self._one_committed(p, entry, now))]
        self.anomalies += found
        return found

    def waits(self) -> bool:
        """Whether an offset names a record that the journal has not shown yet."""
        return bool(self._ahead)

    def _one_committed(
        self, partition: int, entry: tuple[int, str | None] | None, now: float
    ) -> Anomaly | None:
        before = self._before.get(partition, NOTHING)
        records = self._recent.get(partition, {})
        named = NOTHING if entry is None else offsets.named(*entry)
        found = offsets.disagreement(partition, before, {before.n: before, **records}, named)
        if found is None and named is not None:
            found = self._overdue(partition, named, max(records, default=0), now)
        text = "" if found is None else found.text
        if text == self._said.get(partition, ""):
            return None
        self._said[partition] = text
        return found

    def _overdue(self, partition: int, named: Record, last: int, now: float) -> Anomaly | None:
        if named.n <= last:
            self._ahead.pop(partition, None)
            return None
        waiting, since = self._ahead.setdefault(partition, (named, now))
        if waiting != named:
            self._ahead[partition] = (named, now)
            return None
        return offsets.ahead(partition, last, named) if now - since > GRACE_SECONDS else None

    def ends(
        self, stable: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int], now: float
    ) -> list[Anomaly]:
        """Last stable offsets and ends of the app's topics: does an open transaction hold one?"""
        found = []
        for place, end in ends.items():
            offset = stable.get(place, end)
            if offset >= end:
                self._held.pop(place, None)
                continue
            at, since = self._held.setdefault(place, (offset, now))
            if at != offset:
                self._held[place] = (offset, now)
            elif self._stuck_seconds < now - since < float("inf"):
                self._held[place] = (offset, float("-inf"))  # said once
                text = (
                    f"{place[0]}: an open transaction holds the last stable offset at {offset} "
                    f"for {now - since:.0f} s, the log ends at {end}"
                )
                found.append(Anomaly(Kind.STUCK, place[1], 0, offset, text))
        self.anomalies += found
        return found
