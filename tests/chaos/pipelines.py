"""`python -m tests.chaos pipelines`: two clusters in one configuration, kills of either side.

Two brokers, each a cluster by itself, one relay command and one loader over both, one table.
Again and again one side is taken away: its broker, its relay process, or both programs are killed.
While a broker is away, the other side's rows have to arrive. In the end each row is there once,
from its side, and `relay verify --deep` finds nothing.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import click
import psutil

from relay.dev import broker
from tests.chaos.clusters import CONFIG, SIDES, TOPIC, Clusters, started
from tests.chaos.sides import carry_out, side_options

FAULTS = ("broker", "relay", "programs")
COMMANDS = {name: [name, "run", CONFIG] for name in ("relay", "loader")}


@click.command()
@side_options
def pipelines(**options: Any) -> None:
    """Two clusters in one configuration: kills of either side, of its relay and of all programs."""

    def inflict(clusters: Clusters, chance: random.Random) -> str:
        name = fault(clusters, chance)
        pause = time.monotonic() + chance.uniform(0, 10)
        clusters.until(lambda: time.monotonic() > pause, "the pause")
        return name

    carry_out(lambda place: started(place, text, COMMANDS), inflict, options)


def text(addresses: dict[str, str], clickhouse_url: str) -> str:
    """The configuration file of both."""
    return f"""
app = "chaos"
[kafka]
[source]
topic = "{TOPIC}"
start = "earliest"
[clickhouse]
url = "{clickhouse_url}"
[block]
max_age_seconds = 0.5
[relay]
member = "m"
wait_for_servers_seconds = 2.0
session_timeout_seconds = 6.0
transaction_timeout_seconds = 5.0
[loader]
checkpoint = "checkpoint"
master = "local[1]"
[pipelines]
east.kafka.bootstrap = "{addresses["east"]}"
west.kafka.bootstrap = "{addresses["west"]}"
"""


def fault(clusters: Clusters, chance: random.Random) -> str:
    """One, and what has to be true while it lasts; its name."""
    kind = chance.choice(FAULTS)
    side = clusters.sides[chance.choice(SIDES)]
    other = next(name for name in SIDES if name != side.name)
    if kind == "broker":
        broker.kill(side.directory, 0)
        seen = clusters.rows(other)
        clusters.until(
            lambda: clusters.rows(other) > seen + 100, f"rows of {other} without {side.name}"
        )
        broker.start(side.directory, 0)
    elif kind == "relay":
        for process in relays_of(clusters, side.name):
            process.kill()
    else:
        for program in clusters.programs.values():
            program.kill()
    return f"{kind} of {side.name}" if kind != "programs" else "both programs"


def relays_of(clusters: Clusters, side: str) -> list[psutil.Process]:
    """Its processes under the one command."""
    found = []
    for process in psutil.Process(clusters.programs["relay"].pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            words = process.cmdline()
            if "--pipeline" in words and words[words.index("--pipeline") + 1] == side:
                found.append(process)
    return found
