"""What a relay asks the servers when source partitions come: who else could commit, then the truth.

Receives partitions, gives the core's answers; raises where a server is away, for the caller waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from relay.config.settings import Settings
from relay.core import events as ev
from relay.core.records import JournalEnd, PartitionTruth
from relay.errors import Refused
from relay.failpoints import reached
from relay.intake.source import SourceMember
from relay.kafka import group_offsets
from relay.kafka.errors import timeout_refused
from relay.kafka.topics import Topics
from relay.process.journal_heads import HeadReader
from relay.process.producers import MemberProducer
from relay.process.truth import TruthReader

T = TypeVar("T")

TIMEOUT_REFUSED = "INVALID_TRANSACTION_TIMEOUT"
"""As relay.kafka.errors names it in a message."""


class Ownership:
    """Who else could commit, and what was committed, of one relay process's source partitions.

    Raises (every method):
        Unavailable: servers are away.
        Refused, Fenced: as they answer.
        ConfigError, ContractBroken: as relay.process.truth.
    """

    def __init__(
        self, settings: Settings, topics: Topics, source: SourceMember, producers: MemberProducer
    ) -> None:
        self._settings, self._source, self._producers = settings, source, producers
        self._topics = topics
        self._source_id: str | None = None
        reader = HeadReader if settings.crosses else TruthReader
        self._truth = reader(settings, topics, producers.deadline_seconds)

    def check_source(self) -> None:
        """Check, before topics grow with it, that the source is the one that the app has read."""
        self._truth.check_source()

    def start(self) -> None:
        """Start the first producer, where there is one for all partitions."""
        self._let_in(self._producers.start)

    def fence(self, partitions: frozenset[int]) -> ev.PredecessorsFenced:
        """Fence everybody else: nobody commits there from now on.

        The group is asked first: what it shows later may be a successor's.
        """
        self._follow(partitions)
        reached("before_fence")
        topic, seconds = self._settings.source.topic, self._producers.deadline_seconds
        before = group_offsets.read(self._source.consumer, topic, partitions, seconds)
        ends = self._let_in(lambda: self._producers.fence(partitions))
        reached("after_fence")
        return ev.PredecessorsFenced({p: replace(before[p], offset=ends[p]) for p in before})

    def read(
        self, partitions: frozenset[int], ends: Mapping[int, JournalEnd]
    ) -> tuple[PartitionTruth, ...]:
        """Return where these partitions stand."""
        self._follow(partitions)
        reached("before_truth")
        truths = self._truth.read(partitions, self._source.consumer, ends)
        self._source.epochs.remember(truths)
        return truths

    def polled(self) -> None:
        """Note a poll: of which topic its messages are has to be asked after it."""
        self._source_id = None

    def source_id(self) -> str:
        """Return the id of the topic that was polled until now; empty: the brokers do not list it.

        Under the source's name another may stand since, which the client reads on at the offset
        of the old one, if it is that long. An id that is still the old one's after a poll says that
        all of it is of the old one. Transactions with no poll in between share one question.
        """
        if self._source_id is None:
            facts = self._topics.describe(self._settings.source.topic)
            self._source_id = "" if facts is None else facts.topic_id
        return self._source_id

    def _follow(self, partitions: frozenset[int]) -> None:
        """Widen topics first: the truth of partitions that are new would be waited for in vain."""
        if self._topics.follow(partitions):
            self._truth.renew()

    def close(self) -> None:
        """Let go of the readers."""
        self._truth.close()

    def _let_in(self, call: Callable[[], T]) -> T:
        """Call; where the brokers refuse the transaction's timeout, say so with both numbers."""
        try:
            return call()
        except Refused as error:
            if TIMEOUT_REFUSED not in error.message:
                raise
            asked_ms = round(self._settings.relay.transaction_timeout_seconds * 1000)
            setting = "relay.transaction_timeout_seconds"
            kafka = self._settings.kafka
            raise timeout_refused(error.message, setting, asked_ms, kafka) from error
