"""Define an anomaly: what the verifier found, where, and whether it is over.

The first three kinds are those of eBay's Aggregator Runtime Verifier.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple


class AnomalyKind(Enum):
    """What an anomaly means for the rows."""

    BACKWARD = "backward"
    """A floor, mark or sequence number moved back: messages may be in blocks twice."""
    OVERLAP = "overlap"
    """A block starts before the last one of its table ended: messages are in blocks twice."""
    GAP = "gap"
    """Messages or journal records are missing between two records."""
    TORN = "torn"
    """Parts of one transaction disagree: offset and journal, or fields of one record."""
    FOREIGN = "foreign"
    """A record of another app, topic, partition or of a topic that was made anew."""
    STUCK = "stuck"
    """An open transaction hides what comes after it, for longer than it may."""
    LATE = "late"
    """A block was sealed a while ago, and no loader has settled it: its rows wait."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding.

    Attributes:
        partition: of the source topic; -1 where it is of none.
        n: of the journal record at which it shows; 0 where it shows in no record.
        offset: of that record in the journal; -1 where it shows in no record.
        text: both values, for people.
        table: whose rows it is about; empty: not of one table alone.
    """

    kind: AnomalyKind
    partition: int
    n: int
    offset: int
    text: str
    table: str = ""

    def __str__(self) -> str:
        place = [f"partition {self.partition}"] if self.partition >= 0 else []
        place += [f"n={self.n}"] if self.n > 0 else []
        return ": ".join([self.kind.value, *([", ".join(place)] if place else []), self.text])

    def as_json(self) -> dict[str, Any]:
        """Return it for `--json` and the webhook."""
        return {**asdict(self), "kind": self.kind.value}


class UnplacedAnomaly(NamedTuple):
    """An anomaly before its place is known; but for the source partition, unless that is -1."""

    kind: AnomalyKind
    text: str
    partition: int = -1

    def at(self, partition: int, n: int, offset: int) -> Anomaly:
        """Return it as one that shows in a journal record."""
        return Anomaly(self.kind, partition, n, offset, self.text)


backward = partial(UnplacedAnomaly, AnomalyKind.BACKWARD)
overlap = partial(UnplacedAnomaly, AnomalyKind.OVERLAP)
gap = partial(UnplacedAnomaly, AnomalyKind.GAP)
torn = partial(UnplacedAnomaly, AnomalyKind.TORN)
foreign = partial(UnplacedAnomaly, AnomalyKind.FOREIGN)
late = partial(UnplacedAnomaly, AnomalyKind.LATE)


class Passing:
    """Track which anomalies still hold and which are over.

    What the group's offsets say is settled once `relay accept` has acknowledged it, a record that
    they name and the journal lacks also once the journal shows it, and an open transaction once it
    has ended. Nothing else passes: a record of the journal that disagrees with another stays an
    anomaly.
    """

    def __init__(self) -> None:
        self._stand: dict[Hashable, list[Anomaly]] = {}
        self._over: set[Anomaly] = set()

    def add(self, place: Hashable, anomaly: Anomaly) -> None:
        """Note one more that stands at this place."""
        self._stand.setdefault(place, []).append(anomaly)
        self._over.discard(anomaly)

    def end(self, place: Hashable, record: tuple[int, int] | None = None) -> list[Anomaly]:
        """End all of this place, or those about one record: its n and offset; return them."""
        standing = self._stand.pop(place, [])
        ended = [a for a in standing if record is None or record == (a.n, a.offset)]
        if len(ended) < len(standing):
            self._stand[place] = [a for a in standing if a not in ended]
        self._over.update(ended)
        return ended

    def over(self, anomaly: Anomaly) -> bool:
        """Return whether it is."""
        return anomaly in self._over
