"""Reads what the verifier judges: journal, committed offsets, ends of the app's topics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    OffsetSpec,
)
from google.protobuf.message import DecodeError

from relay import names
from relay.blocks.journal_record import no_record
from relay.config import kafka_clients
from relay.errors import ConfigError, Refused, Unavailable
from relay.kafka.connection_errors import Heard
from relay.kafka.group_queries import GroupOffset, Groups
from relay.kafka.partition_ends import listed_offset
from relay.kafka.partition_reader import OUT_OF_RANGE, PartitionReader
from relay.kafka.reconnect import Renewal
from relay.operate.verify.read.question import answer_of, away
from relay.records_pb2 import Commit

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka.admin import TopicMetadata  # type: ignore[attr-defined]  # as above

    from relay.config.settings import Settings

SECONDS = 30.0
"""For one request."""
LOOK_SECONDS = 1.0
"""Between two looks at what was heard while there is no answer."""
UNSTABLE_SECONDS = 0.5
"""A commit takes milliseconds; the transaction of a relay that died, until its timeout."""
AT_ONCE = 5_000
POLL_SECONDS = 0.05

Begin = Callable[[PartitionReader, TopicPartition, int, int], int]
"""The offset to begin at in a journal partition, between log start and last stable offset."""
Deleted = Callable[[int, int, int], None]
"""Gets partition, offset of what was to be read next, and where the log begins instead."""
Foreign = Callable[[int, int], object]
"""Gets partition and offset of a message that is no journal record."""


def from_the_start(_consumer: PartitionReader, _place: TopicPartition, low: int, _high: int) -> int:
    """Read from the oldest record retained; return its offset."""
    return low


class NoJournal(ConfigError):
    """No relay of the app has run yet, or the app's name is another."""


def overtaken(partition: int, at: int, low: int) -> Unavailable:
    """Return what to raise where records in the midst of those to be read are gone."""
    return Unavailable(
        f"partition {partition}: journal records from offset {at} up to {low} were deleted while "
        "they were read",
        "run the command again; if it comes again, let the journal's retention be longer",
    )


