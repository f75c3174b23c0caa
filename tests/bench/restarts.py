"""How long relay and loader take to start, behind a short past and behind a long one.

Receives a directory and two numbers of blocks, gives figures. The clock runs from the process's
start until the rows that came meanwhile are committed (relay) or queryable (loader); the apps take
turns, and a ratio is of one round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from clickhouse_connect.driver.client import Client

from relay.dev.stack import Stack
from tests.bench import config, contenders, loader_bench, longjournal, measure, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Contender, Process
from tests.bench.figures import Figure
from tests.bench.source import PARTITIONS

LIMIT = 1.2
"""Start-up behind a long past, in those behind a short one, by issue 8."""
_BLOCK = {"max_age_seconds": 0.05}
"""No start waits for a block's age."""
_EVERY_SECONDS = 0.02


@dataclass(slots=True)
class App:
    """One past, and the seconds that starts behind it took."""

    name: str
    file: Path
    past: longjournal.Past
    directory: Path
    sent: int = 0
    """Messages behind the past."""
    relay: list[float] = field(default_factory=list)
    loader: list[float] = field(default_factory=list)


def run(
    directory: Path, blocks: tuple[int, int], runs: int, progress: Callable[[str], None]
) -> list[Figure]:
    """Both pasts, `runs` rounds, the first round behind one start that does not count."""
    directory.mkdir()
    with servers.started(directory, progress) as stack:
        client = servers.client(stack)
        rows.create_tables(client)
        apps = [_app(directory, stack, many, progress) for many in blocks]
        for turn in range(-1, runs):
            for app in apps[:: -1 if turn % 2 else 1]:
                took = _starts(stack, client, app)
                progress(
                    f"{app.past.blocks:,} blocks: relay {took[0]:.2f} s, loader {took[1]:.2f} s"
                )
                if turn >= 0:
                    app.relay.append(took[0])
                    app.loader.append(took[1])
    return figures(apps)


def figures(apps: list[App]) -> list[Figure]:
    """Medians of both, and of the ratios of each round."""
    short, long = apps
    found = []
    for program in ("relay", "loader"):
        for app in apps:
            seconds = statistics.median(getattr(app, program))
            name = f"start of the {program} behind {app.past.blocks:,} blocks"
            found.append(Figure(name, seconds, "s", "lower"))
        ratios = [
            b / a for a, b in zip(getattr(short, program), getattr(long, program), strict=True)
        ]
        name = f"start of the {program}, long past / short past"
        found.append(Figure(name, statistics.median(ratios), "", "lower", LIMIT))
    return found


def _app(directory: Path, stack: Stack, blocks: int, progress: Callable[[str], None]) -> App:
    name = f"past-{blocks}"
    place = directory / name
    place.mkdir()
    file = config.write(place, name, stack, f"{name}.source", _BLOCK)
    past = longjournal.write(file, blocks)
    progress(f"{name}: {past.blocks:,} blocks in {past.records:,} records")
    return App(name, file, past, place)


def _starts(stack: Stack, client: Client, app: App) -> tuple[float, float]:
    """Seconds of one start of each."""
    lost: list[str] = []
    topic = f"{app.name}.source"
    producer = sources.make_producer(stack.bootstrap, lost)
    table = rows.TABLES[0]
    value = rows.messages(rows.codec(table), app.sent, 1, 1)[0]
    for partition in range(PARTITIONS):
        sources.produce(producer, topic, partition, value, sources.table_header(table))
    sources.flush(producer, topic, lost)
    app.sent += PARTITIONS
    visible = loader_bench.visible_rows(client)
    wanted = visible() + PARTITIONS
    log = app.directory / "relay.log"
    relay = contenders.relay(app.file, app.name, log)
    committed = sources.CommittedOffsets(stack.bootstrap, relay.group, topic)
    try:
        relayed = _until(relay, committed, app.past.messages + app.sent)
    finally:
        committed.close()
    loader = contenders.loader(app.file, app.name, app.directory / "loader.log", once=False)
    return relayed, _until(loader, visible, wanted)


def _until(contender: Contender, done: Callable[[], int], total: int) -> float:
    with Process(contender) as process:
        taken = measure.samples(done, total, process.still_runs, _EVERY_SECONDS)
        return taken[-1][0] - process.started
