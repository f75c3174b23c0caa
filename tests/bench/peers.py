"""`python -m tests.bench peers`: the product beside its peers, from topic to table.

Receives a directory and sizes, starts one broker and one ClickHouse server, gives figures. The
peers are ClickHouse's own Kafka engine and a loader in Go, which is left out where it cannot be
built. All read topics of the same rows, in turns. All rows come at one moment
(tests.bench.backlog), to a consumer that has shown that it is ready: its start is measured apart.
Core-seconds are those of all processes together, broker and server too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from relay.errors import MissingTool, NotExactlyOnce
from tests.bench import consumers, contenders, kills, measure, native_loader, servers
from tests.bench import source as sources
from tests.bench.backlog import Backlog, Size
from tests.bench.consumers import (
    SERVER,
    Consumer,
    Engine,
    LoneEngine,
    NativeLoader,
    Product,
    Scene,
)
from tests.bench.contenders import Process
from tests.bench.figures import Figure
from tests.bench.kills import Count, Steady
from tests.bench.rows import Shape
from tests.bench.usage import Meter, cpu_seconds

PARTS = ("rate", "kill")
_EVERY_SECONDS = 0.1  # a question costs the engine, which is what is measured
_MERGE_SECONDS = 20.0
_PREPARE_SECONDS = 240.0
_MILLION = 1e6

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything.

    Attributes:
        total: rows of each backlog.
        tables: one backlog for each number of tables.
        rate: rows a second of the steady feed.
        seconds: that it is watched.
    """

    total: int
    tables: tuple[int, ...]
    columns: int
    per_message: int
    partitions: int
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Rate:
    """One consumer and one backlog.

    Attributes:
        seconds: from the moment when the rows came until all were visible.
        used: core-seconds meanwhile, by program.
        merges: core-seconds of the server's, after that, until it merged nothing any more.
        start: seconds until the first rows were visible, and core-seconds.
    """

    consumer: str
    tables: int
    rows: int
    seconds: float
    used: dict[str, float]
    merges: float
    start: tuple[float, float]
    count: Count

    @property
    def per_second(self) -> float:
        """Rows."""
        return self.rows / self.seconds

    @property
    def price(self) -> float:
        """Core-seconds of all programs, for a million rows."""
        return sum(self.used.values()) / self.rows * _MILLION

    @property
    def whole_price(self) -> float:
        """The same, with the merges that came later."""
        return (sum(self.used.values()) + self.merges) / self.rows * _MILLION


@dataclass(slots=True)
class Outcome:
    """All that was measured.

    Attributes:
        left_out: why the loader in Go took no turn; "": it did.
    """

    rates: list[Rate] = field(default_factory=list)
    steady: dict[str, Steady] = field(default_factory=dict)
    starts: dict[str, tuple[float, float]] = field(default_factory=dict)
    left_out: str = ""


def run(
    directory: Path,
    sizes: Sizes,
    parts: Sequence[str],
    found: Outcome,
    progress: Progress,
    *,
    with_go: bool,
) -> None:
    """The parts asked for, product and peers in turns; each goes into `found` when it is done."""
    native = _native(sizes, found, progress, with_go=with_go)
    prepared = directory / "prepared"
    _prepare(directory, prepared, progress)
    shapes = [Shape(sizes.columns, tables) for tables in sizes.tables]
    with servers.started(directory, progress) as stack:
        scenes = [Scene(directory, stack, s, sizes.partitions, prepared, native) for s in shapes]
        if "rate" in parts:
            for scene in scenes:
                for kind in kinds(scene.shape.tables, native):
                    found.rates.append(_rate(scene, kind, sizes, found, progress))
        if "kill" in parts:
            for number, kind in enumerate(kinds(1, native)):
                consumer = kind(scenes[0], f"steady-{number}")
                found.steady[consumer.name] = kills.steady(
                    *(consumer, sizes.rate, sizes.per_message, sizes.seconds, progress)
                )


def kinds(tables: int, native: Path | None) -> list[type[Consumer]]:
    """Return who takes turns over so many tables, the loader in Go where it was built."""
    return [
        *(Product, Engine),
        *[LoneEngine] * (tables > 1),
        *[NativeLoader] * (native is not None),
    ]


