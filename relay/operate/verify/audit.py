"""One audit over all source partitions: the journal's chain, the group's offsets, what moves.

Gives each anomaly once. Pure: relay.operate.verify.rounds reads, and asks again.
"""

# pure

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from relay import names
from relay.config.settings import Settings
from relay.errors import RelayError
from relay.operate.verify.judge import committed_offset as offsets
from relay.operate.verify.judge.acknowledgements import describe, kinds
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind, Passing
from relay.operate.verify.judge.beginning import First, JournalBeginning, first_of
from relay.operate.verify.judge.chain import check
from relay.operate.verify.judge.committed_offset import NOTHING, Committed, NamedRecord
from relay.operate.verify.judge.operator_records import SealedStarts
from relay.operate.verify.judge.record import ChainHead, JournalPlace, by_person
from relay.program.plural import several
from relay.records_pb2 import Commit

GRACE_SECONDS = 5.0
"""A transaction's markers reach its partitions one after the other, within moments."""


@dataclass(slots=True)
class AuditTotals:
    """How much was audited."""

    records: int = 0
    blocks: int = 0
    rows: int = 0
    messages: int = 0
    dead_letters: int = 0
    flush_points: int = 0
    rows_by_table: Counter[str] = field(default_factory=Counter)
    by_person: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Rewinds and what was accepted, by kind and partition."""
    settled: Counter[AnomalyKind] = field(default_factory=Counter)
    """Anomalies of which `relay verify --once` would say nothing any more."""

    def add(self, commit: Commit) -> None:
        """Audit one more record."""
        self.records += 1
        self.flush_points += commit.flush_point
        self.by_person.update((kind, commit.partition) for kind in kinds(commit))
        for block in commit.blocks:
            self.blocks += 1
            self.rows += block.rows
            self.messages += block.messages
            self.rows_by_table[block.table] += block.rows
        for dead in commit.dead:
            self.dead_letters += dead.messages
            self.messages += dead.messages


class HeldOffset(NamedTuple):
    """The last stable offset of a partition behind which the log goes on.

    Attributes:
        offset: of the transaction that is open there.
        end: of the log.
        since: when it was first seen there, in seconds of the caller's clock.
        said: whether it was told that it is stuck.
    """

    offset: int
    end: int
    since: float
    said: bool = False


class UnauditedRecords(NamedTuple):
    """Records of a journal partition that were deleted before they were audited.

    Attributes:
        n: of the last record before them.
        at: journal offset that was to be read next.
        start: offset at which the log begins since.
    """

    n: int
    at: int
    start: int


class Audit:
    """What is known so far, and every anomaly found.

    Args:
        stuck_seconds: how long an open transaction may hold a topic's last stable offset.
        may_lag: the group is in another cluster than the journal, and told after each commit.
    """

    def __init__(
        self, app: str, source_topic: str, stuck_seconds: float, *, may_lag: bool = False
    ) -> None:
        self._app, self._source_topic, self._may_lag = app, source_topic, may_lag
        self._journal = names.journal_topic(app)
        self._stuck_seconds = stuck_seconds
        self._places: dict[int, JournalPlace] = {}
        self._heads: dict[int, ChainHead] = {}
        self._before: dict[int, NamedRecord] = {}
        self._highest: dict[int, NamedRecord] = {}
        self._recent: dict[int, dict[int, NamedRecord]] = {}
        self._named: dict[int, int] | None = None
        self._deleted: dict[int, UnauditedRecords] = {}
        self._ahead: dict[int, tuple[NamedRecord, float]] = {}
        self._said: dict[int, str] = {}
        self._held: dict[tuple[str, int], HeldOffset] = {}
        self._looked_at: dict[tuple[str, int], float] = {}
        self._passing = Passing()
        self.totals = AuditTotals()
        self.firsts: dict[int, First] = {}
        """The oldest record of each partition, of those read."""
        self.history: list[JournalBeginning] = []
        """Where what was audited begins; empty where nobody looked."""
        self.anomalies: list[Anomaly] = []
        self.acknowledged: list[str] = []
        """What a person recorded: rewinds and accepts."""
        self.waiting: list[str] = []
        """Blocks that are sealed, and that a person or a later try has to load, by table."""
        self.not_judged: list[str] = []
        """What cannot be known, and why: no anomaly, and no proof either."""
        self.errors: list[RelayError] = []
        """What kept this from being judged whole; what was found all the same holds."""
        self._sealed = SealedStarts()

    def begin_round(self, committed: Mapping[int, Committed] | None = None) -> None:
        """Begin a round: offsets that are read from now on name a record from here on.

        Args:
            committed: the group's offsets, read after all records so far: of the records to come
                only those that they name are kept to be compared. None: all of the round.
        """
        self._before = dict(self._highest)
        self._recent = {}
        self._named = None
        if committed is not None:
            named = {p: offsets.named(*entry) for p, entry in committed.items() if entry}
            self._named = {p: record.n for p, record in named.items() if record is not None}

    def record(self, partition: int, offset: int, commit: Commit) -> list[Anomaly]:
        """Judge the next visible record of a journal partition; return what is wrong with it."""
        place = self._places.get(partition)
        if place is None:
            place = self._places[partition] = JournalPlace(self._app, self._source_topic, partition)
            self.firsts[partition] = first_of(offset, commit)
        gap = self._deleted.pop(partition, None) if self._deleted else None
        lost = []
        if gap is not None and commit.n > gap.n + 1:
            lost.append(self._begin_anew(partition, gap, commit.n - 1, commit.n, offset))
        head, anomalies = check(place, self._heads.get(partition), offset, commit)
        anomalies = lost + anomalies
        self._heads[partition] = head
        if commit.blocks or commit.dead or commit.rewound or by_person(commit):
            unplaced = self._sealed.add(partition, commit)
            anomalies += [finding.at(partition, commit.n, offset) for finding in unplaced]
        if by_person(commit):
            self.acknowledged.append(describe(partition, commit))
        if commit.HasField("accept"):
            self._settle(partition)
        if partition in self._ahead:
            self._settle(partition, (commit.n, offset))
        entry = NamedRecord(commit.n, commit.floor, offset)
        if self._named is None or self._named.get(partition) == commit.n:
            self._recent.setdefault(partition, {})[commit.n] = entry
        if commit.n >= self._highest.get(partition, NOTHING).n:
            self._highest[partition] = entry
        self.totals.add(commit)
        self.anomalies += anomalies
        return anomalies

    def foreign(self, partition: int, offset: int) -> list[Anomaly]:
        """Report a message of the journal that is no record: another program wrote it."""
        text = f"the message at offset {offset} of the journal is no journal record"
        anomalies = [Anomaly(AnomalyKind.FOREIGN, partition, 0, offset, text)]
        self.anomalies += anomalies
        return anomalies

    def note_deleted(self, partition: int, at: int, start: int) -> None:
        """Note that a journal partition begins at `start` since, and was read up to `at`.

        Whether records were between them, and not only markers, the next record's number tells.
        """
        head = self._heads.get(partition)
        if head is not None or at == 0:
            n = 0 if head is None else head.n
            before = self._deleted.get(partition, UnauditedRecords(n, at, start))
            self._deleted[partition] = before._replace(start=start)

    def _begin_anew(
        self, partition: int, gap: UnauditedRecords, last: int, n: int, offset: int
    ) -> Anomaly:
        """Report at n that records up to `last` are gone; those before them can judge none."""
        self._heads.pop(partition, None)
        self._sealed.forget(partition)
        text = (
            f"retention or a person deleted {several(last - gap.n, 'journal record')} "
            f"(n={gap.n + 1} to n={last}) before they were audited: the verifier stood at offset "
            f"{gap.at}, and the journal begins at offset {gap.start}. Nothing can audit them any "
            "more: run relay verify --deep, then start this verifier again, which begins there"
        )
        return Anomaly(AnomalyKind.GAP, partition, n, offset, text)

    def floors(self) -> dict[int, int]:
        """Give the floor of each partition's last record."""
        return {partition: head.floor for partition, head in self._heads.items()}

    def open(self) -> list[Anomaly]:
        """Give those that are not settled."""
        return [anomaly for anomaly in self.anomalies if not self.settled(anomaly)]

    def settled(self, anomaly: Anomaly) -> bool:
        """Return whether a person took note of it, or what it was about has passed."""
        return self._passing.over(anomaly)

    def _settle(self, place: int | tuple[str, int], record: tuple[int, int] | None = None) -> None:
        ended = self._passing.end(place, record)
        self.totals.settled.update(anomaly.kind for anomaly in ended)

    def unfinished(self) -> list[int]:
        """Source partitions whose rewind was begun and has not ended: relays wait."""
        return sorted(p for p, head in self._heads.items() if head.rewinding)

    def committed(self, read: Mapping[int, Committed], now: float) -> list[Anomaly]:
        """Judge the group's offsets by source partition; return what is wrong with them."""
        found = [one for p, entry in read.items() if (one := self._judge_committed(p, entry, now))]
        for anomaly in found:
            self._passing.add(anomaly.partition, anomaly)
        self.anomalies += found
        return found

    def waits(self) -> bool:
        """Return whether an offset names a record that the journal has not shown yet."""
        return bool(self._ahead)

    def _judge_committed(self, partition: int, entry: Committed, now: float) -> Anomaly | None:
        before = self._before.get(partition, NOTHING)
        highest = self._highest.get(partition, NOTHING)
        records = {before.n: before, highest.n: highest, **self._recent.get(partition, {})}
        named = NOTHING if entry is None else offsets.named(*entry)
        anomaly = offsets.disagreement(partition, before, records, named, may_lag=self._may_lag)
        if anomaly is None and named is not None:
            anomaly = self._overdue(partition, named, highest.n, now)
        text = "" if anomaly is None else anomaly.text
        if text == self._said.get(partition, ""):
            return None
        self._said[partition] = text
        return anomaly

    def _overdue(self, partition: int, named: NamedRecord, last: int, now: float) -> Anomaly | None:
        if named.n <= last:
            self._ahead.pop(partition, None)
            return None
        waiting, since = self._ahead.setdefault(partition, (named, now))
        if waiting != named:
            self._ahead[partition] = (named, now)
            return None
        if now - since <= GRACE_SECONDS or self._may_be_hidden(partition, named, since):
            return None
        gap = self._deleted.pop(partition, None)
        if gap is None:
            return offsets.ahead(partition, last, named)
        self._highest[partition] = named
        del self._ahead[partition]
        return self._begin_anew(partition, gap, named.n, named.n, named.offset)

    def _may_be_hidden(self, partition: int, named: NamedRecord, since: float) -> bool:
        """Return whether an open transaction may hide a record that was named at `since`.

        The marker of its own may be late, or another be open before it. Only a look after `since`
        tells: what was stable then, the journal has shown by now.
        """
        place = self._journal, partition
        held = self._held.get(place)
        hides = held is not None and held.offset <= named.offset
        return hides or self._looked_at.get(place, since) <= since

    def ends(
        self, stable: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int], now: float
    ) -> list[Anomaly]:
        """Judge whether an open transaction holds a last stable offset of the app's topics."""
        anomalies = []
        for place, end in ends.items():
            self._looked_at[place] = now
            offset = stable.get(place, end)
            if offset >= end:
                self._held.pop(place, None)
                self._settle(place)
                continue
            before = self._held.get(place)
            if before is None or before.offset != offset:
                self._held[place] = HeldOffset(offset, end, now)
                self._settle(place)
                continue
            held = self._held[place] = before._replace(end=end)
            if self._stuck_seconds < now - held.since and not held.said:
                self._held[place] = held._replace(said=True)
                text = (
                    f"{place[0]}: an open transaction has held the last stable offset at {offset} "
                    f"for {now - held.since:.0f} s, while the log ends at {end}"
                )
                anomalies.append(Anomaly(AnomalyKind.STUCK, place[1], 0, offset, text))
                self._passing.add(place, anomalies[-1])
        self.anomalies += anomalies
        return anomalies

    def hidden(self, since: float) -> list[str]:
        """Say what is behind transactions that are open since then: nothing of it was read."""
        return [
            f"{topic}[{partition}]: an open transaction at offset {held.offset} hides "
            f"{several(held.end - held.offset, 'offset')}"
            for (topic, partition), held in sorted(self._held.items())
            if held.since <= since
        ]


def audit_of(settings: Settings) -> Audit:
    """Return an audit that has seen nothing yet."""
    stuck_seconds = 2 * settings.relay.transaction_timeout_seconds
    return Audit(settings.app, settings.source.topic, stuck_seconds, may_lag=settings.crosses)
