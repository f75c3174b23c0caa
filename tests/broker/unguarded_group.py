"""Guards over whose transaction may commit; each taken away by the function of its name."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

from relay import errors, names
from relay.config import kafka_clients
from relay.core import effects
from relay.kafka import transactional_producer
from relay.process import perform
from tests.broker.overriding import overriding

if TYPE_CHECKING:
    from relay.config.settings import Settings
    from relay.intake.source import SourceMember

REJOIN_SECONDS = 30.0


def stable_identity() -> None:
    """Every process has a transactional id and a group member of its own."""
    names.transactional_id = lambda app, member: f"{app}.{member}.{os.getpid()}"
    original = kafka_clients.consumer

    def dynamic(settings: Settings) -> dict[str, Any]:
        return {k: v for k, v in original(settings).items() if k != "group.instance.id"}

    kafka_clients.consumer = dynamic


def partition_identity() -> None:
    """Every process has transactional ids of its own for its source partitions."""
    names.partition_transactional_id = lambda app, partition: f"{app}.{partition}.{os.getpid()}"
    overriding("producer", transaction_timeout_ms=60_000)


def generation() -> None:
    """Offsets are sent under the metadata of a consumer that never joined: any will do.

    The transaction outlives the session, else the coordinator would end it first.
    """
    overriding("producer", transaction_timeout_ms=60_000)
    begin = transactional_producer.TransactionalProducer.begin

    def with_nothing(self: transactional_producer.TransactionalProducer, group: Any) -> None:
        servers = self._config["bootstrap.servers"]
        never_joined = Consumer(
            {"bootstrap.servers": servers, "group.id": os.environ["UNGUARDED_GROUP"]}
        )
        begin(self, never_joined.consumer_group_metadata() if group is not None else None)

    transactional_producer.TransactionalProducer.begin = with_nothing  # type: ignore[method-assign]


def metadata_at_begin() -> None:
    """The group metadata is that of the moment in which offsets are sent."""
    _polling_in_transactions(late=True)


def polls_in_transactions() -> None:
    """What `metadata_at_begin` does beside taking that guard away: alone, it does no harm."""
    _polling_in_transactions(late=False)


def _polling_in_transactions(*, late: bool) -> None:
    """A relay that was stopped inside a transaction polls there, and so joins its group anew.

    The relay polls nothing in a transaction, and until it polls, the coordinator fences a static
    member that was thrown out. A program that polls in there, for max.poll.interval.ms' sake or
    in a second thread, is a member again when it sends its offsets. The transaction outlives the
    session, else the coordinator would end it first; after it the process ends, as fenced.
    """
    overriding("producer", transaction_timeout_ms=30_000)
    attempt = perform.Performer._attempt
    begun = {"at": 0.0, "anew": False}

    def polling(self: perform.Performer, effect: Any) -> Any:
        if isinstance(effect, effects.Begin):
            begun["at"] = time.monotonic()
        # A session runs from the last heartbeat, which may be a third of it before the Begin.
        stopped = self._settings.relay.session_timeout_seconds / 2
        if isinstance(effect, effects.SendOffsets) and time.monotonic() - begun["at"] > stopped:
            _join_anew(self._source)
            begun["anew"] = True
            if late:
                self._producer._group = self._source.consumer.consumer_group_metadata()
        answer = attempt(self, effect)
        if begun["anew"] and isinstance(effect, effects.Commit | effects.Abort):
            os._exit(errors.Fenced.exit_code)
        return answer

    perform.Performer._attempt = polling  # type: ignore[method-assign]


def _join_anew(source: SourceMember) -> None:
    """Poll until the group gives partitions again; who owned what before hears nothing of it."""
    given: list[frozenset[int]] = []

    def assigned(partitions: frozenset[int]) -> dict[int, int]:
        given.append(partitions)
        return {}

    source._on_revoked, source._on_assigned = lambda _: None, assigned
    deadline = time.monotonic() + REJOIN_SECONDS
    while not given and time.monotonic() < deadline:
        source.consumer.consume(1, 0.1)
