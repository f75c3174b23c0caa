"""A case of an alert: what Prometheus scraped, and whether the alert fires then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from relay.program.metric import SECONDS

Series = Mapping[str, str]
"""A time series to its values, as promtool writes them, one for each scrape.

`0x20 1x60` are 21 zeros, of which the last is scraped after five minutes, and 61 ones.
"""
SCRAPE_SECONDS = 15
"""As k8s/components/monitoring/service-monitor.yaml has it."""
SCRAPE_MINUTES = SCRAPE_SECONDS / 60

A, B = 'app="shop",instance="10.0.0.1:9464"', 'app="bank",instance="10.0.0.2:9464"'
LOADER = 'app="shop",instance="10.0.0.1:9465"'
ALIVE = "1x80"  # twenty minutes of scrapes
GONE = "1x20 stale"  # after five minutes: Prometheus notes it as soon as a scrape fails
BACK = "1x20 stale _x18 1x80"  # until ten minutes


class State(Enum):
    """Of an alert, as Prometheus has it in ALERTS: to be silent is to have neither."""

    FIRES = "firing"
    WAITS = "pending"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        series: all that was scraped.
        alert: its name, or a pattern of names, and labels after a brace: `RelayDown{app="shop"}`.
        moments: minutes since the first scrape to the state that it has then.
    """

    series: Series
    alert: str
    moments: Mapping[float, State]

    @property
    def rule(self) -> str:
        """The alert's name."""
        return self.alert.partition("{")[0]

    @property
    def labels(self) -> str:
        """Which of its alerts are looked at; empty: all."""
        return self.alert.partition("{")[2].removesuffix("}")

    @property
    def selects(self) -> str:
        """Matchers of ALERTS."""
        return ",".join(filter(None, (f'alertname=~"{self.rule}"', self.labels)))


def fires(series: Series, alert: str, minutes: float) -> Case:
    """It fires."""
    return Case(series, alert, {minutes: State.FIRES})


def after(series: Series, alert: str, minutes: float) -> Case:
    """Both sides of a rule's `for`: a scrape before those minutes it waits, then it fires."""
    return Case(series, alert, {minutes - SCRAPE_MINUTES: State.WAITS, minutes: State.FIRES})


def passes(series: Series, alert: str, minutes: float) -> Case:
    """It ends before `for` is over: a scrape before those minutes it waits, then it is silent."""
    return Case(series, alert, {minutes - SCRAPE_MINUTES: State.WAITS, minutes: State.SILENT})


def silent(series: Series, alert: str, *minutes: float) -> Case:
    """It does not fire, and is not about to."""
    return Case(series, alert, dict.fromkeys(minutes, State.SILENT))


def scraped(metric: str, values: str, of: str = A, **labels: str) -> dict[str, str]:
    """One time series.

    Args:
        metric: its name.
        values: of each scrape.
        of: app and instance.
        labels: the others.
    """
    also = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {f"{metric}{{{of}{also}}}": values}


def histogram(
    metric: str, of_each: Mapping[float, int], scrapes: int, of: str = A, **labels: str
) -> dict[str, str]:
    """Buckets of durations that come evenly.

    Args:
        metric: its name, without `_bucket`.
        of_each: seconds to how many took that long, between two scrapes.
        scrapes: how many.
        of: app and instance.
        labels: the others, but `le`.
    """
    found: dict[str, str] = {}
    for bound in (*SECONDS, float("inf")):
        within = sum(count for seconds, count in of_each.items() if seconds <= bound)
        le = f"{bound:g}".replace("inf", "+Inf")
        found |= scraped(f"{metric}_bucket", f"0+{within}x{scrapes}", of, **labels, le=le)
    return found


def relay(app: str, member: str, instance: str, values: str) -> dict[str, str]:
    """One that runs, scraped at `instance`."""
    return scraped("relay_info", values, f'app="{app}",instance="{instance}"', member=member)


def programs(values: str, of: str = A) -> dict[str, str]:
    """All three programs of one app, in the little that rules ask of each."""
    return beside(
        scraped("relay_info", values, of, member="a"),
        scraped("loader_info", values, of),
        scraped("verifier_rounds_total", values, of),
    )


def beside(*some: Series) -> dict[str, str]:
    """All of them; of the same series the last."""
    return {name: values for one in some for name, values in one.items()}
