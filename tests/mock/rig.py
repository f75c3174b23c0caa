"""One transaction of the product's own core and performer, over a mock cluster.

Receives what goes wrong where; gives what the core did about it, in its own words. Nothing
stands between: the same `step`, the same Performer and librdkafka as in production.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from relay import names
from relay.config.settings import Settings
from relay.core import effects as ef
from relay.core import events as ev
from relay.core.offsets import CommittedOffset
from relay.core.step import step
from relay.errors import RelayError
from relay.kafka.errors import TransactionFailed
from relay.kafka.record_limits import RecordLimits
from relay.process.perform import Performer
from relay.program.waiting import ServerWait
from tests.core.build import limits, partition, polled, with_limits
from tests.mock.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMBER = "m"
SOURCE = "source"
TRANSACTION_COORDINATOR, GROUP_COORDINATOR, LEADER = 1, 2, 3
"""Each role on a broker of its own."""

QUICK: dict[str, str | int | float | bool] = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}
"""Passed through as a user could: repetitions need not take as long as in production."""


@dataclass
class Course:
    """What happened.

    Attributes:
        did: what the core did, in order: commit, abort, replace, exit N.
        failures: each that the core heard of: kind, text, and `flagged` at that time.
        flagged: the client's last error as the product classified it, where a test fills it in.
        message: of the error that ended the process, if one did.
    """

    did: list[str] = field(default_factory=list)
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    flagged: str = ""
    message: str = ""

    def failed(self, failed: ev.Failed) -> None:
        self.failures.append((failed.kind.name, failed.why, self.flagged))


class Rig:
    """A relay without ClickHouse and without a group: it writes journal records only.

    Args:
        app: a name that no other rig uses at the same time.
        transaction_seconds: the transaction's timeout.
        deadline_seconds: of one call.
        brokers: each role is on another; one more than roles has none.
        client: of `kafka.client`, beyond QUICK.

    Attributes:
        producer: the performer's own.
        lines: of librdkafka's log, debug included, as they were heard.
    """

    def __init__(
        self,
        app: str,
        transaction_seconds: float = 30.0,
        deadline_seconds: float = 60.0,
        brokers: int = 3,
        **client: str | float | bool,
    ) -> None:
        self.app = app
        self._stack = ExitStack()
        self.cluster = self._stack.enter_context(Cluster(brokers))
        self.group = names.group_id(app)
        self.transactional_id = names.transactional_id(app, MEMBER)
        self.journal = names.journal_topic(app)
        self.cluster.create_topic(SOURCE)
        self.cluster.create_topic(self.journal)
        self.cluster.set_leader(self.journal, 0, LEADER)
        self.cluster.set_transaction_coordinator(self.transactional_id, TRANSACTION_COORDINATOR)
        self.cluster.set_group_coordinator(self.group, GROUP_COORDINATOR)
        self.settings = relay_settings(app, self.cluster.bootstrap, transaction_seconds, client)
        source: Any = _NoMember(self.cluster.bootstrap, self.group)
        self._stack.callback(source.consumer.close)
        tables: Any = _NoTables()
        self.performer = Performer(self.settings, tables, source, ServerWait(threading.Event()))
        self.producer = self.performer._producer
        self.producer._deadline_seconds = deadline_seconds
        self.lines: list[str] = []
        self._listen()
        self._stack.callback(self.performer.producers.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, course: Course) -> bool:
        """The first producer; False where that ends the process."""
        try:
            self.performer.producers.start()
        except RelayError as error:
            if isinstance(error.__cause__, TransactionFailed):
                course.failed(ev.Failed(error.__cause__.kind, error.__cause__.why))
            course.did.append(f"exit {error.exit_code}")
            course.message = error.message
            return False
        return True

    def transaction(
        self,
        course: Course,
        before: Callable[[str], None] = lambda _: None,
        revoke_before: type[ef.Effect] | None = None,
    ) -> None:
        """One transaction and whatever follows, until it is committed or the truth is read anew.

        Args:
            course: is added to.
            before: called with the name of each effect, ahead of it.
            revoke_before: this effect is not performed: the partition is revoked instead.
        """
        state = with_limits(limits(), p0=partition(fresh=True))
        events: list[ev.Event] = [polled(0)]
        while events:
            state, effects = step(state, events.pop(0))
            for effect in effects:
                before(type(effect).__name__)
                if revoke_before is not None and isinstance(effect, revoke_before):
                    events.append(ev.Revoked(frozenset({0})))
                else:
                    events.extend(self._answers(effect, course))

    def fill(self) -> None:
        """A transaction up to its end, straight on the producer: one record and an offset."""
        self.producer.begin(self.performer._source.consumer.consumer_group_metadata())
        self.producer.produce(TopicPartition(self.journal, 0), b"v", b"k", [], lambda _: None)
        self.producer.flush()
        self.producer.send_offsets(SOURCE, {0: CommittedOffset(floor=5, n=1, journal_offset=0)})

    def _listen(self) -> None:
        evidence = self.producer._evidence
        heard = evidence.log

        def log(level: int, template: str, facility: str, client: str, text: str) -> None:
            self.lines.append(f"{facility} {text}")
            heard(level, template, facility, client, text)

        evidence.log = log  # type: ignore[method-assign]

    def _answers(self, effect: ef.Effect, course: Course) -> Iterator[ev.Event]:
        match effect:
            case ef.ReadTruth():
                return  # this far is far enough: whatever was held is dropped
            case ef.Exit(error):
                assert error is not None
                course.did.append(f"exit {error.exit_code}")
                course.message = error.message
                return
            case ef.Abort() | ef.Replace():
                course.did.append(type(effect).__name__.lower())
        answer = self.performer.perform(effect)
        if isinstance(answer, ev.Committed):
            course.did.append("commit")
        if isinstance(answer, ev.Failed):
            course.failed(answer)
        if answer is not None:
            yield answer


def flags(error: KafkaError) -> str:
    """An error as the documentation of librdkafka sorts them: `CODE fatal`, or with none."""
    marks = {
        "fatal": error.fatal(),
        "abort": error.txn_requires_abort(),
        "retriable": error.retriable(),
    }
    return " ".join([error.name(), *(name for name, is_set in marks.items() if is_set)])


class _NoMember:
    """In the place of relay.intake.source: group metadata of a consumer that never joined."""

    def __init__(self, bootstrap: str, group: str) -> None:
        quiet = logging.Logger("consumer of the rig")  # noqa: LOG001 - apart from all others
        quiet.addHandler(logging.NullHandler())
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group}, logger=quiet)
        self.assigned = frozenset[int]()

    def leader_epochs(self, _: object) -> dict[int, int]:
        return {}


class _NoTables:
    """In the place of relay.rows.codecs_of_tables, and of the block topics: no block is sealed."""

    def __init__(self) -> None:
        self.topics, self.limits = self, RecordLimits()

    def undecided(self, tables: frozenset[str]) -> frozenset[str]:
        assert not tables
        return tables

    def have_topics(self, tables: frozenset[str], partition: int) -> frozenset[str]:
        assert not tables
        assert partition == 0
        return tables

    def learn(self, *_: object) -> bool:
        return False

    def dark(self, tables: frozenset[str], _: object) -> frozenset[str]:
        return tables

    def doubt(self) -> None:
        """None is known."""

    def least_in_sync(self, _: object) -> dict[str, int]:
        return {}

    def alone(self, _: object) -> frozenset[str]:
        return frozenset()


def relay_settings(app: str, bootstrap: str, transaction_seconds: float, client: Any) -> Settings:
    return Settings.model_validate(
        {
            "app": app,
            "kafka": {"bootstrap": bootstrap, "client": QUICK | client},
            "source": {"topic": SOURCE, "start": "earliest"},
            "clickhouse": {"url": "http://127.0.0.1:9"},
            "loader": {"checkpoint": "unused"},
            "relay": {
                "member": MEMBER,
                "transaction_timeout_seconds": transaction_seconds,
                "session_timeout_seconds": transaction_seconds + 5,
            },
        }
    )
