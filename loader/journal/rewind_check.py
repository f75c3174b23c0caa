"""Whether a rewind is still to be carried out as it was asked for: the journal has the last word.

Receives the rewind's record and its offset, reads it and the record behind it; refuses a rewind
that another run has ended otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from loader.journal.reader import JournalPolling, RecordRows
from relay import names
from relay.blocks.journal import carried_out, rewind_starts
from relay.config.settings import Settings
from relay.errors import Refused
from relay.records_pb2 import Commit


def overtaken(asked: Commit, found: Sequence[Commit]) -> str:
    """Return why a rewind is not to be carried out as it was asked for; "": it is.

    A rewind that has ended may be carried out once more, but only as far as its end says: where
    messages had gone from the source log, blocks that it names count again. `found`: the journal's
    record of it, and the one behind it, if there is one.
    """
    record, *ends = found or [Commit()]
    if not record.HasField("rewind") or (record.n, record.epoch) != (asked.n, asked.epoch):
        return "the journal has no such record there"
    ended = bool(ends) and ends[0].rewound
    stands = rewind_starts(carried_out(record, ends[0]) if ended else record)
    for table, start in sorted(rewind_starts(asked).items()):
        if table == names.NO_TABLE:
            continue  # whose messages make no block
        if table not in stands:
            return f"its record does not name {table}"
        if start < stands[table]:
            return (
                f"it has ended, and blocks of {table} before source offset {stands[table]} count "
                "again"
            )
    return ""


class RewindCheck:
    """Asks the journal whether a rewind is still to be carried out as it was asked for.

    `asked`: the rewind's record, as whoever asks has it; `offset`: of the record in the journal.
    """

    def __init__(self, settings: Settings, asked: Commit, offset: int) -> None:
        self._asked, self._offset = asked, offset
        self._polling = JournalPolling(settings.kafka, names.journal_topic(settings.app), _whole)

    def check(self) -> None:
        """Read the rewind's record and the next one; raise where they say otherwise.

        Raises:
            Refused: it is not to be carried out as it was asked for.
            ContractBroken, Unavailable: as loader.journal.reader.JournalPolling.up_to.
        """
        partition = self._asked.partition
        _, end = self._polling.watermarks(partition)
        rows = self._polling.up_to({partition: self._offset}, {partition: end}, 2, whole=True)
        if why := overtaken(self._asked, [Commit.FromString(row[2] or b"") for row in rows]):
            raise Refused(
                f"the rewind at n={self._asked.n} of partition {partition} is not carried out any "
                f"further: {why}",
                "see in `relay journal tail` who else ran `relay rewind`",
            )

    def close(self) -> None:
        """End the consumer."""
        self._polling.close()


def _whole(partition: int, offset: int, record: bytes) -> RecordRows:
    Commit.FromString(record)  # of what is none, the reader says where it is
    return RecordRows([(partition, offset, record)], 1)
