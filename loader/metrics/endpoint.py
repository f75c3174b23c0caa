"""`loader run --http`: /metrics, /healthz and /readyz, served by the driver.

Receives settings, and where the loader begins once that is known; gives an observer for the job and
the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import pyspark
from prometheus_client import CollectorRegistry, ProcessCollector

from loader.journal.source import Start
from loader.metrics.gauges import LoaderGauges
from loader.metrics.health import LoaderHealth, LoaderHealthLimits, liveness, readiness
from loader.metrics.ledger_watch import LedgerLook, LedgerWatch
from loader.metrics.recorder import LoaderRecorder
from relay.config.settings import Settings
from relay.program.health import Check, answer
from relay.program.metric import exposition, registry
from relay.program.serving import Route, Serving
from relay.version import __version__

QUERY_SECONDS = 300.0
"""Between two micro-batches. Spark says every ten seconds that there is nothing to do; its first
micro-batch may take long to begin on a crowded cluster."""


class LoaderMonitor:
    """Serve everything that is known of one loader while it runs; a context manager.

    It serves from construction: who waits for a server at the start says so.

    Attributes:
        observer: for the job.
        address: that is served.
    """

    def __init__(self, listen: str, settings: Settings) -> None:
        metrics = registry()
        self.observer = LoaderRecorder(metrics)
        self._limits, self._app = limits(settings), settings.app
        info = (__version__, settings.app, pyspark.__version__)
        self._looking: LedgerWatch | None = None
        self._current = LoaderGauges(info, self.observer, self._latest, self._checks)
        metrics.register(self._current)
        ProcessCollector(registry=metrics)
        self._serving = Serving(listen, self._routes(metrics))
        self.address = self._serving.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.close()
        if self._looking is not None:
            self._looking.close()

    def look(self, start: Start) -> None:
        """Look at ledger and journal from now on."""
        self._looking = LedgerWatch(start)

    def _routes(self, metrics: CollectorRegistry) -> Mapping[str, Route]:
        facts = self._current.facts
        return {
            "/metrics": lambda _: exposition(metrics, self._app),
            "/healthz": lambda _: answer(liveness(facts(), self._limits)),
            "/readyz": lambda _: answer(readiness(facts())),
        }

    def _latest(self) -> LedgerLook | None:
        return None if self._looking is None else self._looking.latest

    def _checks(self, facts: LoaderHealth) -> tuple[Check, ...]:
        return (*liveness(facts, self._limits), *readiness(facts))


def limits(settings: Settings) -> LoaderHealthLimits:
    """Return the loader's limits: a round may hold several INSERTs, each as long as allowed."""
    longest = 3 * settings.loader.insert_timeout_seconds
    return LoaderHealthLimits(QUERY_SECONDS, longest, longest)
