"""The rewinds in a stretch of the journal.

Receives settings and offsets, gives where the records of rewinds are behind which relays have gone
on. No Spark engine runs for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from loader.journal.reader import Given, JournalPolling, RecordRows, Row
from relay import names
from relay.config.settings import Settings
from relay.records_pb2 import Commit

_AT_ONCE = 10_000
"""Journal records in memory: there may be millions."""
_REWIND = b"rewind"


def ended(
    settings: Settings, begin: Mapping[int, int], ends: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Return the partitions and offsets of rewinds that have ended in a stretch, as of `some`.

    Raises:
        ContractBroken, Refused, Unavailable: as loader.journal.reader.JournalPolling.up_to.
    """
    return list(followed(chain.from_iterable(some(settings, begin, ends, _row))))


def followed(rows: Iterable[Row]) -> Iterator[tuple[int, int]]:
    """Yield the rewinds behind which a record follows: the first that does says that it has ended.

    `rows`: partition, offset, and whether the record is a rewind (not None).
    """
    open_: dict[int, int] = {}
    for partition, offset, rewind in rows:
        if (at := open_.pop(partition, None)) is not None:
            yield partition, at
        if rewind is not None:
            open_[partition] = offset


def some(
    settings: Settings, begin: Mapping[int, int], ends: Mapping[int, int], given: Given
) -> Iterator[list[Row]]:
    """Yield the rows of the journal's records in this stretch, some of them at a time.

    `begin` and `ends`: offset to read from, and up to, by journal partition; `given`: the rows of a
    record.

    Raises:
        ContractBroken, Refused, Unavailable: as loader.journal.reader.JournalPolling.up_to.
    """
    position, until = dict(begin), dict(ends)
    if all(position[p] >= until.get(p, 0) for p in position):
        return  # an empty journal
    polling = JournalPolling(settings.kafka, names.journal_topic(settings.app), given)
    try:
        while rows := polling.up_to(position, until, _AT_ONCE, whole=True):
            yield rows
            position |= {p: offset + 1 for p, offset, _ in rows}
    finally:
        polling.close()


def _row(partition: int, offset: int, record: bytes) -> RecordRows:
    is_rewind = Commit.FromString(record).HasField("rewind")
    return RecordRows([(partition, offset, _REWIND if is_rewind else None)], 1)
