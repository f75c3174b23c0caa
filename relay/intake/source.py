"""The source topic: a read_committed member of the relay's consumer group.

Receives polls and rebalances from the client, gives messages without errors and calls the
relay on assignment and revocation. Offsets are never committed here: they go into the
transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.core.effects import ONE_PROCESS
from relay.core.offsets import Epochs
from relay.errors import ContractBroken, ErrorPage, Fenced, RelayError
from relay.intake.bulk import Bulk, PolledError, WhenFull
from relay.intake.fetch_assignment import Fetching, LeaderEpochs
from relay.intake.membership import MemberFenced, concerns_member, session_refused
from relay.intake.message_batch import Batch, TableHeaders, of_messages
from relay.intake.read_errors import GONE, OF_GROUP, RECEIVE, RECEIVE_BYTES, Troubles
from relay.kafka.errors import REFUSED, describe, ends_reading, is_final, lost_end, refusal
from relay.kafka.reconnect import Bootstrap

log = logging.getLogger(__name__)

POLL_MESSAGES = 10_000
"""Most messages of one poll: what is done once per poll, partition and table is then small."""
BATCH_MESSAGES = 500
BATCH_BYTES = 2_000_000
"""Limits of one batch: a whole poll at once did not fit into the processor's cache, and taking a
message in was a third slower."""
FULL_BYTES = 16_000_000
"""A poll of this size counts as full."""
POLL_SHARE = 16
"""A poll takes at most this fraction of relay.max_buffer_bytes, but up to FULL_BYTES anyway, by the
mean size seen so far. In 16 MB each of 200 tables had eight messages: to sort, count and copy those
of 28.8 million rows took 1.9 s, and with 32 MB 0.9."""
POLL_SECONDS = 0.05
"""Longest wait for messages: a lower bound of the freshness at low rates."""


def poll_bytes(max_buffer_bytes: int) -> int:
    """Return the most bytes of one poll of a relay with so much memory."""
    return max(FULL_BYTES, max_buffer_bytes // POLL_SHARE)


class SourceMember:
    """The group member.

    Args:
        on_assigned: gives the offset to begin at for each partition; called inside poll.
        on_revoked: called inside poll, before the group may give the partitions away.
        tables: number the tables that messages name.
        watched: client settings of whoever watches; kafka.client wins over them.
        on_trouble: gets partition and name of an error that came in the place of messages;
            OF_GROUP: it is the group's.

    Attributes:
        epochs: leader epochs of committed floors.
        fetching: which partitions are fetched, and from where.
        rebalanced: the last poll assigned or revoked partitions; its messages may be older.
        filled: number of the last poll's messages, as a share of a full poll's.
        read_to: by partition, the end that the last poll reached: this poll or an earlier one gave
            all messages before it that read_committed readers get.
    """

    def __init__(
        self,
        settings: Settings,
        on_assigned: Callable[[frozenset[int]], dict[int, int]],
        on_revoked: Callable[[frozenset[int]], None],
        tables: TableHeaders,
        watched: Mapping[str, Any] | None = None,
        on_trouble: Callable[[int, str], None] = lambda *_: None,
    ) -> None:
        self._settings, self._topic = settings, settings.source.topic
        self._group = names.group_id(settings.app)
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_trouble = on_trouble
        self._mean_bytes = 4_000.0
        self._poll_bytes = poll_bytes(settings.relay.max_buffer_bytes)
        self._raised: RelayError | None = None
        self.epochs = LeaderEpochs()
        self.rebalanced = False
        self.read_to: dict[int, int] = {}
        self._fatal: KafkaError | None = None
        self._over: KafkaError | None = None
        self._ids: set[str] = set()
        self._owned: frozenset[int] = frozenset()
        client = {**(watched or {}), **kafka_clients.consumer(settings)}
        receive, servers = int(client.get(RECEIVE, RECEIVE_BYTES)), settings.source_kafka.bootstrap
        self._troubles = Troubles(self._topic, self._group, servers, receive)
        self._bootstrap = Bootstrap({**client, "error_cb": self._on_error})
        self.consumer = Consumer(self._bootstrap.config)
        self.fetching = Fetching(self.consumer, self._topic, self.epochs)
        self._tables = tables
        self._bulk = WhenFull(self.consumer, self._topic, tables, POLL_MESSAGES)
        self.filled = 0.0

    def join(self) -> None:
        """Join the group, or ask it to assign anew; partitions come in a later poll."""
        with self._explained_by_poll():
            self.consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )

    @contextmanager
    def _explained_by_poll(self) -> Iterator[None]:
        """Let the next poll raise what ended the client: these calls say only that it is over."""
        try:
            yield
        except KafkaException as error:
            if not is_final(error.args[0]):
                raise
            self._over = error.args[0]

    @property
    def assigned(self) -> frozenset[int]:
        """The source partitions that the group gave it."""
        return self._owned

    def poll(self, take: Callable[[Batch], None], most_bytes: int | None = None) -> None:
        """Give up to POLL_MESSAGES, in batches without errors, to `take`; serve rebalances.

        Args:
            take: gets each batch, whose memory is gone with the next poll.
            most_bytes: by the mean size seen so far, where that is less than usual.

        Raises:
            Fenced, Refused, ContractBroken: as the client's errors say.
        """
        self.rebalanced, self.read_to = False, {}
        self._bootstrap.look(self.consumer)
        bulk, self.filled = self._bulk.begin(full=self.filled >= 1), 0.0
        size = min(self._poll_bytes, most_bytes or self._poll_bytes)
        left = most = min(POLL_MESSAGES, self._messages_of(size))
        full = min(POLL_MESSAGES, self._messages_of(FULL_BYTES))
        batch = min(BATCH_MESSAGES, self._messages_of(BATCH_BYTES))
        wait = POLL_SECONDS
        while left > 0:
            wanted = min(left, batch)
            got = self._take_queued(wanted, wait if bulk is None else 0, take)
            if self.rebalanced:
                self.read_to = {}
                self._ids |= {self.consumer.memberid() or ""} - {""}
                return
            if bulk is not None and not got:
                got = self._take_bulk(bulk, wanted, wait, take)
            left -= got
            # An end takes the place of a message, too.
            self.filled = (most - left - len(self.read_to)) / full
            if got < wanted:
                return
            wait = 0  # what is there already, without waiting for more

    def _take_queued(self, wanted: int, wait: float, take: Callable[[Batch], None]) -> int:
        """Take what the client's own queue has: events, errors, and messages if not in bulk."""
        messages = self.consumer.consume(wanted, wait)
        if self._raised is not None:
            raise self._raised
        if self._fatal is not None:
            raise self._as_error(self._fatal)
        if self.rebalanced:
            # A fatal error is told once, and may come with the revocation that it caused.
            for error in filter(ends_reading, filter(None, map(Message.error, messages))):
                raise self._as_error(error)
            return 0
        good = messages
        if any(map(Message.error, messages)):  # in C: this runs for every message
            for message in messages:
                if (failure := message.error()) is not None:
                    where = message.topic(), message.partition() or 0, message.offset() or 0
                    self._look_at(PolledError(failure, *where))
            good = [message for message in messages if message.error() is None]
        if self._over is not None:
            raise self._as_error(self._over)
        if good:
            take(of_messages(good, self._tables))
        return len(messages)

    def _take_bulk(
        self, bulk: Bulk, wanted: int, wait: float, take: Callable[[Batch], None]
    ) -> int:
        batch, errors, count = bulk.poll(wanted, wait)
        for error in errors:
            self._look_at(error)
        if len(batch.offsets):
            take(batch)
        return count

    @property
    def ids(self) -> frozenset[str]:
        """Ids that the group gave this process, the present one among them."""
        return frozenset(self._ids | {self.consumer.memberid() or ""} - {""})

    def look_for_brokers(self) -> None:
        """See that the client finds its brokers while a server is away and nobody polls.

        Called inside poll as well, so it may only offer: the binding allows no call that serves
        callbacks (list_topics, consume) inside a callback of the same client. It would end the
        process at the next callback: "CallState_get: Assertion `cs != NULL' failed".
        """
        self._bootstrap.doubt()
        self._bootstrap.offer(self.consumer)

    def leader_epochs(self, floors: Mapping[int, int]) -> Epochs:
        """Return the leader epochs to commit with these floors."""
        partitions = [TopicPartition(self._topic, partition) for partition in floors]
        # A position before the floor is of records whose epoch may not reach it.
        polled = {
            at.partition: at.leader_epoch if at.offset >= floors[at.partition] else None
            for at in self.consumer.position(partitions)
        }
        return self.epochs.to_commit(floors, polled)

    def _messages_of(self, size: int) -> int:
        """How many messages are about so large together; at least one."""
        return int(max(1, size / self._mean_bytes))

    def learn_size(self, messages: int, size: int) -> None:
        """Remember how large messages are, for the next poll's bound."""
        if messages:
            self._mean_bytes = 0.8 * self._mean_bytes + 0.2 * (size / messages)

    def close(self) -> None:
        """Leave the group."""
        self._bulk.close()
        self.consumer.close()

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Take all partitions that the group gave.

        The client may rejoin while an assignment is taken over, as when the topic grows. Then the
        next one follows without a revocation, and nobody says who had the partitions meanwhile.
        """
        self.rebalanced = True
        try:
            if self._owned:
                self._on_revoked(self._owned)
            self._owned = frozenset(partition.partition for partition in places)
            starts = self._on_assigned(self._owned)
        except RelayError as error:  # must not cross the client's C frames
            self._raised = error
            starts = {}
        self._bulk.own(starts)
        self.fetching.assigned(starts)
        with self._explained_by_poll():
            consumer.assign([self.fetching.place(index, at) for index, at in starts.items()])

    def _revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.rebalanced = True
        gone = frozenset(partition.partition for partition in places)
        self._owned -= gone
        try:
            self._on_revoked(gone)
        except RelayError as error:
            self._raised = error

    def _look_at(self, polled: PolledError) -> None:
        error, topic, partition, offset = polled
        if topic is None:  # then partition and offset are none, but read as zero
            if ends_reading(error):
                raise self._as_error(error)
            self._report("the consumer group gives the relay no partitions", OF_GROUP, 0, error)
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self.read_to[partition] = offset
            return
        if lost_end(error) is not None:
            raise ContractBroken(
                f"{self._topic}[{partition}] lost its end, and new messages are in the "
                f"place of those that were read: {error.str()}",
                "find out why the log lost records (a leader that lacked them, a disk); then start "
                "again. Where a relay stops at its start, `relay accept CONFIG` shows how to "
                "continue",
                page=ErrorPage.ACCEPT,
            )
        if error.code() in GONE:
            raise ContractBroken(
                f"cannot continue reading {self._topic}[{partition}]: {error.name()} "
                f"({error.str()})",
                "the offset or the topic was deleted; find out what deleted it",
                page=ErrorPage.GAP,
            )
        if ends_reading(error):
            raise self._as_error(error)
        text = "the relay cannot continue reading a source partition"
        self._report(text, partition, offset, error)

    def _report(self, text: str, partition: int, offset: int, error: KafkaError) -> None:
        line = self._troubles.tell(partition, offset, error, time.monotonic())
        if line is not None:
            log.warning(text, extra=line)
        self._on_trouble(partition, error.name())

    def _on_error(self, error: KafkaError) -> None:
        if ends_reading(error):
            self._fatal = error

    def _as_error(self, error: KafkaError) -> RelayError:
        text = describe(f"consumer of topic {self._topic} in group {self._group}", error)
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            return session_refused(text, self._settings)
        if error.code() in REFUSED:
            step = "grant the right or correct the credentials, then start again"
            return refusal(text, step, error.code())
        if concerns_member(error):
            return MemberFenced(text, self._ids)
        return Fenced(text, ONE_PROCESS)
