"""An anomaly: what the verifier found, and where.

The first three kinds are those of eBay's Aggregator Runtime Verifier.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Kind(Enum):
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


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding.

    Attributes:
        partition: of the source topic.
        n: of the journal record at which it shows.
        offset: of that record in the journal; -1 where it shows in no record.
        text: both values, for people.
    """

    kind: Kind
    partition: int
    n: int
    offset: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: partition {self.partition}, n={self.n}: {self.text}"

    def as_json(self) -> dict[str, Any]:
        """For `--json` and the webhook."""
        return {**asdict(self), "kind": self.kind.value}
