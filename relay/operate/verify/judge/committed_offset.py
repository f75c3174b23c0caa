"""Judges the group's committed offset of a source partition against the journal.

Both are written in one transaction, so they agree at every instant; but they are read one
after the other, while the relay goes on. So the offset must name a record between the
journal's head before it was read and the head after. A group in another cluster than the journal
is only told after each commit: what it shows may be of any record before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind

Committed = tuple[int, str | None] | None
"""Floor and metadata of a source partition's offset; None: the group has none."""


class NamedRecord(NamedTuple):
    """The journal record that an offset names."""

    n: int
    floor: int
    offset: int


NOTHING = NamedRecord(0, -1, -1)
"""What a partition names that was never committed."""


def named(floor: int, metadata: str | None) -> NamedRecord | None:
    """Return the record that a committed offset names; None where no relay wrote the metadata."""
    try:
        fields = json.loads(metadata or "")
        return NamedRecord(int(fields["n"]), floor, int(fields["journal"]))
    except (ValueError, KeyError, TypeError):
        return None


def disagreement(
    partition: int,
    before: NamedRecord,
    records: Mapping[int, NamedRecord],
    committed: NamedRecord | None,
    *,
    may_lag: bool = False,
) -> Anomaly | None:
    """Return what is wrong with a committed offset; None if nothing, or not yet.

    Args:
        partition: of the source topic.
        before: the journal's head before the offset was read.
        records: by n: `before` and all records read after it.
        committed: what the offset names; None where it cannot be read.
        may_lag: nobody believes it; what a tool wrote is replaced by the next commit.
    """
    last = max(records, default=before.n)
    if may_lag and (committed is None or (committed.n <= last and committed.n not in records)):
        return None
    if committed is None:
        text = "no relay wrote the committed offset's metadata: a tool moved the group's offsets"
        return Anomaly(AnomalyKind.TORN, partition, last, -1, text)
    if committed.n > last:  # newer than all that was read: wait for the journal
        return None
    if committed.n < before.n:
        text = f"the committed offset names n={committed.n}, but the journal was at n={before.n}"
        if committed == NOTHING:
            text = (
                f"the group has no committed offset, but the journal is at n={before.n}: it "
                "expired or was deleted"
            )
        return Anomaly(AnomalyKind.BACKWARD, partition, committed.n, committed.offset, text)
    record = records.get(committed.n, NOTHING)
    if record != committed:
        text = (
            f"the committed offset names floor {committed.floor} at journal offset "
            f"{committed.offset}, but the journal has floor {record.floor} at {record.offset}"
        )
        return Anomaly(AnomalyKind.TORN, partition, committed.n, record.offset, text)
    return None


def ahead(partition: int, last: int, committed: NamedRecord) -> Anomaly:
    """Return the anomaly once the journal did not follow a committed offset within its grace."""
    text = f"the committed offset names n={committed.n}, but the journal ends at n={last}"
    return Anomaly(AnomalyKind.GAP, partition, committed.n, committed.offset, text)
