"""`python -m tests.bench relay`: the relay beside Kafka Streams and the client's own ceiling.

Receives a directory and sizes, starts a broker and a ClickHouse endpoint of its own,
gives results. All contenders read the same topic on the same broker, one at a time,
taking turns; what each has written is checked and removed before the next. Quix Streams, which
handles each message in Python, reads fewer of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relay.dev.stack import Stack
from relay.errors import NotExactlyOnce
from tests.bench import config, contenders, journal, quix, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Contender, Process
from tests.bench.measure import Result, Run, watch
from tests.bench.rows import Shape
from tests.bench.source import Source
from tests.bench.usage import Meter

SHAPES = (1, 100)
"""Rows per message."""
PER_MESSAGE_FACTOR = 5
"""So many times as many rows at 100 per message, as they are that much faster: runs of
about equal length, long beside the second for which a buffer may wait."""
RELAY_PROCESSES = (1, 2)
"""The better one counts: the machine has two cores."""
STREAM_THREADS = (1, 2)
QUIX_PROCESSES = (1, 2)
QUIX_SHARE = max(SHAPES) // PER_MESSAGE_FACTOR
"""At 1 row per message it gets one row of so many: as many messages as at 100."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A contender to be made anew for each run.

    Attributes:
        source: what it reads.
        make: from the run's app name.
        check: from the app name; raises if the output is not all there.
    """

    name: str
    role: str
    source: Source
    make: Callable[[str], Contender]
    check: Callable[[str], None]


def run(
    directory: Path,
    total: int,
    runs: int,
    progress: Progress,
    shape: Shape = rows.DEFAULT,
    *,
    with_quix: bool = False,
    beside: Path | None = None,
) -> list[Result]:
    """1 and 100 rows per message, all contenders, `runs` rounds.

    `beside`: the checkout of another version of the product, which stands in for the peers; a run
    that does not count goes ahead of the rounds.
    """
    classes = [] if beside else contenders.compile_streams(directory, progress)
    python = quix.install(directory, progress) if with_quix else None
    with servers.started(directory, progress) as stack:
        rows.create_tables(servers.client(stack), shape)
        results = []
        for per_message in SHAPES:
            fill = partial(_filled, stack, per_message, shape, progress)
            wanted = total * (PER_MESSAGE_FACTOR if per_message > 1 else 1)
            source = fill(f"source.{per_message}", wanted)
            kinds = relay_kinds(stack, source, directory)
            if beside:
                # A broker that has just started takes twice the processor time for the first run,
                # which would always be this version's.
                one_run(kinds[0], f"warm{per_message}")
                kinds += relay_kinds(stack, source, directory, beside)
            else:
                kinds += streams_kinds(source, classes, directory)
                kinds.append(passthrough_kind(source, directory))
            if python is not None:
                few = source
                if per_message == 1:
                    few = fill(f"{source.topic}.few", total // QUIX_SHARE)
                kinds += quix_kinds(few, python, directory)
            results += take_turns(kinds, runs, progress)
            sources.delete_topics(stack.bootstrap, source.topic)
        return results


def _filled(
    stack: Stack, per_message: int, shape: Shape, progress: Progress, topic: str, wanted: int
) -> Source:
    progress(f"filling {topic}: {wanted:,} rows, {per_message} per message")
    return sources.fill(stack.bootstrap, topic, wanted, per_message, shape=shape)


def take_turns(kinds: list[Kind], runs: int, progress: Progress) -> list[Result]:
    """Each contender once per round, every second round backwards."""
    measured: dict[str, list[Run]] = {kind.name: [] for kind in kinds}
    for turn in range(runs):
        for number, kind in enumerate(kinds[:: -1 if turn % 2 else 1]):
            per_message = kind.source.per_message
            one = one_run(kind, f"b{per_message}-{turn}-{number}")
            measured[kind.name].append(one)
            progress(
                f"{per_message} per message, round {turn + 1} of {runs}, {kind.name}: "
                f"{one.rows_per_second:,.0f} rows/s ({one.seconds:.1f} s)"
            )
    return [
        Result(kind.name, kind.source.per_message, tuple(measured[kind.name]), kind.role)
        for kind in kinds
    ]


def one_run(
    kind: Kind, app: str, meters: list[Meter] | None = None, *, by_rows: bool = False
) -> Run:
    """One run, checked; its topics are gone afterwards.

    Args:
        kind: who runs.
        app: of the run.
        meters: gets its meter, if given.
        by_rows: count the rows in a relay's blocks, and not the messages that it has committed.
    """
    contender, source = kind.make(app), kind.source
    if contender.outputs:
        sources.create_topics(source.bootstrap, contender.outputs, source.partitions)
    done: journal.VisibleRows | sources.CommittedOffsets
    if by_rows:
        done = journal.VisibleRows(source.bootstrap, app, source.partitions)
    else:
        done = sources.CommittedOffsets(
            source.bootstrap, contender.group, source.topic, source.partitions
        )
    total = source.rows if by_rows else source.messages
    os.sync()  # else what the contender before has left to the disk costs this one's time
    try:
        with Process(contender) as process:
            meter = Meter({"relay": process.pid})

            def still_runs() -> None:
                process.still_runs()
                if meters is not None:
                    meter.look()

            measured = watch(done, total, source.rows, still_runs, process.started)
            if meters is not None:
                meters.append(meter)
        kind.check(app)
    finally:
        done.close()
        sources.delete_topics(source.bootstrap, contender.prefix)
    return measured


def relay_kinds(
    stack: Stack, source: Source, directory: Path, checkout: Path = contenders.ROOT
) -> list[Kind]:
    """The product with default settings, once per process count."""
    return [
        relay_kind(stack, source, directory, processes, checkout=checkout)
        for processes in RELAY_PROCESSES
    ]


def relay_kind(
    stack: Stack,
    source: Source,
    directory: Path,
    processes: int,
    block: Mapping[str, float] | None = None,
    relay: Mapping[str, float] | None = None,
    checkout: Path = contenders.ROOT,
) -> Kind:
    """The product in so many processes; `block` and `relay` hold settings that differ.

    `checkout`: of the version that runs; another one than this is a peer.
    """

    def make(app: str) -> Contender:
        file = config.write(directory, app, stack, source.topic, block, relay=relay)
        log = directory / f"{app}.log"
        return contenders.relay(file, app, log, processes, checkout=checkout)

    def check(app: str) -> None:
        journal.check(source.bootstrap, app, source)

    name = f"block-relay, {processes} process{'es' if processes > 1 else ''}"
    if checkout == contenders.ROOT:
        return Kind(name, "product", source, make, check)
    return Kind(f"{name}, of {checkout.name}", "peer", source, make, check)


def streams_kinds(source: Source, classes: list[Path], directory: Path) -> list[Kind]:
    """The peer, once per thread count."""

    def kind(threads: int) -> Kind:
        def make(app: str) -> Contender:
            return contenders.streams(source, app, threads, classes, directory)

        name = f"Kafka Streams, {threads} thread{'s' if threads > 1 else ''}"
        return Kind(name, "peer", source, make, lambda app: _all_routed(source, app))

    return [kind(threads) for threads in STREAM_THREADS]


def quix_kinds(source: Source, python: Path, directory: Path) -> list[Kind]:
    """The peer in Python, once per process count."""

    def kind(processes: int) -> Kind:
        def make(app: str) -> Contender:
            return quix.contender(source, app, processes, python, directory)

        name = f"Quix Streams, {processes} process{'es' if processes > 1 else ''}"
        return Kind(name, "other", source, make, lambda app: _all_routed(source, app))

    return [kind(processes) for processes in QUIX_PROCESSES]


def passthrough_kind(
    source: Source,
    directory: Path,
    commit_seconds: float = contenders.RELAY_COMMIT_SECONDS,
    *,
    exactly_once: bool = True,
) -> Kind:
    """The ceiling."""

    def make(app: str) -> Contender:
        log = directory / f"{app}.log"
        return contenders.passthrough(source, app, log, commit_seconds, exactly_once=exactly_once)

    return Kind(
        "confluent-kafka pass-through",
        "ceiling",
        source,
        make,
        lambda app: _all_written(source, [f"{app}.out"]),
    )


def _all_routed(source: Source, app: str) -> None:
    _all_written(source, contenders.routed(source, app))


def _all_written(source: Source, topics: list[str]) -> None:
    """A lower bound: end offsets also count transaction markers."""
    written = sources.end_offsets(source.bootstrap, topics)
    if written < source.messages:
        raise NotExactlyOnce(
            f"{written} records in {', '.join(topics)} for {source.messages} messages"
        )
