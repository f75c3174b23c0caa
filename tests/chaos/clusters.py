"""`python -m tests.chaos pipelines`: two clusters in one configuration, kills of either side.

Two brokers, each a cluster by itself, one relay command and one loader over both, one table.
Again and again one side is taken away: its broker, its relay process, or both programs are killed.
While a broker is away, the other side's rows have to arrive. In the end each row is there once,
from its side, and `relay verify --deep` finds nothing.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import clickhouse_connect
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from relay.dev import broker, layout, stack
from tests.broker.pipeline import row_batch, wait_until
from tests.chaos.programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clickhouse_connect.driver.client import Client

SIDES = ("east", "west")
TOPIC, TABLE = "rows", "chaos.t"
PARTITIONS = 2
ARRIVE_SECONDS = 300.0
"""Until rows of a side are in the table, on a machine that does much besides."""
FAULTS = ("broker", "relay", "programs")
CONFIG = "CONFIG"
COMMANDS = {name: [name, "run", CONFIG] for name in ("relay", "loader")}


@dataclass
class Side:
    """One cluster and what was sent to it."""

    name: str
    directory: Path
    bootstrap: str
    producer: Producer
    next_id: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def send(self, rows: int) -> None:
        """Waits in the producer while the broker is away."""
        ids = range(self.next_id, self.next_id + rows)
        self.next_id += rows
        partition = ids[0] // rows % PARTITIONS
        headers: list[tuple[str, str | bytes | None]] = [("table", TABLE)]
        self.producer.produce(TOPIC, row_batch(ids), partition=partition, headers=headers)
        self.producer.poll(0)


@dataclass
class Clusters:
    """Both sides, the programs over them, and the table."""

    config: Path
    sides: dict[str, Side]
    client: Client
    programs: dict[str, Program]

    def go_on(self) -> None:
        """A few rows to each side; what has ended is started again."""
        for side in self.sides.values():
            side.send(10)
        for program in self.programs.values():
            end = program.tend()
            assert end is None or end[1], f"{program.name} ended: {program.said()[-3000:]}"
            if not program.runs():
                program.start()

    def rows(self, side: str) -> int:
        """Of one side, in the table."""
        sql = f"SELECT count() FROM {TABLE} WHERE startsWith(_block, '{self.app(side)}:')"
        return int(self.client.query(sql).result_rows[0][0])

    def app(self, side: str) -> str:
        """Whose blocks a side's rows are in."""
        return f"chaos-{side}"

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """While both sides get rows."""

        def step() -> bool:
            self.go_on()
            return holds()

        wait_until(step, what, ARRIVE_SECONDS)

    def relays_of(self, side: str) -> list[psutil.Process]:
        """Its processes under the one command."""
        found = []
        for process in psutil.Process(self.programs["relay"].pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                words = process.cmdline()
                if "--pipeline" in words and words[words.index("--pipeline") + 1] == side:
                    found.append(process)
        return found


@contextlib.contextmanager
def started(
    directory: Path,
    text: Callable[[dict[str, str], str], str],
    commands: dict[str, list[str]],
    fed: tuple[str, ...] = SIDES,
    made: type[Clusters] = Clusters,
) -> Iterator[Clusters]:
    """Servers and programs in a directory; ended afterwards.

    Args:
        directory: for all files.
        text: of the configuration, from both sides' addresses and ClickHouse's.
        commands: by program; the configuration file's path is put in the place of CONFIG.
        fed: sides that get rows.
        made: from it all.
    """
    places = {side: directory / side for side in SIDES}
    try:
        found = stack.up(places["west"], progress=lambda _: None)
        plan, _ = layout.decide(places["east"], 1, 0, 0)
        places["east"].mkdir()
        layout.write(places["east"], plan)
        broker.start(places["east"], 0)
        addresses = {"east": plan.bootstrap, "west": found.bootstrap}
        for address in addresses.values():
            admin = AdminClient({"bootstrap.servers": address})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        client = clickhouse_connect.get_client(dsn=found.clickhouse_url)
        client.command("CREATE DATABASE chaos")
        client.command(
            f"CREATE TABLE {TABLE} (id Int64, v String, _block String) ENGINE MergeTree ORDER BY id"
        )
        config = directory / "relay.toml"
        config.write_text(text(addresses, found.clickhouse_url), encoding="utf-8")
        sides = {
            side: Side(side, places[side], addresses[side], producer(addresses[side]))
            for side in fed
        }
        programs = {
            name: Program(name, [str(config) if w == CONFIG else w for w in words], directory)
            for name, words in commands.items()
        }
        try:
            yield made(config, sides, client, programs)
        finally:
            for program in programs.values():
                program.stop()
    finally:
        for side, place in places.items():
            broker.kill(place, 0)
            if side == "west":
                stack.down(place)


def producer(bootstrap: str) -> Producer:
    """Keeps what it cannot send for as long as a campaign takes."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            "log_level": 2,
        }
    )


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
    side.faults[kind] += 1
    if kind == "broker":
        broker.kill(side.directory, 0)
        seen = clusters.rows(other)
        clusters.until(
            lambda: clusters.rows(other) > seen + 100, f"rows of {other} without {side.name}"
        )
        broker.start(side.directory, 0)
    elif kind == "relay":
        for process in clusters.relays_of(side.name):
            process.kill()
    else:
        for program in clusters.programs.values():
            program.kill()
    return f"{kind} of {side.name}" if kind != "programs" else "both programs"


def judge(clusters: Clusters) -> dict[str, Any]:
    """What there is at the end beside what was sent."""
    for side in clusters.sides.values():
        assert side.producer.flush(120) == 0, f"{side.name}: not all was acknowledged"
    sent = {name: side.next_id for name, side in clusters.sides.items()}

    def there() -> bool:
        for program in clusters.programs.values():
            program.tend()
            if not program.runs():
                program.start()
        return all(clusters.rows(name) >= number for name, number in sent.items())

    wait_until(there, "all rows", ARRIVE_SECONDS)
    sql = f"SELECT splitByChar(':', _block)[1], id, v, count() FROM {TABLE} GROUP BY ALL"
    found = Counter({row[:3]: row[3] for row in clusters.client.query(sql).result_rows})
    wanted = Counter(
        (clusters.app(name), i, f"v{i}") for name, number in sent.items() for i in range(number)
    )
    verify = [Path(sys.executable).parent / "relay", "verify", clusters.config, "--deep", "--json"]
    said = subprocess.run(verify, capture_output=True, text=True, timeout=600, check=False)
    return {
        "sent": sent,
        "missing": (wanted - found).total(),
        "too many": (found - wanted).total(),
        "verify": said.returncode,
        "said": [line for line in said.stdout.splitlines() if "anomaly" in line][:5],
    }


@click.command()
@click.option("--seconds", default=300.0, show_default=True, help="Of faults.")
@click.option("--seed", type=int, help="Repeats a schedule; default: a new one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def pipelines(seconds: float, seed: int | None, *, as_json: bool) -> None:
    """Two clusters in one configuration: kills of either side, of its relay and of all programs."""
    seed = random.randrange(1 << 31) if seed is None else seed
    chance, done = random.Random(seed), Counter[str]()
    with (
        tempfile.TemporaryDirectory(prefix="clusters") as directory,
        started(Path(directory), text, COMMANDS) as clusters,
    ):
        for name in SIDES:
            clusters.until(lambda name=name: clusters.rows(name) > 0, f"rows of {name}")  # type: ignore[misc]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            done[fault(clusters, chance)] += 1
            pause = time.monotonic() + chance.uniform(0, 10)
            clusters.until(lambda pause=pause: time.monotonic() > pause, "the pause")  # type: ignore[misc]
        verdict = judge(clusters)
    good = not (verdict["missing"] or verdict["too many"] or verdict["verify"])
    result = {"seed": seed, "faults": dict(done), **verdict, "good": good}
    click.echo(json.dumps(result, indent=None if as_json else 2))
    if not good:
        sys.exit(1)
