"""What a metric is, declared once: made from it are the counter and its help.

Receives declarations, gives prometheus-client's objects. Labels whose values come from
producers are bounded here: Prometheus keeps each value it ever saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Upper bounds of most durations."""
SIZES = tuple(float(10**power * factor) for power in range(8) for factor in (1, 3))
"""Upper bounds of most counts and bytes: 1, 3, 10, 30, ... 30 million."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    """As Prometheus shows it; a counter's ends in `_total`."""
    kind: str
    """COUNTER, GAUGE or HISTOGRAM."""
    unit: str
    question: str
    """That it answers; also its help text."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds, of a histogram."""

    def labelled(self, *labels: str) -> Metric:
        """Return it with these labels behind its own."""
        return replace(self, labels=(*self.labels, *labels))


def counter(name: str, unit: str, question: str, *labels: str) -> Metric:
    """Declare a total since the process began."""
    return Metric(name, COUNTER, unit, question, labels)


def gauge(name: str, unit: str, question: str, *labels: str) -> Metric:
    """Declare a present value."""
    return Metric(name, GAUGE, unit, question, labels)


def seconds(name: str, question: str, *labels: str) -> Metric:
    """Declare a histogram of durations, in seconds."""
    return Metric(name, HISTOGRAM, "seconds", question, labels, SECONDS)


def sizes(name: str, unit: str, question: str, *labels: str) -> Metric:
    """Declare a histogram of sizes."""
    return Metric(name, HISTOGRAM, unit, question, labels, SIZES)


def registry() -> CollectorRegistry:
    """Return an empty registry for one program."""
    disable_created_metrics()  # type: ignore[no-untyped-call] # a series more for each counter
    return CollectorRegistry()


def made(metrics: Iterable[Metric], registry: CollectorRegistry) -> dict[str, Any]:
    """Make counters, gauges and histograms in the registry; return them by name."""
    classes: dict[str, Any] = {COUNTER: Counter, GAUGE: Gauge, HISTOGRAM: Histogram}
    by_name = {}
    for metric in metrics:
        more = {"buckets": metric.buckets} if metric.kind == HISTOGRAM else {}
        by_name[metric.name] = classes[metric.kind](
            metric.name, metric.question, metric.labels, registry=registry, **more
        )
    return by_name


class OfApp:
    """Show a registry with the label `app` on each sample: two apps may share a Prometheus."""

    def __init__(self, registry: CollectorRegistry, app: str) -> None:
        self._registry, self._app = registry, app

    def collect(self) -> Iterable[Any]:
        """Collect for prometheus-client; families are made anew, so they may be changed."""
        for family in self._registry.collect():
            family.samples = [
                sample._replace(labels={"app": self._app, **sample.labels})
                for sample in family.samples
            ]
            yield family


Samples = dict[str, list[tuple[tuple[str, ...], float]]]
"""Values by metric and labels, in the order of its label names."""


def families(metrics: Iterable[Metric], samples: Samples) -> Iterable[Any]:
    """Return the families of a collector that answers when asked; none without a sample."""
    for metric in metrics:
        if metric.name not in samples:
            continue
        of_kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
        family = of_kind(metric.name, metric.question, labels=metric.labels)
        for labels, value in samples[metric.name]:
            family.add_metric(labels, value)
        yield family


OTHERS = "(others)"
NAMELESS = "(none)"


class Bounded:
    """Values of one label, as many as `most`; all later ones share OTHERS.

    The name of a table stands in a producer's header: anyone who may write the source topic
    can invent them.
    """

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._known: dict[str, str] = {"": NAMELESS}

    def __call__(self, value: str) -> str:
        """Return the value, or OTHERS in its place."""
        if value not in self._known and len(self._known) > self._most:
            return OTHERS
        return self._known.setdefault(value, value)


Labelled = Mapping[str, Any]
"""prometheus-client's objects by the metric's name."""


def exposition(metrics: CollectorRegistry, app: str) -> tuple[int, str, bytes]:
    """Return the answer to a scrape: all metrics, each with the label `app`."""
    of_app: Any = OfApp(metrics, app)  # all that is asked of a registry here is to collect
    return 200, CONTENT_TYPE_LATEST, generate_latest(of_app)
