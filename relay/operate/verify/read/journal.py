"""Reads what the verifier judges: journal, committed offsets, ends of the app's topics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    OffsetSpec,
    TopicMetadata,
)
from google.protobuf.message import DecodeError

from relay import names
from relay.blocks.journal_record import no_record
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import ConfigError, Refused, Unavailable
from relay.kafka.connection_errors import Heard
from relay.kafka.group_queries import Groups
from relay.kafka.partition_ends import listed_offset
from relay.kafka.partition_reader import OUT_OF_RANGE, PartitionReader
from relay.kafka.reconnect import Renewal
from relay.operate.verify.judge.committed_offset import Committed
from relay.records_pb2 import Commit

SECONDS = 30.0
"""For one request."""
LOOK_SECONDS = 1.0
"""Between two looks at what was heard while there is no answer."""
UNSTABLE_SECONDS = 0.5
"""A commit takes milliseconds; the transaction of a relay that died, until its timeout."""
AT_ONCE = 5_000
POLL_SECONDS = 0.05

_Answer = TypeVar("_Answer")
Offsets = dict[tuple[str, int], int]
"""By topic and partition."""
Silent = dict[tuple[str, int], Unavailable]
"""Why there is no offset, by topic and partition."""
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
        self.silent: Silent = {}
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
            low, high = _answer_of(self._consumer.get_watermark_offsets, place, SECONDS)
            self.starts[place.partition] = low
            first = _answer_of(self._begin, self._consumer, place, low, high)
            place.offset = self._at[place.partition] = first
        if new:
            self._consumer.incremental_assign(new)

    def _described(self) -> TopicMetadata:
        """Return what the brokers know of the journal's topic."""
        begun_at = time.monotonic()
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
                if time.monotonic() > begun_at + SECONDS:
                    raise _unavailable(self._heard.explained(error.args[0], begun_at)) from error

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
        places = [self._place(index) for index in self._at]
        stable = _all_of(_list_offsets(self._admin, places, IsolationLevel.READ_COMMITTED))
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

    def _behind(self, stable: Offsets) -> dict[int, int]:
        return {index: max(end - self._at[index], 0) for (_, index), end in stable.items()}

    def _read(
        self, messages: Sequence[Message], foreign: Foreign | None
    ) -> Iterator[tuple[int, int, Commit]]:
        """Yield all records before an error: the client gives none of them a second time."""
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
            low, _ = _answer_of(self._consumer.get_watermark_offsets, place, SECONDS)
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

    def committed(self) -> dict[int, Committed]:
        """Return floor and metadata of each source partition, None where the group has no offset.

        A partition is left out while a transaction with an offset of it is open for longer than
        UNSTABLE_SECONDS: nobody knows yet what its offset is.
        """
        group, topic = names.group_id(self._settings.app), self._settings.source.topic
        deadline = time.monotonic() + UNSTABLE_SECONDS
        while True:
            offsets = _answer_of(self._groups.committed, group, topic, self._at)
            errors = {place.partition: place for place in offsets if place.error}
            for partition, place in errors.items():
                if place.error != KafkaError.UNSTABLE_OFFSET_COMMIT:
                    raise Unavailable(
                        f"offset of partition {partition}: {place.why}",
                        "check the group and its coordinator",
                    )
            if not errors or time.monotonic() > deadline:
                break
            time.sleep(0.02)  # the brokers are asked again
        self.epochs = {place.partition: place.leader_epoch for place in offsets}
        return {
            place.partition: None
            if place.offset == OFFSET_INVALID
            else (place.offset, place.metadata)
            for place in offsets
            if place.partition not in errors
        }

    def ends(self) -> tuple[Offsets, Offsets]:
        """Return (last stable offsets, ends) of journal, dead letters and block topics.

        Without those whose leader gives none, which are in `silent`: one says nothing of others.
        """
        topics = _answer_of(self._admin.list_topics, timeout=SECONDS).topics
        places = [
            TopicPartition(name, index)
            for name, topic in topics.items()
            if name in (self._journal, names.dead_topic(self._settings.app))
            or name.startswith(f"{self._settings.app}.blocks.")
            for index in topic.partitions
        ]
        # Stable ones first: what is written between the two questions is no transaction's fault,
        # and is stable by the next round.
        order = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        stable, ends = self._ends(places, order, self._admin)
        return stable, ends

    def every_end(self) -> tuple[Offsets, Offsets]:
        """Return the same of all of them.

        Raises:
            Unavailable: a leader gives none.
        """
        ends = self.ends()
        for (topic, _), error in self.silent.items():
            if topic != self._settings.source.topic:
                raise error
        return ends

    def source_ends(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the same of the source partitions that the journal has, as `ends` does."""
        # Ends first, here: what is written between the two questions is behind no transaction.
        order = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
        ends, stable = self._ends(self._source_places(), order, self._source_admin)
        return _by_partition(stable), _by_partition(ends)

    def source_starts(self) -> dict[int, int]:
        """Return the oldest offset of each source partition that the journal has."""
        oldest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # untyped upstream
        places, isolation = self._source_places(), IsolationLevel.READ_UNCOMMITTED
        return _by_partition(_all_of(_list_offsets(self._source_admin, places, isolation, oldest)))

    def _source_places(self) -> list[TopicPartition]:
        return [TopicPartition(self._settings.source.topic, index) for index in self._at]

    def _ends(
        self, places: list[TopicPartition], order: Iterable[IsolationLevel], admin: AdminClient
    ) -> list[Offsets]:
        """Return the ends at each isolation, in this order, of partitions that gave all of them."""
        answers = [_list_offsets(admin, places, isolation) for isolation in order]
        silent = {at: error for _, errors in answers for at, error in errors.items()}
        asked = {(place.topic, place.partition) for place in places}
        self.silent = {at: e for at, e in self.silent.items() if at not in asked} | silent
        return [{at: o for at, o in offsets.items() if at not in silent} for offsets, _ in answers]

    def close(self) -> None:
        """Let go of the consumer, and of what asks about the group."""
        self._groups.close()
        self._consumer.close()


def _list_offsets(
    admin: AdminClient,
    places: list[TopicPartition],
    isolation: IsolationLevel,
    spec: OffsetSpec | None = None,
) -> tuple[Offsets, Silent]:
    """Return offsets, the latest by default, and why there is none of the other partitions."""
    latest = spec or OffsetSpec.latest()  # type: ignore[no-untyped-call]  # untyped upstream
    futures = admin.list_offsets(
        dict.fromkeys(places, latest), isolation_level=isolation, request_timeout=SECONDS
    )
    offsets: Offsets = {}
    silent: Silent = {}
    for at, future in futures.items():
        try:
            listed = _answer_of(future.result)
            offsets[at.topic, at.partition] = _answer_of(listed_offset, at, listed)
        except Unavailable as error:
            silent[at.topic, at.partition] = error
    if silent:
        # The next try learns of the leaders of now: see relay.process.truth.
        with contextlib.suppress(KafkaException):
            admin.list_topics(timeout=SECONDS)
    return offsets, silent


def _all_of(answer: tuple[Offsets, Silent]) -> Offsets:
    """Return the offsets, or raise why there is none of a partition."""
    for error in answer[1].values():
        raise error
    return answer[0]


def _answer_of(ask: Callable[..., _Answer], *arguments: Any, **options: Any) -> _Answer:
    """Return the brokers' answer.

    Raises:
        Unavailable: there is none.
    """
    try:
        return ask(*arguments, **options)
    except KafkaException as error:
        raise _unavailable(error.args[0]) from error


def _unavailable(cause: KafkaError) -> Unavailable:
    return Unavailable(
        f"the brokers did not answer: {cause.str()} ({cause.name()})",
        "check kafka.bootstrap and that the brokers are up",
    )


def _by_partition(offsets: Offsets) -> dict[int, int]:
    return {partition: offset for (_, partition), offset in offsets.items()}
