"""`relay` with one guard taken away, for negative controls: production has no such switch.

python -m tests.broker.unguarded GUARD run CONFIG ...
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from relay import cli
from relay.core import events, step, takeover
from relay.kafka import transaction_evidence, transactional_producer
from relay.process import loop
from tests.broker import unguarded_group, unguarded_input, unguarded_start
from tests.broker.overriding import overriding

if TYPE_CHECKING:
    from relay.core.records import PartitionTruth
    from relay.core.state import Partition, RelayState
    from relay.errors import RelayError


def read_committed() -> None:
    """The source is read with records of open and aborted transactions."""
    overriding("consumer", isolation_level="read_uncommitted")


def committed_truth() -> None:
    """A partition taken over begins where the source begins, whatever was committed."""

    def from_the_start(found: PartitionTruth, now_ms: int) -> Partition | RelayError:
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
    produce_offsets = transactional_producer.TransactionalProducer.send_offsets

    def split(
        self: transactional_producer.TransactionalProducer, *offsets: Any, **epochs: Any
    ) -> None:
        self.commit()
        self.begin(self._group)
        produce_offsets(self, *offsets, **epochs)

    transactional_producer.TransactionalProducer.send_offsets = split  # type: ignore[method-assign]


def epoch_bump() -> None:
    """No lost request makes the producer suspect: it goes on under its epoch."""
    transaction_evidence.TransactionEvidence.suspect = lambda *_: None  # type: ignore[method-assign]


def abort_on_revoke() -> None:
    """What was polled before the group gave a partition away is committed nevertheless."""
    original = loop.step

    def deaf(state: RelayState, event: events.Event) -> step.Step:
        return (state, ()) if isinstance(event, events.Revoked) else original(state, event)

    loop.step = deaf  # type: ignore[assignment]


def acked() -> None:
    """Nobody counts whether each produced record was acknowledged."""
    flush = transactional_producer.TransactionalProducer.flush

    def uncounted(self: transactional_producer.TransactionalProducer) -> None:
        try:
            flush(self)
        except transactional_producer.TransactionFailed as failed:
            if "delivery" not in failed.why and "never acknowledged" not in failed.why:
                raise
        self._unacknowledged, self._lost = Counter(), None

    transactional_producer.TransactionalProducer.flush = uncounted  # type: ignore[method-assign]


def ledger() -> None:
    """The loader asks no ledger: it inserts whatever the journal names, under its token."""
    from loader.clickhouse import ledger as asked  # noqa: PLC0415 - relays do without the loader
    from loader.core import plan  # noqa: PLC0415

    asked.HOLDS, asked.HOLDING = "1", "length({blocks:Array(String)})"
    asked.Ledger.entries = lambda *_: {}  # type: ignore[assignment,method-assign]
    plan.holds = lambda *_: True
    plan._outcome = lambda _: plan.Done("loaded")


def evidence() -> None:
    """An interrupted block is inserted again without a look at what is there and was recorded."""
    from loader.blocks import worker  # noqa: PLC0415 - relays do without the loader
    from loader.clickhouse import server_records  # noqa: PLC0415 - likewise
    from loader.core import plan  # noqa: PLC0415 - likewise

    facts = worker.Tables.facts

    def blind(*arguments: Any) -> plan.InsertFacts:
        return dataclasses.replace(facts(*arguments), counted=0)

    worker.Tables.facts = blind  # type: ignore[method-assign]
    never = plan.ServerRecord("never")
    server_records.ServerRecords.record = lambda *_: never  # type: ignore[method-assign]


if __name__ == "__main__":
    guard = sys.argv.pop(1)
    for guards in (sys.modules[__name__], unguarded_group, unguarded_input, unguarded_start):
        if hasattr(guards, guard):
            getattr(guards, guard)()
            break
    else:
        sys.exit(f"no guard is called {guard}")
    if sys.argv[1] == "tests.chaos.bareloader":
        from tests.chaos import bareloader

        sys.argv.pop(1)
        sys.exit(bareloader.main())
    cli.program()
