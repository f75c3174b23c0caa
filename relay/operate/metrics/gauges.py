"""Makes gauges of the core's state when Prometheus asks: what nobody asks for costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client.registry import Collector

from relay.core.state import Partition, Phase, RelayState
from relay.operate.metrics.client_definitions import CLIENTS
from relay.operate.metrics.definitions import CURRENT
from relay.operate.metrics.statistics import Statistics
from relay.operate.metrics.vitals import Vitals
from relay.program.health import Check
from relay.program.metric import Bounded, Samples, families

_NONE: tuple[str, ...] = ()


class RelayGauges(Collector):
    """Of one relay.

    Args:
        info: values of the labels of `relay_info`.
        checks: returns them as /healthz and /readyz say them now.
    """

    def __init__(
        self,
        info: tuple[str, ...],
        vitals: Vitals,
        statistics: Statistics,
        checks: Callable[[], Sequence[Check]],
    ) -> None:
        self._info = info
        self._vitals = vitals
        self._statistics = statistics
        self._checks = checks
        self._table = Bounded()

    def collect(self) -> Iterable[Any]:
        """Collect for prometheus-client."""
        yield from families(CURRENT, self._samples())
        yield from families(CLIENTS, self._statistics.samples())

    def describe(self) -> Iterable[Any]:
        """Return nothing: a test checks names, and a look now would be at nothing."""
        return ()

    def _samples(self) -> Samples:
        vitals, now = self._vitals, self._vitals.clock()
        samples: Samples = {"relay_info": [(self._info, 1.0)]}

        def show(name: str, value: float) -> None:
            samples[name] = [(_NONE, float(value))]

        show("relay_transaction_open_seconds", vitals.open_seconds())
        show("relay_last_poll_seconds", now - vitals.polled_at)
        if vitals.committed_at is not None:
            show("relay_last_commit_seconds", now - vitals.committed_at)
        show("relay_server_away", bool(vitals.away))
        samples["relay_check"] = [((check.check,), float(check.ok)) for check in self._checks()]
        state = vitals.state
        if state is not None:
            samples["relay_phase"] = [
                ((phase.name.lower(),), float(phase is state.phase)) for phase in Phase
            ]
            show("relay_partitions_owned", len(state.partitions))
            show("relay_partitions_pending", len(state.pending))
            show("relay_partitions_waiting", len(state.partitions.keys() - state.reading))
            show("relay_tables_held", len(state.held))
            show("relay_failures_in_a_row", state.failures)
            show("relay_seal_tokens", state.tokens)
            show("relay_buffer_limit_bytes", state.limits.max_buffer_bytes)
            samples |= self._buffers(state) | self._partitions(state, now)
        return samples

    def _buffers(self, state: RelayState) -> Samples:
        held = {name: Counter[str]() for name in ("bytes", "messages", "rows")}
        buffers = [item for p in state.partitions.values() for item in p.buffers.items()]
        for table, buffer in buffers:
            label = self._table(table)
            held["bytes"][label] += buffer.memory
            held["messages"][label] += buffer.messages
            held["rows"][label] += buffer.rows
        samples: Samples = {"relay_buffers": [(_NONE, float(len(buffers)))]}
        for name, count in held.items():
            samples[f"relay_buffer_{name}"] = [((t,), float(n)) for t, n in sorted(count.items())]
        return samples

    def _partitions(self, state: RelayState, now: float) -> Samples:
        samples: Samples = {}
        for index, partition in sorted(state.partitions.items()):
            for name, value in self._partition(index, partition, now):
                samples.setdefault(f"relay_partition_{name}", []).append(((str(index),), value))
        return samples

    def _partition(
        self, index: int, partition: Partition, now: float
    ) -> Iterable[tuple[str, float]]:
        yield "position", partition.position
        yield "floor", partition.floor
        yield "uncommitted_offsets", partition.position - partition.floor
        yield "epoch", partition.epoch
        yield "n", partition.n
        yield "marks", len(partition.marks)
        yield "buffers", len(partition.buffers)
        now_ms = self._vitals.now_ms()  # not the time of a record, which producers set as they like
        oldest_ms = min((b.opened_at_ms for b in partition.buffers.values()), default=now_ms)
        yield "oldest_seconds", max(0, now_ms - oldest_ms) / 1000
        yield "idle_seconds", now - self._vitals.moved_at.get(index, now)
        readable = self._statistics.readable().get(index)
        if readable is not None and readable.end >= 0:
            yield "end", readable.end
            left = 0 if readable.drained else max(0, readable.end - partition.position)
            yield "lag_offsets", left
