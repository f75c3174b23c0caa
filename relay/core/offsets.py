"""Offsets that a relay commits to the consumer group, with the metadata that goes with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A floor in the consumer group, with the metadata that names its journal record."""

    floor: int
    n: int
    journal_offset: int

    @classmethod
    def parse(cls, floor: int, metadata: str | None) -> CommittedOffset | None:
        """Return a committed floor; None if no relay wrote this metadata."""
        try:
            fields = json.loads(metadata or "")
            return cls(floor, int(fields["n"]), int(fields["journal"]))
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def metadata(self) -> str:
        """The metadata to commit with the floor: which journal record belongs to it."""
        return json.dumps({"n": self.n, "journal": self.journal_offset}, separators=(",", ":"))


Offsets = Mapping[int, CommittedOffset]
"""By source partition."""

Epochs = Mapping[int, int]
"""Leader epochs by source partition."""

UNKNOWN_EPOCH = -1
"""The protocol's value for a leader epoch that is not known."""


def epoch_reaches(floor: int, position: int, marks: Iterable[int]) -> int:
    """Return up to which offset the log reached under the leader epoch committed with a floor.

    The epoch is that of the last message before the position. A relay that was started again reads
    from its floor on, and until it comes to a mark, it commits epochs that may be older than the
    messages before the mark. Position and marks are of the journal record with the floor.
    """
    return max([floor, *(mark for mark in marks if mark <= position)])
