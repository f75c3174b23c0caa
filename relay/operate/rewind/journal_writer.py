"""Writes journal records and the offsets that name them, in one transaction.

Receives records and, by partition, the group metadata of the member that owns it; all become
visible together, or nothing does. A second rewind or accept of the app fences the first.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import TopicPartition

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.core.offsets import CommittedOffset
from relay.failpoints import reached
from relay.kafka.errors import TransactionFailed, ended
from relay.kafka.transactional_producer import TransactionalProducer
from relay.records_pb2 import Commit


class Writer:
    """The one writer of an app's rewinds and accepts."""

    def __init__(self, settings: Settings) -> None:
        self._source = settings.source.topic
        self._journal = names.journal_topic(settings.app)
        identity = names.rewind_transactional_id(settings.app)
        client = kafka_clients.producer_under(settings, identity)
        deadline_seconds = 2 * settings.relay.transaction_timeout_seconds
        group = names.group_id(settings.app)
        self._producer = TransactionalProducer(client, deadline_seconds, group)

    def write(self, records: Sequence[Commit], owners: Mapping[int, Any]) -> None:
        """Write one transaction.

        Raises:
            Unavailable: a partition is owned no more, or nobody knows how it ended.
            Fenced: another rewind or accept was started.
            Refused: rights are missing.
        """
        try:
            self._producer.replace()
            self._producer.begin(next(iter(owners.values())))
            reached("person_begun")
            offsets = self._records(records)
            reached("person_written")
            self._offsets(records, offsets, owners)
            reached("person_offsets_sent")
            self._producer.commit()
        except TransactionFailed as failed:
            # Where that fails as well, the timeout or the next start ends it.
            with contextlib.suppress(TransactionFailed):
                self._producer.abort()
            raise ended(
                failed,
                fenced="another rewind or accept was started; wait until it is done",
                refused="grant what `relay docs security` lists for `relay rewind`",
                unknown="run it again: it first finds out how this attempt ended",
            ) from failed
        finally:
            self._producer.close()
        reached("person_committed")

    def _records(self, records: Sequence[Commit]) -> dict[int, int]:
        offsets: dict[int, int] = {}
        for record in records:
            self._producer.produce(
                TopicPartition(self._journal, record.partition),
                record.SerializeToString(),
                str(record.partition).encode(),
                [],
                partial(offsets.__setitem__, record.partition),
            )
        self._producer.flush()
        return offsets

    def _offsets(
        self, records: Sequence[Commit], offsets: Mapping[int, int], owners: Mapping[int, Any]
    ) -> None:
        """Send each owner's partitions apart: it must own them, not just be a member."""
        by_owner: dict[int, dict[int, CommittedOffset]] = defaultdict(dict)
        metadata = {id(owner): owner for owner in owners.values()}
        for record in records:
            index = record.partition
            committed = CommittedOffset(record.floor, record.n, offsets[index])
            by_owner[id(owners[index])][index] = committed
        for owner, of_owner in by_owner.items():
            self._producer.send_offsets(self._source, of_owner, metadata[owner])
