"""`relay` with one guard taken away, for negative controls: production has no such switch.

python -m tests.broker.unguarded GUARD run CONFIG ...
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

from relay import cli, evidence, kafka_settings, names, performer, run, transactions
from relay.core import effects, state, step, takeover
from tests.broker import unguarded_input, unguarded_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.core.effects import StopError
    from relay.core.records import Found
    from relay.core.state import Partition
    from relay.settings import Settings


def overriding(name: str, **values: Any) -> None:
    """Replace a function of kafka_settings by one whose answer has other values."""
    original: Callable[[Settings], dict[str, Any]] = getattr(kafka_settings, name)
    keys = {key.replace("_", "."): value for key, value in values.items()}
    setattr(kafka_settings, name, lambda settings: {**original(settings), **keys})


def read_committed() -> None:
    """The source is read with records of open and aborted transactions."""
    overriding("consumer", isolation_level="read_uncommitted")


def stable_identity() -> None:
    """Every process has a transactional id and a group member of its own."""
    names.transactional_id = lambda app, member: f"{app}.{member}.{os.getpid()}"
    original = kafka_settings.consumer

    def dynamic(settings: Settings) -> dict[str, Any]:
        return {k: v for k, v in original(settings).items() if k != "group.instance.id"}

    kafka_settings.consumer = dynamic


def partition_identity() -> None:
    """Every process has transactional ids of its own for its source partitions."""
    names.partition_transactional_id = lambda app, partition: f"{app}.{partition}.{os.getpid()}"
    overriding("producer", transaction_timeout_ms=60_000)


def generation() -> None:
    """Offsets are sent under the metadata of a consumer that never joined: any will do.

    The transaction outlives the session, else the coordinator would end it first.
    """
    overriding("producer", transaction_timeout_ms=60_000)
    begin = transactions.TransactionalProducer.begin

    def with_nothing(self: transactions.TransactionalProducer, group: Any) -> None:
        servers = self._config["bootstrap.servers"]
        never_joined = Consumer(
            {"bootstrap.servers": servers, "group.id": os.environ["UNGUARDED_GROUP"]}
        )
        begin(self, never_joined.consumer_group_metadata() if group is not None else None)

    transactions.TransactionalProducer.begin = with_nothing  # type: ignore[method-assign]


def committed_truth() -> None:
    """A partition taken over begins where the source begins, whatever was committed."""

    def from_the_start(found: Found, now_ms: int) -> Partition | StopError:
        return takeover._first_start(
            type(found)(
                partition=found.partition,
                committed=None,
                record=None,
                later_records=0,
                source_topic_id=found.source_topic_id,
                log_start=found.log_start,
                log_end=found.log_end,
                start_offset=found.log_start,
            ),
            now_ms,
        )

    step.take_over = from_the_start  # type: ignore[attr-defined]


def one_transaction() -> None:
    """Blocks and journal are committed before the offsets are in a transaction of their own."""
    produce_offsets = transactions.TransactionalProducer.send_offsets

    def split(self: transactions.TransactionalProducer, *offsets: Any, **epochs: Any) -> None:
        self.commit()
        self.begin(self._group)
        produce_offsets(self, *offsets, **epochs)

    transactions.TransactionalProducer.send_offsets = split  # type: ignore[method-assign]


def epoch_bump() -> None:
    """No lost request makes the producer suspect: it goes on under its epoch."""
    evidence.Evidence.suspect = lambda *_: None  # type: ignore[method-assign]


def abort_on_revoke() -> None:
    """What was polled before the group gave a partition away is committed nevertheless."""
    original = run.RelayState
    off = state.Guards(abort_on_revoke=False)
    run.RelayState = lambda **values: original(guards=off, **values)  # type: ignore[misc,assignment]


def metadata_at_begin() -> None:
    """The group metadata is that of the moment in which offsets are sent."""
    perform = performer.Performer._attempt

    def late(self: performer.Performer, effect: Any) -> Any:
        if isinstance(effect, effects.SendOffsets):
            self._producer._group = self._source.consumer.consumer_group_metadata()
        return perform(self, effect)

    performer.Performer._attempt = late  # type: ignore[method-assign]


def acked() -> None:
    """Nobody counts whether each produced record was acknowledged."""
    flush = transactions.TransactionalProducer.flush

    def uncounted(self: transactions.TransactionalProducer) -> None:
        try:
            flush(self)
        except transactions.TransactionFailed as failed:
            if "delivery" not in failed.why and "never acknowledged" not in failed.why:
                raise
        self._unacknowledged, self._lost = 0, None

    transactions.TransactionalProducer.flush = uncounted  # type: ignore[method-assign]


def ledger() -> None:
    """The loader asks no ledger: it inserts whatever the journal names, under its token."""
    from loader import ledger as asked  # noqa: PLC0415 - relays do without the loader
    from loader import plan  # noqa: PLC0415

    asked.HOLDS = "1"
    asked.Ledger.entries = lambda *_: {}  # type: ignore[assignment,method-assign]
    plan.holds = lambda *_: True
    plan._outcome = lambda _: plan.Done("loaded")


def row_count() -> None:
    """An interrupted block is inserted again without looking how much of it is there."""
    from loader import plan, work  # noqa: PLC0415 - relays do without the loader

    facts = work.Tables.facts

    def blind(*arguments: Any) -> plan.Facts:
        return dataclasses.replace(facts(*arguments), counted=0)

    work.Tables.facts = blind  # type: ignore[method-assign]


if __name__ == "__main__":
    guard = sys.argv.pop(1)
    for guards in (sys.modules[__name__], unguarded_input, unguarded_start):
        if hasattr(guards, guard):
            getattr(guards, guard)()
            break
    else:
        sys.exit(f"no guard is called {guard}")
    if sys.argv[1] == "tests.chaos.bareloader":
        from tests.chaos import bareloader

        sys.argv.pop(1)
        sys.exit(bareloader.main())
    sys.exit(cli.main())
