"""The truth where the group is in another cluster than the journal: the journal's own head.

Receives source partitions whose predecessors are fenced, with an offset in each journal partition
before which nobody can commit any more; gives PartitionTruth, as relay.process.truth does from the
group's offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import Consumer

from relay import names
from relay.core.offsets import UNKNOWN_EPOCH, CommittedOffset
from relay.core.records import JournalEnd, JournalRecord, PartitionTruth
from relay.errors import NEW_APP, ContractBroken, ErrorPage
from relay.process.truth import TruthReader, decode_record


class HeadReader(TruthReader):
    """Read the committed truth from the journal alone, without the group's offsets."""

    def _read(
        self,
        partitions: Collection[int],
        group: Consumer,  # noqa: ARG002 - what it holds is in another cluster than the journal
        ends: Mapping[int, JournalEnd],
    ) -> tuple[PartitionTruth, ...]:
        source = self._topics.source()
        bounds = self._of_source.bounds(partitions)
        truths = []
        journal_id = ""
        for index in sorted(partitions):
            end = ends[index]
            low, high = bounds[index]
            offset, record = self._head(index, end.offset)
            committed, epoch = None, UNKNOWN_EPOCH
            if record is not None:
                committed = CommittedOffset(record.floor, record.n, offset)
                epoch = end.leader_epoch if committed == end.shown else UNKNOWN_EPOCH
            elif not journal_id:
                journal_id = self._journal_id()
            truths.append(
                PartitionTruth(
                    index,
                    committed,
                    record,
                    later_records=0,
                    source_topic_id=source.topic_id,
                    log_start=low,
                    log_end=high,
                    start_offset=None if committed else self._start(index, low, high),
                    leader_epoch=epoch,
                    shown=end.shown,
                    journal_topic_id="" if committed else journal_id,
                    source_partitions=source.partitions,
                    source_topic=self._settings.source.topic,
                )
            )
        return tuple(truths)

    def _head(self, index: int, end: int) -> tuple[int, JournalRecord | None]:
        """Wait until all before `end` is decided; return the last visible record and its offset.

        Raises:
            ContractBroken: the record is gone.
        """
        beginning, _ = self._bounds(self._reader("read_committed"), index)
        if (last := self._last(index, beginning, end)) is not None:
            return last.offset() or 0, decode_record(last)
        if beginning > 0:
            raise ContractBroken(
                f"source partition {index}: {names.journal_topic(self._settings.app)}[{index}] "
                f"holds no record, and its first {beginning} offsets were deleted, so nothing "
                "says where to continue",
                f"find out what deleted them; to continue without them, {NEW_APP}",
                page=ErrorPage.GAP,
            )
        return 0, None
