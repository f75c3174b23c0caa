"""What a consumer loses and doubles when its parts are killed, and how old its rows are.

Receives a consumer of an empty topic, feeds it at a steady rate, gives counts by direct queries.
Each part is killed once, at the moment when new rows have just become visible: then whatever a
consumer keeps apart from its rows is most likely not written yet. The aim is the same for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from relay.errors import Unavailable
from tests.bench import consumers, contenders, measure, price
from tests.bench import source as sources
from tests.bench.contenders import Process
from tests.bench.feed import Fed, Order
from tests.bench.figures import quantile
from tests.bench.rows import wrong
from tests.bench.usage import Meter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.consumers import Consumer, Scene

WARM_UP_SECONDS = 8.0
KILL_SECONDS = 8.0
"""So long rows come around each kill."""
_BEFORE_SECONDS = 2.0
"""Rows come so long before a kill."""
_EVERY_SECONDS = 0.1
_QUIET_SECONDS = 3.0
"""Nothing may come any more after that, where all is there."""
_LOST_SECONDS = 30.0
"""Nothing may come any more after that, where rows are missing."""
_PATIENCE_SECONDS = 60.0
_ENDING_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Count:
    """Rows of all tables, against those that were sent."""

    lost: int
    doubled: int
    wrong: int

    def since(self, before: Count) -> Count:
        """What has come on top."""
        return Count(
            self.lost - before.lost, self.doubled - before.doubled, self.wrong - before.wrong
        )


@dataclass(frozen=True, slots=True)
class Kill:
    """What came of one.

    Attributes:
        pause: the longest time without new rows, in seconds, from the kill on.
    """

    part: str
    count: Count
    pause: float


@dataclass(slots=True)
class Steady:
    """A consumer at a steady rate, and its kills."""

    p50: float = 0.0
    p99: float = 0.0
    cores: dict[str, float] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)


def count(scene: Scene, ends: list[int]) -> Count:
    """By direct queries.

    Args:
        scene: whose tables are counted.
        ends: number behind each table's last row that was sent.
    """
    lost = doubled = other = 0
    for table, end in zip(scene.shape.names, ends, strict=True):
        found, different, beyond, strange = scene.client.query(
            f"SELECT count(), uniqExact(event), countIf(event >= {end}), "
            f"countIf({wrong(scene.shape)}) FROM {table}"
        ).result_rows[0]
        lost += end - different + beyond
        doubled += found - different
        other += beyond + strange
    return Count(lost, doubled, other)


class Pause:
    """The longest time without new rows; looked at often.

    Args:
        since: when rows came last.
        rows: that were visible then; None: whatever is visible at the first look is new.
    """

    def __init__(self, since: float, rows: int | None = None) -> None:
        self._moved, self._rows = since, rows
        self.longest = 0.0

    def look(self, rows: int) -> float:
        """Note what is visible now; return for how long nothing has come."""
        now = time.monotonic()
        if rows != self._rows:
            self.longest = max(self.longest, now - self._moved)
            self._rows, self._moved = rows, now
        return now - self._moved


class Feeder:
    """Feeds one topic, each time behind all that was sent before."""

    def __init__(self, consumer: Consumer, rate: float, per_message: int) -> None:
        self._consumer, self._rate, self._per_message = consumer, rate, per_message
        self.ends = [0] * consumer.scene.shape.tables
        self._turn = 0

    @property
    def rows(self) -> int:
        """Sent by now."""
        return sum(self.ends)

    @property
    def messages(self) -> int:
        """Sent by now."""
        return self.rows // self._per_message

    @contextmanager
    def feeding(self, seconds: float) -> Iterator[Process]:
        """A feed that runs; at the end it has sent all of it."""
        scene = self._consumer.scene
        self._turn += 1
        name = f"{self._consumer.topic}-feed-{self._turn}"
        order = Order(
            *(scene.stack.bootstrap, self._consumer.topic, scene.shape, scene.partitions),
            *(self._rate, self._per_message, seconds, self.ends, self._consumer.delimited),
        )
        log = scene.directory / f"{name}.log"
        file = order.written(scene.directory / f"{name}.json")
        with Process(contenders.feed(file, log)) as process:
            yield process
            process.wait(_ENDING_SECONDS)
        self.ends = Fed.read(log).ends


def steady(
    consumer: Consumer,
    rate: float,
    per_message: int,
    seconds: float,
    progress: Callable[[str], None],
) -> Steady:
    """Warm, then watched for so long, then killed part by part."""
    scene = consumer.scene
    sources.create_topics(scene.stack.bootstrap, [consumer.topic], scene.partitions)
    consumers.tables(consumer)
    found = Steady()
    feeder = Feeder(consumer, rate, per_message)
    with consumer:
        progress(f"{consumer.name}: {rate:,.0f} rows/s for {seconds:g} s")
        with feeder.feeding(WARM_UP_SECONDS):
            pass
        _settle(consumer, feeder)
        _watch(consumer, feeder, seconds, per_message, found)
        before = count(scene, feeder.ends)
        for part, kill in consumer.kills().items():
            pause = _killed(consumer, feeder, kill)
            now = count(scene, feeder.ends)
            found.kills.append(Kill(part, now.since(before), pause))
            progress(f"{consumer.name}, {part} killed: {found.kills[-1]}")
            before = now
    return found


def _watch(
    consumer: Consumer, feeder: Feeder, seconds: float, per_message: int, found: Steady
) -> None:
    """How old rows are when they are visible, and what all programs use meanwhile."""
    scene = consumer.scene
    written = sources.EndOffsets(scene.stack.bootstrap, [consumer.topic])
    samples: list[tuple[float, int, int]] = []

    def look() -> None:
        shown = scene.visible() // per_message  # first: what is visible has been written
        samples.append((time.monotonic(), written(), shown))

    try:
        look()
        meter = Meter({**scene.pids(), **consumer.pids()})
        began = time.monotonic()
        with feeder.feeding(seconds) as feed:
            while not feed.ended:
                look()
                time.sleep(_EVERY_SECONDS)  # the interval of looks
            took = time.monotonic() - began
            found.cores = {name: used / took for name, used in meter.core_seconds().items()}
        while scene.visible() < feeder.rows and time.monotonic() < began + took + _LOST_SECONDS:
            look()
            time.sleep(_EVERY_SECONDS)  # as above
        look()
    finally:
        written.close()
    ages = price.ages(samples)
    found.p50, found.p99 = quantile(ages, 0.5), quantile(ages, 0.99)
    _settle(consumer, feeder)


def _killed(consumer: Consumer, feeder: Feeder, kill: Callable[[], None]) -> float:
    """One kill while rows come, and the pause that came of it."""
    scene = consumer.scene
    with feeder.feeding(KILL_SECONDS) as feed:
        first = scene.visible()
        measure.samples(scene.visible, first + 1, consumer.still_runs, _EVERY_SECONDS)
        time.sleep(_BEFORE_SECONDS)  # rows go on coming
        # As often as it can be asked: the moment counts.
        looks = measure.samples(scene.visible, scene.visible() + 1, consumer.still_runs, 0.0)
        kill()
        pause = Pause(*looks[-1])
        while not feed.ended:
            pause.look(scene.visible())
            time.sleep(_EVERY_SECONDS)  # the interval of looks
    _settle(consumer, feeder, pause)
    return pause.longest


def _settle(consumer: Consumer, feeder: Feeder, pause: Pause | None = None) -> None:
    """Wait until all is read and nothing comes any more; `pause` is looked at meanwhile.

    Raises:
        Unavailable: the consumer does not read on.
    """
    scene = consumer.scene
    read = consumers.committed(consumer)
    pause = pause or Pause(time.monotonic())
    all_read, asked = False, 0.0
    while True:
        consumer.still_runs()
        now = time.monotonic()
        rows = scene.visible()
        still = pause.look(rows)
        if now - asked > 1.0:
            all_read, asked = read() >= feeder.messages, now
        there = rows >= feeder.rows
        if all_read and still > (_QUIET_SECONDS if there else _LOST_SECONDS):
            return
        if still > _PATIENCE_SECONDS:
            raise Unavailable(
                f"{consumer.name} stands still at {rows:,} of {feeder.rows:,} rows",
                "Run it again with --keep DIRECTORY and look into the logs there.",
            )
        time.sleep(_EVERY_SECONDS)  # the interval of looks
