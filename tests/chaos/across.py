"""`python -m tests.chaos across`: the source in one cluster, all that relays write in another.

Two brokers, each a cluster by itself: `east` has the source and the relays' group, `west` block
topics, journal and dead letters. Two relays and a loader. Again and again a broker of either side
is killed, a relay is, or one sleeps inside a transaction until the other has taken over. In the
end each row is there once, and `relay verify --deep` finds nothing.
"""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING, Any

import click
import psutil

from relay.config.server_settings import ClickHouse
from relay.dev import broker
from tests.chaos.clusters import CONFIG, SIDES, Clusters, Setup, started
from tests.chaos.pipelines import TOPICS
from tests.chaos.pipelines import text as of_two_pipelines
from tests.chaos.sides import carry_out, side_options

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE, TARGET = SIDES
RELAYS = ("a", "b")
FAULTS = ("broker of the source", "broker of the target", "kill", "sleep", "sleep in", "programs")
INSIDE = ("after_fence", "before_produce", "before_write_journal", "before_commit", "after_commit")
"""Where a relay falls asleep: as it takes over, or in its transaction."""
SESSION_SECONDS = 6.0


class Across(Clusters):
    """One app."""

    def app(self, _side: str) -> str:
        return "chaos"

    def progress(self, what: str) -> None:
        """More rows than there could be on their way."""
        seen = self.rows(SOURCE)
        self.until(lambda: self.rows(SOURCE) > seen + 200, f"rows {what}")


def text(brokers: Mapping[str, str], engines: Mapping[str, ClickHouse]) -> str:
    """The configuration file."""
    shared = of_two_pipelines(brokers, engines).partition("[pipelines]")[0]
    kafka = f'[kafka]\nbootstrap = "{brokers[TARGET]}"\n'
    source = f'[source.kafka]\nbootstrap = "{brokers[SOURCE]}"\n'
    return shared.replace("[kafka]\n", kafka) + source


def commands(without: str) -> dict[str, list[str]]:
    """Of the programs; relays without this guard, if one is named (tests.broker.unguarded)."""
    relay = ["tests.broker.unguarded", without] if without else ["relay"]
    relays = {f"relay-{m}": [*relay, "run", CONFIG, "--member", m] for m in RELAYS}
    return {**relays, "loader": ["loader", "run", CONFIG]}


def fault(clusters: Across, chance: random.Random) -> str:
    """One, and progress after it; its name."""
    kind = chance.choice(FAULTS)
    relay = clusters.programs[f"relay-{chance.choice(RELAYS)}"]
    directory = clusters.config.parent
    if kind.startswith("broker"):
        place = directory / (SOURCE if kind.endswith("source") else TARGET)
        broker.kill(place, 0)
        end = time.monotonic() + chance.uniform(0, 15)
        clusters.until(lambda: time.monotonic() > end, "the end of the outage")
        broker.start(place, 0)
    elif kind == "kill":
        relay.kill()
    elif kind == "sleep":
        relay.signal(signal.SIGSTOP)
        _taken_over(clusters)
        relay.signal(signal.SIGCONT)
    elif kind == "sleep in":
        kind = f"sleep {(point := chance.choice(INSIDE))}"
        relay.kill()
        relay.tend()
        relay.start(failpoint=f"{point}:stop:{1 if point == 'after_fence' else 3}")
        clusters.until(lambda: not relay.runs() or _stopped(relay.pid), f"{relay.name} {kind}s")
        _taken_over(clusters)
        relay.signal(signal.SIGCONT)
    else:
        for program in clusters.programs.values():
            program.kill()
    clusters.progress(f"after {kind}")
    return kind


def _taken_over(clusters: Across) -> None:
    """Past the session, when the other relay has what the sleeping one owned."""
    end = time.monotonic() + SESSION_SECONDS
    clusters.until(lambda: time.monotonic() > end, "the end of the session")
    clusters.progress("by the other relay")


def _stopped(pid: int | None) -> bool:
    try:
        return pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


@click.command()
@side_options
@click.option("--without", default="", help="A guard that relays run without: it must be red.")
def across(without: str, **options: Any) -> None:
    """From one cluster into another: kills of either side's broker, of relays, and sleepers."""

    def inflict(clusters: Clusters, chance: random.Random) -> str:
        assert isinstance(clusters, Across)
        return fault(clusters, chance)

    setup = Setup(text, commands(without), {SOURCE: TARGET}, TOPICS, Across)
    carry_out(lambda place: started(place, setup), inflict, options)
