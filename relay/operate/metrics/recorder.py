"""Counts what a relay does, as its steps tell: the observer behind `relay run --http`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from relay.blocks.form_block import BlockFacts
from relay.core import effects as ef
from relay.core import events as ev
from relay.core.state import Phase, RelayState, Seal
from relay.core.step import IN_TRANSACTION
from relay.errors import Fenced, RelayError
from relay.operate.metrics.definitions import RECORDED
from relay.operate.metrics.observer import RelayObserver
from relay.operate.metrics.open_transaction import OpenTransaction
from relay.operate.metrics.statistics import Statistics
from relay.operate.metrics.vitals import Vitals
from relay.program.metric import Bounded, Labelled, made

_FAILED = {
    ev.Failure.FENCED: "fenced",
    ev.Failure.REFUSED: "refused",
    ev.Failure.CREDENTIALS: "refused",
}

OUTCOMES = ("committed", "aborted", "abandoned", "unknown", *sorted({*_FAILED.values()}))
"""How transactions end."""


class RelayRecorder(RelayObserver):
    """Counts in a registry what one relay does, and passes it on to the vitals."""

    def __init__(self, vitals: Vitals, statistics: Statistics, registry: CollectorRegistry) -> None:
        self._vitals = vitals
        self._statistics = statistics
        self._m = made(RECORDED, registry)
        _born(self._m)
        self._table = Bounded()
        self._arrived: dict[tuple[str, int], tuple[Any, Any, Any]] = {}
        self._entered_at = self._begun_at = self._polled_at = self._vitals.clock()
        self._truth_at = self._entered_at
        self._positions: dict[int, int] = {}
        self._open = OpenTransaction(self._m, self._table, vitals.wall_ms)

    def settings(self, client: str) -> dict[str, Any]:
        """Return settings that make a client give its statistics."""
        return self._statistics.settings(client)

    def polled(self, seconds: float, messages: int, size: int) -> None:
        """Count a poll."""
        now = self._vitals.clock()
        self._m["relay_turn_seconds"].observe(max(0.0, now - seconds - self._polled_at))
        self._polled_at = now
        self._vitals.polled()
        self._m["relay_polls_total"].inc()
        self._m["relay_poll_seconds"].observe(seconds)
        if messages:
            self._m["relay_poll_messages"].observe(messages)
            self._m["relay_poll_bytes"].observe(size)
        else:
            self._m["relay_polls_empty_total"].inc()

    def stepped(
        self,
        before: RelayState,
        event: ev.Event,
        after: RelayState,
        effects: Sequence[ef.Effect],
    ) -> None:
        """Count a step of the core."""
        self._vitals.stepped(before, event, after)
        self._count(before, event, after, effects)
        for effect in () if isinstance(event, ev.Polled) else effects:
            if isinstance(effect, ef.ReadTruth):
                self._truth_at = self._vitals.clock()
            elif isinstance(effect, ef.Replace):
                phase = before.phase.name.lower()
                self._m["relay_producer_replacements_total"].labels(phase).inc()
        if before.phase is not after.phase:
            self._count_phase(before, event, after)

    def _count(
        self,
        before: RelayState,
        event: ev.Event,
        after: RelayState,
        effects: Sequence[ef.Effect],
    ) -> None:
        match event:
            case ev.Polled():
                self._count_poll(event, after, effects)
            case ev.Assigned():
                self._m["relay_rebalances_total"].labels("assigned").inc()
            case ev.Revoked():
                self._m["relay_rebalances_total"].labels("revoked").inc()
            case ev.TruthRead():
                self._count_takeovers(event, after)
            case ev.Produced():
                self._open.produced(event, effects)
            case ev.Committed():
                self._open.committed(before, event)
            case ev.Failed():
                self._count_failure(before, event)

    def formed(self, seal: Seal, facts: BlockFacts, seconds: float) -> None:
        """Count a block."""
        self._m["relay_form_seconds"].observe(seconds)
        self._open.formed(seal, facts)

    def refreshed(self, seconds: float, changed: int, why: str) -> None:
        """Count a reading of the catalogue."""
        self._m["relay_schema_refresh_seconds"].observe(seconds)
        self._m["relay_schema_changes_total"].inc(changed)
        if why:
            self._m["relay_schema_refresh_failures_total"].inc()

    def away(self, why: str) -> None:
        """Count a try of any server."""
        self._vitals.waiting(why)
        self._m["relay_server_waits_total"].inc()

    def trouble(self, partition: int, name: str) -> None:
        """Count a message's errors, until it comes."""
        self._m["relay_source_errors_total"].labels(partition, name).inc()

    def ended(self, error: RelayError) -> None:
        """Count an end; the consumer also reports fencing, without a step."""
        if isinstance(error, Fenced) and not self._vitals.fenced:
            self._vitals.fenced = error.message
            self._m["relay_fenced_total"].inc()

    def _count_poll(
        self, event: ev.Polled, after: RelayState, effects: Sequence[ef.Effect]
    ) -> None:
        skips = {
            (effect.arrival.partition, effect.arrival.table): effect.skip
            for effect in effects
            if isinstance(effect, ef.Keep)
        }
        for arrival in event.arrivals:
            messages, size, passed = self._arrival_counters(arrival.table, arrival.partition)
            count = len(arrival.offsets)
            messages.inc(count)
            size.inc(arrival.bytes)
            if skipped := skips.get((arrival.partition, arrival.table), count):
                passed.inc(skipped)
        for index in event.offsets:
            if index in after.partitions:
                self._positions[index] = after.partitions[index].position

    def _arrival_counters(self, table: str, partition: int) -> tuple[Any, Any, Any]:
        """Look them up once: labels cost more than the counting."""
        key = (self._table(table), partition)
        counters = self._arrived.get(key)
        if counters is None:
            counters = self._arrived[key] = (
                self._m["relay_messages_polled_total"].labels(*key),
                self._m["relay_bytes_polled_total"].labels(*key),
                self._m["relay_messages_passed_over_total"].labels(*key),
            )
        return counters

    def _count_takeovers(self, event: ev.TruthRead, after: RelayState) -> None:
        self._m["relay_truth_seconds"].observe(self._vitals.clock() - self._truth_at)
        for index in (found.partition for found in event.found):
            if index not in after.partitions:
                continue
            self._m["relay_takeovers_total"].inc()
            position = after.partitions[index].position
            back = self._positions.get(index, position) - position
            self._m["relay_offsets_rewound_total"].labels(index).inc(max(0, back))
            self._positions[index] = position

    def _count_failure(self, before: RelayState, event: ev.Failed) -> None:
        phase = before.phase.name.lower()
        self._m["relay_failed_calls_total"].labels(phase, event.kind.name.lower()).inc()
        if event.kind is ev.Failure.FENCED:
            self._m["relay_fenced_total"].inc()

    def _count_phase(self, before: RelayState, event: ev.Event, after: RelayState) -> None:
        now, left = self._vitals.clock(), before.phase
        if left is not Phase.READY:
            took = self._m["relay_transaction_phase_seconds"].labels(left.name.lower())
            took.observe(now - self._entered_at)
        self._entered_at, begun_at = now, self._begun_at
        if after.phase is Phase.BEGINNING:
            self._begun_at = now
            self._open.begin()
        outcome = _outcome(left, event, after.phase)
        if outcome:
            self._m["relay_transactions_total"].labels(outcome).inc()
            self._m["relay_transaction_seconds"].labels(outcome).observe(now - begun_at)


def _born(metrics: Labelled) -> None:
    """Show 0 of what is labelled by a few known words, before it first happens.

    A series that is born with a value has not grown, for Prometheus.
    """
    for outcome in OUTCOMES:
        metrics["relay_transactions_total"].labels(outcome)
    for kind in ("assigned", "revoked"):
        metrics["relay_rebalances_total"].labels(kind)


def _outcome(left: Phase, event: ev.Event, entered: Phase) -> str:
    """Return how the transaction ended in this step; empty: it did not, or there was none."""
    match event:
        case ev.Committed():
            return "committed"
        case ev.Aborted():
            return "aborted"
        case ev.SourceUnseen() | ev.TablesUndecided():
            return ""  # none was begun
    if left not in {*IN_TRANSACTION, Phase.ABORTING} or entered in IN_TRANSACTION:
        return ""
    if entered is Phase.ABORTING:
        return ""  # its end is still to come
    if isinstance(event, ev.Failed) and event.kind in _FAILED:
        return _FAILED[event.kind]
    return "unknown" if left is Phase.COMMITTING else "abandoned"