class Reader:
    """The journal from its beginning on, and what stands beside it, as read_committed shows them.

    Args:
        begin: where, in a partition that was not there before.
        lasting: as of relay.kafka.group_queries.

    Raises (every method):
        Unavailable: the brokers did not answer.
    """

    def __init__(
        self, settings: Settings, begin: Begin = from_the_start, *, lasting: bool = False
    ) -> None:
        self._settings, self._begin = settings, begin
        self._journal = names.journal_topic(settings.app)
        self._heard = Heard()
        client = {**kafka_clients.admin(settings.kafka), "error_cb": self._heard.listen}
        self._admin = self._source_admin = AdminClient(client)
        self._renewals = [(self._admin, Renewal(client))]
        if settings.crosses:
            of_source = kafka_clients.admin(settings.source_kafka)
            self._source_admin = AdminClient(of_source)
            self._renewals.append((self._source_admin, Renewal(of_source)))
        self._groups = Groups(settings.source_kafka, SECONDS, lasting=lasting)
        self._consumer = PartitionReader(kafka_clients.reader(settings.kafka))
        self._at: dict[int, int] = {}
        self._out_of_range: set[int] = set()
        self.starts: dict[int, int] = {}
        """Where each partition's log began when it was first read."""
        self.behind: dict[int, int] = {}
        """By partition: offsets that were visible when this was last looked at, and not read."""
        self.epochs: dict[int, int] = {}
        """Leader epochs of the source, with what `committed` last returned; -1: none."""
        self.silent: dict[tuple[str, int], Unavailable] = {}
        """Partitions that `ends` or `source_ends` last left out, and why."""

    def grow(self) -> None:
        """Read partitions that were not there before, from where `begin` says.

        Raises:
            NoJournal: the app has none.
            ConfigError: it has none any more.
            Refused: the brokers let nobody in with these credentials.
        """
        for admin, renewal in self._renewals:
            renewal.look(admin)
        described = self._described()
        if described.error is not None:
            raise (ConfigError if self._at else NoJournal)(
                f"there is no topic {self._journal}: {described.error}",
                "check `app` in the configuration; the relay creates the topic when it first runs",
            )
        new = [self._place(index) for index in described.partitions if index not in self._at]
        for place in new:
            low, high = answer_of(lambda p=place: self._consumer.get_watermark_offsets(p, SECONDS))
            self.starts[place.partition] = low
            bounds = self._consumer, place, low, high
            first = answer_of(lambda all_of=bounds: self._begin(*all_of))
            place.offset = self._at[place.partition] = first
        if new:
            self._consumer.incremental_assign(new)

    def _described(self) -> TopicMetadata:
        """The journal, as the brokers know it."""
        begun = time.monotonic()
        while True:
            try:
                return self._admin.list_topics(self._journal, LOOK_SECONDS).topics[self._journal]
            except KafkaException as error:
                self._admin.poll(0)
                if refused := self._heard.refused():
                    raise Refused(
                        f"the brokers rejected the credentials: {refused.name()} ({refused.str()})",
                        "correct user, password or certificate in kafka.client",
                    ) from error
                if time.monotonic() > begun + SECONDS:
                    raise away(self._heard.explained(error.args[0], begun)) from error

    def records(
        self, deleted: Deleted | None = None, foreign: Foreign | None = None
    ) -> Iterator[tuple[int, int, Commit]]:
        """Yield what is visible and was not read yet: partition, offset and record, in order.

        Args:
            deleted: is told, before the records behind them, of what was deleted unread.
            foreign: is told of messages that are no records, which are passed over.

        Raises:
            ContractBroken: there is such a message, and nobody is told of it.
            Unavailable: nothing came for SECONDS; records were deleted, and nobody is told of it.
        """
        stable = self._offsets(map(self._place, self._at), IsolationLevel.READ_COMMITTED)
        deadline = time.monotonic() + SECONDS
        self.behind = self._behind(stable)
        while any(self.behind.values()):
            yield from self._read(self._consumer.consume(AT_ONCE, POLL_SECONDS), foreign)
            moved = self._fetch_again(deleted)
            # The client's own position also passes markers and aborted records.
            for place in self._consumer.position([self._place(index) for index in self._at]):
                moved |= place.offset > self._at[place.partition]
                self._at[place.partition] = max(self._at[place.partition], place.offset)
            self.behind = self._behind(stable)
            if moved:
                deadline = time.monotonic() + SECONDS
            elif time.monotonic() > deadline:
                raise Unavailable(
                    f"{self._journal}: the brokers sent nothing for {SECONDS:g} s; read up to "
                    f"offset {self._at} of {stable}",
                    "check the brokers that lead the journal",
                )

    def _behind(self, stable: Mapping[tuple[str, int], int]) -> dict[int, int]:
        return {index: max(end - self._at[index], 0) for (_, index), end in stable.items()}

    def _read(
        self, messages: Sequence[Message], foreign: Foreign | None
    ) -> Iterator[tuple[int, int, Commit]]:
        """All records first: the client gives none of them a second time."""
        failed: list[KafkaError] = []
        for message in messages:
            if (error := message.error()) is None:
                place = message.partition() or 0, message.offset() or 0
                if (commit := self._record(message.value() or b"", *place, foreign)) is not None:
                    yield *place, commit
            elif error.code() in OUT_OF_RANGE:
                self._out_of_range.add(message.partition() or 0)
            else:
                failed.append(error)
        for error in failed:
            raise Unavailable(
                f"{self._journal}: {error}", "check the brokers that lead the journal"
            )

    def _record(
        self, value: bytes, partition: int, offset: int, foreign: Foreign | None
    ) -> Commit | None:
        try:
            return Commit.FromString(value)
        except DecodeError as error:
            if foreign is None:
                raise no_record(self._journal, partition, offset) from error
        foreign(partition, offset)
        return None

    def _fetch_again(self, deleted: Deleted | None) -> bool:
        """Assign anew what the client gave up; return whether any of it begins later now."""
        moved = False
        for index in sorted(self._out_of_range):
            place, at = self._place(index), self._at[index]
            low, _ = answer_of(lambda p=place: self._consumer.get_watermark_offsets(p, SECONDS))
            if low > at:
                if deleted is not None:
                    deleted(index, at, low)
                elif at > self.starts[index]:
                    raise overtaken(index, at, low)
                if at == self.starts[index]:
                    self.starts[index] = low
                self._at[index], moved = low, True
            # Not by a seek, which the client refuses once it gave up a partition. A leader that
            # is behind is asked for the same again.
            place.offset = self._at[index]
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])
            self._out_of_range.discard(index)
        return moved

    def _place(self, index: int) -> TopicPartition:
        return TopicPartition(self._journal, index)

    def committed(self) -> dict[int, tuple[int, str | None] | None]:
        """Floor and metadata of each source partition, None where the group has no offset.

        A partition is left out while a transaction with an offset of it is open for longer than
        UNSTABLE_SECONDS: nobody knows yet what its offset is.
        """
        deadline = time.monotonic() + UNSTABLE_SECONDS
        while True:
            found = self._offsets_of_group()
            errors = {place.partition: place for place in found if place.error}
            for partition, place in errors.items():
                if place.error != KafkaError.UNSTABLE_OFFSET_COMMIT:
                    raise Unavailable(
                        f"offset of partition {partition}: {place.why}",
                        "check the group and its coordinator",
                    )
            if not errors or time.monotonic() > deadline:
                break
            time.sleep(0.02)  # the brokers are asked again
        self.epochs = {place.partition: place.leader_epoch for place in found}
        return {
            place.partition: None
            if place.offset == OFFSET_INVALID
            else (place.offset, place.metadata)
            for place in found
            if place.partition not in errors
        }

    def _offsets_of_group(self) -> list[GroupOffset]:
        group, topic = names.group_id(self._settings.app), self._settings.source.topic
        found: list[GroupOffset] = answer_of(lambda: self._groups.committed(group, topic, self._at))
        return found

    def ends(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        """Return (last stable offsets, ends) of journal, dead letters and block topics.

        Without those whose leader gives none, which are in `silent`: one says nothing of others.
        """
        prefix = f"{self._settings.app}."
        topics = answer_of(lambda: self._admin.list_topics(timeout=SECONDS)).topics
        places = [
            TopicPartition(name, index)
            for name, topic in topics.items()
            if name in (self._journal, names.dead_topic(self._settings.app))
            or name.startswith(f"{prefix}blocks.")
            for index in topic.partitions
        ]
        # Stable ones first: what is written between the two questions is no transaction's fault,
        # and is stable by the next round.
        order = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        stable, ends = self._told(places, order, self._admin)
        return stable, ends

    def every_end(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        """Return the same of all of them.

        Raises:
            Unavailable: a leader gives none.
        """
        found = self.ends()
        for (topic, _), error in self.silent.items():
            if topic != self._settings.source.topic:
                raise error
        return found

    def source_ends(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the same of the source partitions that the journal has, as `ends` does."""
        places = [TopicPartition(self._settings.source.topic, p) for p in self._at]
        # Ends first, here: what is written between the two questions is behind no transaction.
        order = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
        ends, stable = self._told(places, order, self._source_admin)
        return _by_partition(stable), _by_partition(ends)

    def source_starts(self) -> dict[int, int]:
        """Return the oldest offset of each source partition that the journal has."""
        places = [TopicPartition(self._settings.source.topic, p) for p in self._at]
        oldest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # untyped upstream
        isolation, admin = IsolationLevel.READ_UNCOMMITTED, self._source_admin
        found = self._offsets(places, isolation, admin, oldest)
        return _by_partition(found)

    def _told(
        self, places: Sequence[TopicPartition], order: Iterable[IsolationLevel], admin: AdminClient
    ) -> list[dict[tuple[str, int], int]]:
        """Return the ends at each isolation, in this order, of partitions that gave all of them."""
        asked = [self._asked(places, isolation, admin) for isolation in order]
        silent = {at: error for _, errors in asked for at, error in errors.items()}
        old = {(one.topic, one.partition) for one in places}
        self.silent = {at: e for at, e in self.silent.items() if at not in old} | silent
        return [{at: o for at, o in found.items() if at not in silent} for found, _ in asked]

    def _offsets(
        self,
        places: Iterable[TopicPartition],
        isolation: IsolationLevel,
        admin: AdminClient | None = None,
        spec: OffsetSpec | None = None,
    ) -> dict[tuple[str, int], int]:
        found, silent = self._asked(places, isolation, admin, spec)
        for error in silent.values():
            raise error
        return found

    def _asked(
        self,
        places: Iterable[TopicPartition],
        isolation: IsolationLevel,
        admin: AdminClient | None = None,
        spec: OffsetSpec | None = None,
    ) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], Unavailable]]:
        """Return offsets, and why there is none of the other partitions."""
        latest = spec or OffsetSpec.latest()  # type: ignore[no-untyped-call]  # untyped upstream
        admin = self._admin if admin is None else admin  # one with nothing queued is falsy
        futures = admin.list_offsets(
            dict.fromkeys(places, latest), isolation_level=isolation, request_timeout=SECONDS
        )
        found: dict[tuple[str, int], int] = {}
        silent: dict[tuple[str, int], Unavailable] = {}
        for at, future in futures.items():
            try:
                found[at.topic, at.partition] = answer_of(
                    lambda at=at, of=future: listed_offset(at, of.result())
                )
            except Unavailable as error:
                silent[at.topic, at.partition] = error
        if silent:
            # The next try learns of the leaders of now: see relay.process.truth.
            with contextlib.suppress(KafkaException):
                admin.list_topics(timeout=SECONDS)
        return found, silent

    def close(self) -> None:
        """Let go of the consumer, and of what asks about the group."""
        self._groups.close()
        self._consumer.close()


def _by_partition(offsets: Mapping[tuple[str, int], int]) -> dict[int, int]:
    return {partition: offset for (_, partition), offset in offsets.items()}
