"""Writes journal records and the offsets that name them, in one transaction.

A second rewind or accept of the app fences the first.
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


def write(settings: Settings, records: Sequence[Commit], owners: Mapping[int, Any]) -> None:
    """Write one transaction.

    Args:
        settings: of the app.
        records: journal records.
        owners: by source partition, the group metadata of the member that owns it.

    Raises:
        Unavailable: a partition is owned no more, or nobody knows how it ended.
        Fenced: another rewind or accept was started.
        Refused: rights are missing.
    """
    client = kafka_clients.producer_under(settings, names.rewind_transactional_id(settings.app))
    deadline_seconds = 2 * settings.relay.transaction_timeout_seconds
    producer = TransactionalProducer(client, deadline_seconds, names.group_id(settings.app))
    try:
        producer.replace()
        producer.begin(next(iter(owners.values())))
        reached("person_begun")
        offsets = _produce(producer, names.journal_topic(settings.app), records)
        reached("person_written")
        _send_offsets(producer, settings.source.topic, records, offsets, owners)
        reached("person_offsets_sent")
        producer.commit()
    except TransactionFailed as failed:
        # Where that fails as well, the timeout or the next start ends it.
        with contextlib.suppress(TransactionFailed):
            producer.abort()
        raise ended(
            failed,
            fenced="another rewind or accept was started; wait until it is done",
            refused="grant what `relay docs security` lists for `relay rewind`",
            unknown="run it again: it first finds out how this attempt ended",
        ) from failed
    finally:
        producer.close()
    reached("person_committed")


def _produce(
    producer: TransactionalProducer, journal: str, records: Sequence[Commit]
) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for record in records:
        producer.produce(
            TopicPartition(journal, record.partition),
            record.SerializeToString(),
            str(record.partition).encode(),
            [],
            partial(offsets.__setitem__, record.partition),
        )
    producer.flush()
    return offsets


def _send_offsets(
    producer: TransactionalProducer,
    source: str,
    records: Sequence[Commit],
    offsets: Mapping[int, int],
    owners: Mapping[int, Any],
) -> None:
    """Send each owner's partitions apart: it must own them, not just be a member."""
    by_owner: dict[int, dict[int, CommittedOffset]] = defaultdict(dict)
    for record in records:
        p = record.partition
        by_owner[id(owners[p])][p] = CommittedOffset(record.floor, record.n, offsets[p])
    metadata = {id(owner): owner for owner in owners.values()}
    for owner, committed in by_owner.items():
        producer.send_offsets(source, committed, metadata[owner])
