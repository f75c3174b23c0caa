"""Two brokers, each a cluster by itself, one or two ClickHouses, programs over them, the verdict.

Receives a Setup; `pipelines`, `shards` and `across` inflict the faults.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from relay.config.server_settings import ClickHouse
from relay.dev import broker, layout, stack
from tests import reach
from tests.broker.pipeline import create_topics, row_batch, wait_until
from tests.chaos.programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clickhouse_connect.driver.client import Client

SIDES = ("east", "west")
TABLE = "chaos.t"
PARTITIONS = 2
ARRIVE_SECONDS = 300.0
"""Until rows of a side are in the table, on a machine that does much besides."""
CONFIG = "CONFIG"


@dataclass(frozen=True)
class Setup:
    """What a campaign is made of.

    Attributes:
        text: of the configuration, from addresses of brokers and of ClickHouses by side.
        commands: by program; the configuration file's path is put in the place of CONFIG.
        lands: by side that gets rows, the side whose ClickHouse takes them.
        topics: of the sources, by side.
        made: of it all.
    """

    text: Callable[[Mapping[str, str], Mapping[str, ClickHouse]], str]
    commands: Mapping[str, Sequence[str]]
    lands: Mapping[str, str]
    topics: Mapping[str, str]
    made: type[Clusters]


@dataclass
class Side:
    """One cluster, what was sent to it, and the ClickHouse where that arrives."""

    name: str
    directory: Path
    topic: str
    producer: Producer
    client: Client
    next_id: int = 0

    def send(self, rows: int) -> None:
        """Waits in the producer while the broker is away."""
        ids = range(self.next_id, self.next_id + rows)
        self.next_id += rows
        partition = ids[0] // rows % PARTITIONS
        headers: list[tuple[str, str | bytes | None]] = [("table", TABLE)]
        self.producer.produce(self.topic, row_batch(ids), partition=partition, headers=headers)
        self.producer.poll(0)


@dataclass
class Clusters:
    """Both sides, and the programs over them."""

    config: Path
    sides: dict[str, Side]
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
        return int(self.sides[side].client.query(sql).result_rows[0][0])

    def app(self, side: str) -> str:
        """Whose blocks a side's rows are in."""
        return f"chaos-{side}"

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """While both sides get rows."""

        def step() -> bool:
            self.go_on()
            return holds()

        wait_until(step, what, ARRIVE_SECONDS)


@contextlib.contextmanager
def started(directory: Path, setup: Setup) -> Iterator[Clusters]:
    """Servers and programs in a directory; ended afterwards."""
    places = {side: directory / side for side in SIDES}
    try:
        brokers, engines = {}, {}
        for side, place in places.items():
            brokers[side] = broker_alone(place)
            if side in setup.lands.values():
                engines[side] = stack.up(place, progress=lambda _: None).clickhouse
                _make_table(engines[side])
            admin = AdminClient({"bootstrap.servers": brokers[side]})
            topic = setup.topics[side]
            create_topics(admin, NewTopic(topic, PARTITIONS, 1))
        config = directory / "relay.toml"
        config.write_text(setup.text(brokers, engines), encoding="utf-8")
        sides = {
            side: Side(
                side,
                places[side],
                setup.topics[side],
                producer(brokers[side]),
                reach.client(engines[lands]),
            )
            for side, lands in setup.lands.items()
        }
        programs = {
            name: Program(name, [str(config) if w == CONFIG else w for w in words], directory)
            for name, words in setup.commands.items()
        }
        try:
            yield setup.made(config, sides, programs)
        finally:
            for program in programs.values():
                program.stop()
    finally:
        for place in places.values():
            stack.down(place)


def broker_alone(place: Path, settings: str = "") -> str:
    """Starts a broker without ClickHouse, with settings of its own; its address."""
    plan, _ = layout.decide(place, 1, 0, 0)
    place.mkdir()
    layout.write(place, plan)
    (place / "extra.properties").write_text(settings, encoding="utf-8")
    broker.start(place, 0)
    return plan.bootstrap


def _make_table(clickhouse: ClickHouse) -> None:
    client = reach.client(clickhouse)
    client.command("CREATE DATABASE chaos")
    client.command(
        f"CREATE TABLE {TABLE} (id Int64, v String, _block String) ENGINE MergeTree ORDER BY id"
    )


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


def count(clusters: Clusters) -> int:
    """Rows that have arrived."""
    return sum(clusters.rows(name) for name in clusters.sides)


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

    while not there():  # a crowded loader may take long, but it gets on
        seen = count(clusters)
        wait_until(lambda seen=seen: there() or count(clusters) > seen, "all rows", ARRIVE_SECONDS)  # type: ignore[misc]
    sql = f"SELECT splitByChar(':', _block)[1], id, v, count() FROM {TABLE} GROUP BY ALL"
    found = Counter[tuple[str, int, str]]()
    for client in {side.client.uri: side.client for side in clusters.sides.values()}.values():
        found.update({row[:3]: row[3] for row in client.query(sql).result_rows})
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
