"""`python -m tests.bench wide`: what a core moves of large rows, from topic to table.

Receives a directory and sizes, starts one broker and one ClickHouse server, gives figures. Relay
and loader, as users run them, are warm: a fifth of the rows has passed through both. All others
come at one moment (tests.bench.backlog) and are worked off by the relay while the loader stands
still, then by the loader. Processor time is of a program with all its children, user and system.
In the end every row is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import consumers, endtoend, journal, measure, peers, servers
from tests.bench import source as sources
from tests.bench.backlog import Backlog, Size
from tests.bench.consumers import BROKER, SERVER, Product, Scene
from tests.bench.figures import Figure, medians
from tests.bench.paused import paused
from tests.bench.rows import LARGE, Shape
from tests.bench.usage import Meter, cpu_seconds, family

LIMIT = 100.0
"""MB of protobuf for each core-second of relay and loader together, by issue 31. ClickPipes
publishes 63 of JSON and 99 of Avro for rows of 1.6 kB."""
_EVERY_SECONDS = 0.1  # a question costs the engine, which is at work

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """What one program was measured by.

    Attributes:
        seconds: from when the rows came until it was done with them.
        used: core-seconds meanwhile, by program, servers too.
    """

    seconds: float
    used: dict[str, float]


@dataclass(frozen=True, slots=True)
class Round:
    """One backlog, moved and compared.

    Attributes:
        rows: that came at one moment.
        bytes: of these, as protobuf.
        merges: core-seconds of the server's after that, until it merged nothing any more.
        start: core-seconds of each program until the first fifth was through.
    """

    rows: int
    bytes: int
    relay: Part
    loader: Part
    merges: float
    start: dict[str, float]

    def figures(self) -> list[Figure]:
        """Megabytes by core and by second, and what the servers took."""
        size, relay, loader = self.bytes / 1e6, self.relay, self.loader
        own, others = relay.used["relay"], loader.used["loader"]
        unit, price = "MB/core-s", "core-s/GB"
        return [
            Figure("relay and loader together", size / (own + others), unit, "higher", LIMIT),
            Figure("relay", size / own, unit, "higher"),
            Figure("loader", size / others, unit, "higher"),
            Figure("relay, by the clock", size / relay.seconds, "MB/s", "higher"),
            Figure("loader, by the clock", size / loader.seconds, "MB/s", "higher"),
            Figure("broker, for the relay", relay.used[BROKER] / size * 1e3, price, "lower"),
            Figure("broker, for the loader", loader.used[BROKER] / size * 1e3, price, "lower"),
            Figure("ClickHouse's engine", loader.used[SERVER] / size * 1e3, price, "lower"),
            Figure("its merges afterwards", self.merges / size * 1e3, price),
            *(
                Figure(f"start and first fifth of the {name}", used, "core-s", "lower")
                for name, used in self.start.items()
            ),
            Figure("a row as protobuf", self.bytes / self.rows, "bytes"),
        ]


def size_of(total: int, per_message: int, tables: int, partitions: int) -> Size:
    """A topic of so many rows, of which a fifth can be read at once."""
    warm = sources.share(measure.WARM_UP * total / tables, per_message)
    left = max(per_message * tables, total - warm * tables)
    shape = Shape(LARGE, tables)
    return Size(left, per_message, shape, partitions, False, warm // per_message)


def run(directory: Path, size: Size, runs: int, progress: Progress) -> list[Figure]:
    """Medians of so many rounds.

    Raises:
        NotExactlyOnce: a row is missing, doubled, or another.
    """
    rounds = []
    with servers.started(directory, progress) as stack:
        # Its archive of Spark's classes would be for the start, which does not count.
        scene = Scene(directory, stack, size.shape, size.partitions, directory / "unprepared")
        for turn in range(runs):
            topic = f"wide-{turn}"
            progress(f"filling {topic}: {sum(size.ends):,} rows, {size.per_message} per message")
            rounds.append(_round(scene, topic, size).figures())
            progress(f"round {turn + 1} of {runs}: " + _line(rounds[-1]))
    return medians(rounds)


def _round(scene: Scene, topic: str, size: Size) -> Round:
    backlog = Backlog(scene.stack.bootstrap, topic, size)
    product = Product(scene, topic)
    consumers.tables(product)
    first, every = size.warm * size.shape.tables, sum(size.ends)
    with product:
        measure.samples(scene.visible, first, product.still_runs, _EVERY_SECONDS)
        peers.merged(scene)
        start = {name: cpu_seconds(pid) for name, pid in product.pids().items()}
        with _loader_stands_still(product), _sealed(product, size) as sealed:
            measure.samples(sealed, first, product.still_runs)
            clock = _Clock(product)
            backlog.release()
            measure.samples(sealed, every, product.still_runs)
            relay = clock.part()
        clock = _Clock(product)
        measure.samples(scene.visible, every, product.still_runs, _EVERY_SECONDS)
        loader = clock.part()
        merges = peers.merged(scene)
    endtoend.judge(scene.client, size.shape, size.ends)
    sources.delete_topics(scene.stack.bootstrap, topic)
    return Round(sum(size.shares), backlog.bytes, relay, loader, merges, start)


class _Clock:
    """Runs from its making on."""

    def __init__(self, product: Product) -> None:
        self._meter = Meter({**product.pids(), **product.scene.pids()})
        self._began = time.monotonic()

    def part(self) -> Part:
        """Until now."""
        return Part(time.monotonic() - self._began, self._meter.core_seconds())


@contextmanager
def _loader_stands_still(product: Product) -> Iterator[None]:
    """Its Python, which looks for new blocks; the JVM goes on, as its heartbeats have to."""
    found = [one for one in family(product.pids()["loader"]) if one.name() != "java"]
    with paused(found):
        yield


@contextmanager
def _sealed(product: Product, size: Size) -> Iterator[journal.VisibleRows]:
    """Rows in the relay's blocks."""
    bootstrap = product.scene.stack.bootstrap
    rows = journal.VisibleRows(bootstrap, product.app, size.partitions)
    try:
        yield rows
    finally:
        rows.close()


def _line(figures: list[Figure]) -> str:
    return ", ".join(f"{one.name} {one.value:,.0f} {one.unit}" for one in figures[:5])
