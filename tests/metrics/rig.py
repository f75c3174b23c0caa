"""A relay's metrics around the real core: no server, no thread, a clock that is set by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from relay.core import events as ev
from relay.core.step import step
from relay.operate.metrics.gauges import RelayGauges
from relay.operate.metrics.recorder import RelayRecorder
from relay.operate.metrics.statistics import Statistics
from relay.operate.metrics.vitals import Vitals
from relay.program.health import Check, RelayHealthLimits, liveness, readiness
from relay.program.metric import registry
from tests.core.build import limits, partition, result, with_limits

if TYPE_CHECKING:
    from relay.core.effects import Effect
    from relay.core.records import SealResult
    from relay.core.state import RelayState

TOPIC = "source"
LIMITS = RelayHealthLimits(poll_seconds=10, transaction_seconds=20, partition_seconds=30)
INFO = ("1.2.3", "shop", "relay-0", "2.16")


class Rig:
    """Attributes: `state`, the core's; `now`, seconds, of both clocks."""

    def __init__(self, state: RelayState | None = None) -> None:
        self.now = 100.0
        self.registry = registry()
        self.statistics = Statistics(TOPIC, lambda: self.now)
        self.vitals = Vitals(self.statistics, lambda: self.now, self.now_ms, self.now_ms)
        self.recorder = RelayRecorder(self.vitals, self.statistics, self.registry)
        self.registry.register(RelayGauges(INFO, self.vitals, self.statistics, self.checks))
        self.state = state or with_limits(limits(max_rows=2), p0=partition(), p1=partition())

    def now_ms(self) -> int:
        return round(self.now * 1000)

    def checks(self) -> tuple[Check, ...]:
        facts = self.vitals.facts()
        return (*liveness(facts, LIMITS), *readiness(facts))

    def failed(self) -> list[str]:
        """The checks that say no."""
        return [check.check for check in self.checks() if not check.ok]

    def step(self, event: ev.Event) -> tuple[Effect, ...]:
        """As the relay's shell does it."""
        before = self.state
        self.state, effects = step(before, event)
        self.recorder.stepped(before, event, self.state, effects)
        return effects

    def results(self, dead: int = 0) -> tuple[SealResult, ...]:
        """Of the open transaction's seals."""
        assert self.state.transaction is not None
        return tuple(result(seal, dead) for seal in self.state.transaction.seals)

    def through(self, *, clean: bool = True, dead: int = 0, seconds: float = 0.0) -> None:
        """The open transaction to its commit, each phase taking so long."""
        answers: list[ev.Event] = [
            ev.Begun(),
            ev.Produced(self.results(dead)),
            ev.JournalWritten({0: 40, 1: 50}),
            ev.OffsetsSent(),
            ev.Committed(clean),
        ]
        for answer in answers:
            self.now += seconds
            self.step(answer)

    def value(self, name: str, **labels: object) -> float | None:
        """As Prometheus would read it now."""
        return self.registry.get_sample_value(name, {k: str(v) for k, v in labels.items()})

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """All of it, by name and labels."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.registry.collect()
            for sample in family.samples
        }

    def hear(self, client: str, given: dict[str, Any]) -> None:
        """Statistics of a client."""
        self.statistics.take(client, json.dumps(given))


def consumer_statistics(
    *, end: int = 0, fetched: int = 0, queued: int = 0, state: str = "UP", partition: int = 0
) -> dict[str, Any]:
    """The little that health asks of a consumer's statistics: one broker leads one partition."""
    return {
        "type": "consumer",
        "brokers": {"b:1/1": {"nodeid": 1, "source": "learned", "state": state}},
        "topics": {
            TOPIC: {
                "partitions": {
                    str(partition): {
                        "partition": partition,
                        "desired": True,
                        "leader": 1,
                        "ls_offset": end,
                        "next_offset": fetched,
                        "fetchq_cnt": queued,
                    }
                }
            }
        },
    }
