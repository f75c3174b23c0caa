"""`python -m tests.chaos pipelines` and `shards`: two clusters in one configuration.

Two brokers, each a cluster by itself, one relay command and one loader over both. With `pipelines`
both sides' rows go into one table; with `shards` each side is an app with a topic and a ClickHouse
of its own. Again and again a part of one side is taken away: its broker, its ClickHouse, its relay
process, or both programs are killed. While a server is away, the other side's rows have to arrive.
In the end each row is there once, from its side, and `relay verify --deep` finds nothing.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import psutil

from relay.config.server_settings import ClickHouse
from relay.dev import broker, process, stack
from relay.dev.clickhouse import toml
from tests.chaos.clusters import CONFIG, SIDES, Clusters, Setup, started
from tests.chaos.sides import carry_out, side_options

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMANDS = {name: [name, "run", CONFIG] for name in ("relay", "loader")}
TOPICS = dict.fromkeys(SIDES, "rows")
SHARD_TOPICS = {side: f"rows-{side}" for side in SIDES}


@click.command()
@side_options
def pipelines(**options: Any) -> None:
    """Two clusters in one configuration: kills of either side, of its relay and of all programs."""
    setup = Setup(text, COMMANDS, dict.fromkeys(SIDES, "west"), TOPICS, Clusters)
    carry_out(lambda place: started(place, setup), _inflict(ONE_TABLE), options)


@click.command()
@side_options
def shards(**options: Any) -> None:
    """As pipelines, each with a topic and a ClickHouse of its own, which is killed as well."""
    own = {side: side for side in SIDES}
    setup = Setup(text_of_shards, COMMANDS, own, SHARD_TOPICS, Clusters)
    carry_out(lambda place: started(place, setup), _inflict(SHARDS), options)


def text(brokers: Mapping[str, str], engines: Mapping[str, ClickHouse]) -> str:
    """The configuration file of both, into one table."""
    return f"""
app = "chaos"
[kafka]
[source]
topic = "{TOPICS["west"]}"
start = "earliest"
[clickhouse]
{toml(engines["west"])}[block]
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
east.kafka.bootstrap = "{brokers["east"]}"
west.kafka.bootstrap = "{brokers["west"]}"
"""


def text_of_shards(brokers: Mapping[str, str], engines: Mapping[str, ClickHouse]) -> str:
    """The same, each with a topic and a ClickHouse of its own."""
    return text(brokers, engines) + "".join(
        f'{side}.source.topic = "{SHARD_TOPICS[side]}"\n'
        + "".join(f"{side}.clickhouse.{line}\n" for line in toml(engines[side]).splitlines())
        for side in SIDES
    )


def _inflict(faults: Mapping[str, Fault]) -> Callable[[Clusters, random.Random], str]:
    def inflict(clusters: Clusters, chance: random.Random) -> str:
        kind = chance.choice(list(faults))
        side = chance.choice(SIDES)
        faults[kind](clusters, side)
        pause = time.monotonic() + chance.uniform(0, 10)
        clusters.until(lambda: time.monotonic() > pause, "the pause")
        return f"{kind} of {side}" if faults[kind] is not _kill_programs else kind

    return inflict


def _kill_broker(clusters: Clusters, side: str) -> None:
    place = clusters.sides[side].directory
    broker.kill(place, 0)
    _goes_on_without(clusters, side)
    broker.start(place, 0)


def _kill_clickhouse(clusters: Clusters, side: str) -> None:
    place = clusters.sides[side].directory
    process.end(place, stack.CLICKHOUSE, kill=True)
    _goes_on_without(clusters, side)
    stack.up(place, progress=lambda _: None)


def _goes_on_without(clusters: Clusters, side: str) -> None:
    other = next(name for name in SIDES if name != side)
    seen = clusters.rows(other)
    clusters.until(lambda: clusters.rows(other) > seen + 100, f"rows of {other} without {side}")


def _kill_relay(clusters: Clusters, side: str) -> None:
    for one in relays_of(clusters, side):
        one.kill()


def _kill_programs(clusters: Clusters, _side: str) -> None:
    for program in clusters.programs.values():
        program.kill()


Fault = Callable[[Clusters, str], None]
ONE_TABLE: dict[str, Fault] = {
    "broker": _kill_broker,
    "relay": _kill_relay,
    "both programs": _kill_programs,
}
SHARDS: dict[str, Fault] = {**ONE_TABLE, "clickhouse": _kill_clickhouse}


def relays_of(clusters: Clusters, side: str) -> list[psutil.Process]:
    """Its processes under the one command."""
    found = []
    for child in psutil.Process(clusters.programs["relay"].pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            words = child.cmdline()
            if "--pipeline" in words and words[words.index("--pipeline") + 1] == side:
                found.append(child)
    return found