def _native(sizes: Sizes, found: Outcome, progress: Progress, *, with_go: bool) -> Path | None:
    """The program of the loader in Go, or None and the reason."""
    try:
        if not with_go:
            found.left_out = "not wanted"
        elif sizes.columns != native_loader.COLUMNS:
            found.left_out = f"its rows have {native_loader.COLUMNS} columns"
        else:
            return native_loader.build(progress)
    except MissingTool as problem:
        found.left_out = str(problem)
    progress(f"{native_loader.NAME}, is left out: {found.left_out}")
    return None


def _prepare(directory: Path, prepared: Path, progress: Progress) -> None:
    progress("loader prepare: an archive of Spark's classes for this bench")
    with Process(contenders.prepare(prepared, directory / "prepare.log")) as process:
        process.wait(_PREPARE_SECONDS)


def _rate(
    scene: Scene, kind: type[Consumer], sizes: Sizes, found: Outcome, progress: Progress
) -> Rate:
    topic = f"backlog-{scene.shape.tables}-{kind.__name__.lower()}"
    consumer = kind(scene, topic)
    size = Size(*(sizes.total, sizes.per_message, scene.shape, scene.partitions), kind.delimited)
    progress(f"{consumer.name}, tables: {scene.shape.tables}, filling {sizes.total:,} rows")
    backlog = Backlog(scene.stack.bootstrap, topic, size)
    consumers.tables(consumer)
    before = cpu_seconds(scene.pids()[SERVER])
    began = time.monotonic()
    with consumer:
        warm = size.warm * scene.shape.tables
        measure.samples(scene.visible, warm, consumer.still_runs, _EVERY_SECONDS)
        own = sum(map(cpu_seconds, consumer.pids().values()))
        server = cpu_seconds(scene.pids()[SERVER]) - before
        start = (time.monotonic() - began, own + server)
        meter = Meter({**scene.pids(), **consumer.pids()})
        began = time.monotonic()
        backlog.release()
        all_rows = sum(size.ends)
        measure.samples(scene.visible, all_rows, consumer.still_runs, _EVERY_SECONDS)
        seconds, used = time.monotonic() - began, meter.core_seconds()
        merges = merged(scene)
        count = kills.count(scene, size.ends)
        if isinstance(consumer, Product) and not found.starts:
            found.starts.update(_starts(consumer, size, progress))
    sources.delete_topics(scene.stack.bootstrap, topic)
    rate = Rate(
        *(consumer.name, scene.shape.tables, sum(size.shares), seconds, used, merges, start, count)
    )
    progress(
        f"{consumer.name}, tables: {rate.tables}, {rate.per_second:,.0f} rows/s, "
        f"{rate.price:.2f} core-seconds a million, start {start[0]:.1f} s, {count}"
    )
    return rate


def merged(scene: Scene) -> float:
    """Wait until the server merges nothing any more; its core-seconds until then."""
    server = scene.pids()[SERVER]
    before = cpu_seconds(server)
    deadline = time.monotonic() + _MERGE_SECONDS
    still = 0
    while still < 5 and time.monotonic() < deadline:
        time.sleep(_EVERY_SECONDS)  # the interval of looks
        merging = scene.client.query("SELECT count() FROM system.merges").result_rows[0][0]
        still = 0 if merging else still + 1
    return cpu_seconds(server) - before


def _starts(consumer: Product, size: Size, progress: Progress) -> dict[str, tuple[float, float]]:
    """Seconds and core-seconds of the loader until it has loaded new rows, two ways."""
    found = {}
    scene = consumer.scene
    begin = max(size.ends)
    ways = {
        "start of the loader, prepared": scene.prepared,
        "start of the loader, not prepared": scene.directory / "unprepared",
    }
    for name, prefix in ways.items():
        consumer.end_loader()
        wanted = scene.visible() + size.warm * scene.shape.tables
        lost: list[str] = []
        producer = sources.make_producer(scene.stack.bootstrap, lost)
        sources.send(
            *(producer, consumer.topic, [size.warm] * scene.shape.tables, size.per_message),
            shape=size.shape,
            partitions=size.partitions,
            begin=begin,
        )
        sources.flush(producer, consumer.topic, lost)
        begin += size.warm
        process = consumer.start_loader(prefix)
        measure.samples(scene.visible, wanted, consumer.still_runs, _EVERY_SECONDS)
        found[name] = (time.monotonic() - process.started, cpu_seconds(process.pid))
        progress(f"{name}: {found[name][0]:.1f} s, {found[name][1]:.1f} core-seconds")
    return found


