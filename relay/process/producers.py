"""The transactional producers of a relay: one of its member, or one for each source partition.

Receives settings, gives the producer that a transaction runs under. Where the source is in
another cluster no group's generation can fence there, but a transactional id can: whoever takes
a source partition over takes its id over first, and asks the journal for its end with a record
of its own. That record is aborted: nobody sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from confluent_kafka import KafkaError, TopicPartition

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.core.effects import ONE_PROCESS
from relay.errors import RelayError
from relay.kafka.block_topics import BlockTopics
from relay.kafka.errors import TransactionFailed, ended
from relay.kafka.transactional_producer import TransactionalProducer
from relay.operate.metrics.observer import RelayObserver

log = logging.getLogger(__name__)

SPARE_IDS = 5
"""Each was left with a transaction that lasts until a broker is back: there are few of them."""
_NO_GROUP = "no consumer group fences here"
"""Where the producer wants a member's metadata: it sends no offsets."""


class MemberProducer:
    """One producer for all partitions, fenced by the group's generation at each commit.

    Attributes:
        deadline_seconds: for one client call with its repetitions; twice the transaction's
            timeout, after which the coordinator has ended it.
    """

    def __init__(self, settings: Settings, observer: RelayObserver, topics: BlockTopics) -> None:
        self.deadline_seconds = 2 * settings.relay.transaction_timeout_seconds
        self._settings, self._observer, self._topics = settings, observer, topics
        self._spare = 0
        self._producer = self._make(names.transactional_id(settings.app, settings.relay.member))

    def start(self) -> None:
        """Start a new producer; it ends whatever a predecessor left open.

        A transaction is decided by one record, and over when each partition in it has a marker of
        it. While one takes none its id takes no other; but nothing can change any more what it
        comes to, and the group fences whoever has no right to commit, under any id. So the relay
        goes on under a spare one, as if another member had taken over its partitions.

        Raises:
            Unavailable, Refused, Fenced: init_transactions did not succeed.
        """
        for left in reversed(range(1 + SPARE_IDS)):
            try:
                self._producer.replace(waits=False)
            except TransactionFailed as failed:
                if failed.code != KafkaError.CONCURRENT_TRANSACTIONS or not left:
                    raise _error(failed, ONE_PROCESS) from failed
                log.warning(
                    "a transaction of this relay does not end, going on under another id",
                    extra={"why": failed.why},
                )
                self._go_on_under_another_id()
            else:
                return

    def _go_on_under_another_id(self) -> None:
        self._producer.close()
        self._spare = (self._spare + 1) % (1 + SPARE_IDS)
        app, member = self._settings.app, self._settings.relay.member
        self._producer = self._make(names.spare_transactional_id(app, member, self._spare))

    def of(self, _partition: int | None) -> TransactionalProducer:
        """Return the producer for a transaction of this source partition; None: of several."""
        return self._producer

    def fence(self, partitions: Collection[int]) -> dict[int, int]:
        """Take over the ids of these partitions; return an offset in each journal partition.

        All before that offset is decided, or will be: nobody else can commit there any more.

        Raises:
            Unavailable, Refused, Fenced: as `start`.
        """
        raise AssertionError(f"the consumer group fences partitions {partitions}")

    def let_go(self, partitions: Collection[int]) -> None:
        """Close the producers of these source partitions: another relay owns them."""

    def serve(self) -> None:
        """Let the clients deliver their callbacks."""
        self._producer.serve()

    def close(self) -> None:
        """Close all producers."""
        self._producer.close()

    def _make(self, identity: str, client: str = "producer") -> TransactionalProducer:
        settings = kafka_clients.producer_under(self._settings, identity)
        watched = {**self._observer.settings(client), **settings}
        group = names.group_id(self._settings.app)
        # A producer that is replaced must not forget what was refused: it would be so for ever.
        limits = self._topics.limits
        in_sync = self._topics.least_in_sync
        return TransactionalProducer(watched, self.deadline_seconds, group, in_sync, limits)


class PartitionProducers(MemberProducer):
    """One producer for each owned source partition, made at its takeover."""

    def __init__(self, settings: Settings, observer: RelayObserver, topics: BlockTopics) -> None:
        super().__init__(settings, observer, topics)
        self._of: dict[int, TransactionalProducer] = {}

    def start(self) -> None:
        """Close all producers: each is made anew when its partition is fenced."""
        self.close()

    def of(self, partition: int | None) -> TransactionalProducer:
        """See MemberProducer; the member's own is never started."""
        return super().of(partition) if partition is None else self._of[partition]

    def fence(self, partitions: Collection[int]) -> dict[int, int]:
        """See MemberProducer."""
        try:
            return {index: self._take(index) for index in sorted(partitions)}
        except TransactionFailed as failed:
            step = "start again: another relay took over a source partition at the same moment"
            raise _error(failed, step) from failed

    def _take(self, index: int) -> int:
        identity = names.partition_transactional_id(self._settings.app, index)
        self.let_go({index})
        producer = self._of[index] = self._make(identity, f"producer-{index}")
        producer.replace()
        producer.begin(_NO_GROUP)
        place = TopicPartition(names.journal_topic(self._settings.app), index)
        written: list[int] = []
        producer.produce(place, None, str(index).encode(), [], written.append)
        producer.flush()
        producer.abort()
        return written[0]

    def let_go(self, partitions: Collection[int]) -> None:
        """See MemberProducer."""
        for index in partitions:
            if index in self._of:
                self._of.pop(index).close()

    def serve(self) -> None:
        """See MemberProducer."""
        for producer in self._of.values():
            producer.serve()

    def close(self) -> None:
        """See MemberProducer."""
        self.let_go(list(self._of))


def make(settings: Settings, observer: RelayObserver, topics: BlockTopics) -> MemberProducer:
    """Return the kind of producers that the settings' clusters need."""
    kind = PartitionProducers if settings.crosses else MemberProducer
    return kind(settings, observer, topics)


def _error(failed: TransactionFailed, fenced: str) -> RelayError:
    """Return the error that ends the process if a producer cannot start."""
    refused = "grant the right or correct the setting that the message names, then start again"
    return ended(failed, fenced=fenced, refused=refused, unknown="check the brokers")
