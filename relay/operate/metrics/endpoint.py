"""`relay run --http`: /metrics, /healthz and /readyz of one relay."""

from __future__ import annotations

from collections.abc import Mapping

import confluent_kafka
from prometheus_client import ProcessCollector

from relay.config.settings import Settings
from relay.operate.metrics.gauges import RelayGauges
from relay.operate.metrics.recorder import RelayRecorder
from relay.operate.metrics.statistics import Statistics
from relay.operate.metrics.vitals import Vitals
from relay.program.health import Check, RelayHealthLimits, answer, liveness, readiness
from relay.program.metric import exposition, registry
from relay.program.serving import Route
from relay.version import __version__

POLL_SECONDS = 300.0
"""Without a poll or a try of a server that is away. librdkafka's own limit for a member
(max.poll.interval.ms) is as long, and the longest of one call is far below."""
PARTITION_SECONDS = 300.0
"""For which a partition may have messages that nobody polls, or buffers that should be blocks."""


class RelayMonitor:
    """Everything that is known of one relay while it runs; the relay tells it to `observer`."""

    def __init__(self, settings: Settings) -> None:
        self._registry, self._app = registry(), settings.app
        self._statistics = Statistics(settings.source.topic)
        self._vitals = Vitals(self._statistics)
        self._limits = limits(settings)
        self.observer = RelayRecorder(self._vitals, self._statistics, self._registry)
        info = (__version__, settings.app, settings.relay.member, confluent_kafka.libversion()[0])
        current = RelayGauges(info, self._vitals, self._statistics, self._checks)
        self._registry.register(current)
        ProcessCollector(registry=self._registry)

    def routes(self) -> Mapping[str, Route]:
        """Return the routes by path."""
        return {
            "/metrics": lambda _: exposition(self._registry, self._app),
            "/healthz": lambda _: answer(liveness(self._vitals.facts(), self._limits)),
            "/readyz": lambda _: answer(readiness(self._vitals.facts())),
        }

    def _checks(self) -> tuple[Check, ...]:
        facts = self._vitals.facts()
        return (*liveness(facts, self._limits), *readiness(facts))


def limits(settings: Settings) -> RelayHealthLimits:
    """Return the relay's."""
    # Three times: the coordinator has ended it at the first, and a call is given up at the second.
    transaction = 3 * settings.relay.transaction_timeout_seconds
    return RelayHealthLimits(POLL_SECONDS, transaction, PARTITION_SECONDS)