def judge(found: Outcome) -> None:
    """Refuse what the product promises not to do; the peers' counts are figures.

    Raises:
        NotExactlyOnce: the product lost or doubled a row, or changed its contents.
    """
    counts = [rate.count for rate in found.rates if rate.consumer == consumers.PRODUCT]
    if consumers.PRODUCT in found.steady:
        counts += [kill.count for kill in found.steady[consumers.PRODUCT].kills]
    bad = [one for one in counts if one != Count(0, 0, 0)]
    if bad:
        raise NotExactlyOnce(f"the product: {bad[0]}")


def figures(found: Outcome) -> list[Figure]:
    """All of it, each with the way that is better."""
    made: list[Figure] = []
    for rate in found.rates:
        name = f"{rate.consumer}, {rate.tables} table{'s' if rate.tables > 1 else ''}"
        made += [
            Figure(f"{name}: rate", rate.per_second, "rows/s", "higher"),
            Figure(f"{name}: price", rate.price, "core-s / million rows", "lower"),
            Figure(
                f"{name}: price with merges", rate.whole_price, "core-s / million rows", "lower"
            ),
            *(
                Figure(f"{name}: {part}", used / rate.rows * _MILLION, "core-s / million rows")
                for part, used in rate.used.items()
            ),
            Figure(f"{name}: start", rate.start[0], "s", "lower"),
            Figure(f"{name}: start, of cores", rate.start[1], "core-s", "lower"),
            *_counts(name, rate.count),
        ]
    for name, (seconds, used) in found.starts.items():
        made += [
            Figure(name, seconds, "s", "lower"),
            Figure(f"{name}, of cores", used, "core-s", "lower"),
        ]
    for name, steady in found.steady.items():
        made += [
            Figure(f"{name}: written to visible, p50", steady.p50, "s", "lower"),
            Figure(f"{name}: written to visible, p99", steady.p99, "s", "lower"),
            Figure(f"{name}: cores", sum(steady.cores.values()), "cores", "lower"),
        ]
        for kill in steady.kills:
            what = f"{name}, {kill.part} killed"
            made += _counts(what, kill.count)
            made.append(Figure(f"{what}: longest time without new rows", kill.pause, "s", "lower"))
    return made


def _counts(name: str, count: Count) -> list[Figure]:
    return [
        Figure(f"{name}: rows lost", count.lost, "rows", "lower"),
        Figure(f"{name}: rows doubled", count.doubled, "rows", "lower"),
        Figure(f"{name}: rows with other contents", count.wrong, "rows", "lower"),
    ]


def table(found: Outcome) -> Table:
    """What a reader wants to see first."""
    made = Table(title="from topic to table")
    if found.left_out:
        made.caption = f"{native_loader.NAME}, is left out: {found.left_out}"
    for name in (
        *("", "tables", "rows/s", "core-s per\nmillion rows", "start,\nseconds", "start,\ncore-s"),
        *("age p50, p99,\nseconds", "killed three times:\nlost, doubled"),
    ):
        made.add_column(name, justify="right" if name else "left")
    left = dict(found.steady)  # beside the first rates of each, which are of as many tables
    for rate in found.rates:
        made.add_row(
            *(rate.consumer, str(rate.tables), f"{rate.per_second:,.0f}", f"{rate.price:.2f}"),
            *(f"{rate.start[0]:.1f}", f"{rate.start[1]:.1f}"),
            *_steady_cells(left.pop(rate.consumer, None)),
        )
    for name, steady in left.items():
        made.add_row(name, "", "", "", "", "", *_steady_cells(steady))
    return made


def _steady_cells(steady: Steady | None) -> tuple[str, str]:
    if steady is None:
        return "", ""
    lost = sum(kill.count.lost for kill in steady.kills)
    doubled = sum(kill.count.doubled for kill in steady.kills)
    return f"{steady.p50:.2f}, {steady.p99:.2f}", f"{lost:,}, {doubled:,}"
