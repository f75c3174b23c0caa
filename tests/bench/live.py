"""Relay and loader at work as users run them, and rows that come at a steady rate.

Receives a directory and a Load, starts servers, both programs and the feed, gives them warm: rows
have passed through all of it, and nothing is left to do. Scenarios measure from there on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clickhouse_connect.driver.client import Client

from relay.dev.stack import Stack
from tests.bench import config, contenders, loader_bench, measure, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Process
from tests.bench.feed import Fed, Order
from tests.bench.rows import Shape
from tests.bench.usage import Meter

APP = "live"
TOPIC = "source"
WARM_UP_SECONDS = 60.0
"""So long rows come at the full rate before the measurement: code is compiled by then, and Spark's
workers have started. The broker's JVM compiles with a fifth of a core for 75 s from its start (0.15
to 0.35 in five samples of 15 s), with a twentieth and less from 90 s on."""
_EVERY_SECONDS = 0.5  # each question costs the engine 5 ms; nobody asks here when a row came
_ENDING_SECONDS = 150.0  # the feed's flush waits 120 s for the broker
_BAD, _OF = 7, 100
"""Every hundredth message of a table is bad, from its eighth on."""


@dataclass(frozen=True, slots=True)
class Load:
    """What comes in.

    Attributes:
        rate: rows per second over all tables.
        per_message: rows in each message.
        seconds: measured.
        processes: of the relay.
        block: settings of `[block]` that are not the defaults.
        relay: settings of `[relay]` that are not the defaults.
        bad: a CHECK of the last table refuses one of a hundred of its messages.
    """

    rate: float
    seconds: float
    per_message: int = 100
    shape: Shape = rows.DEFAULT
    partitions: int = sources.PARTITIONS
    processes: int = 1
    block: Mapping[str, float] = field(default_factory=dict)
    relay: Mapping[str, float] = field(default_factory=dict)
    bad: bool = False

    @property
    def good(self) -> tuple[str, ...]:
        """Tables that take every row."""
        names = tuple(self.shape.names)
        return names[:-1] if self.bad else names

    def taken(self, ends: list[int]) -> int:
        """Rows that all tables take of so many each."""
        if not self.bad:
            return sum(ends)
        messages = range(_BAD, -(-ends[-1] // self.per_message), _OF)
        return sum(ends) - len(messages) * self.per_message


class Feed:
    """A feed that runs; `fed` when it has ended."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self._log = log

    def fed(self) -> Fed:
        """What it sent; waits for its end."""
        self.process.wait(_ENDING_SECONDS)
        return Fed.read(self._log)


class Live:
    """The running programs, and what has been sent to them so far.

    Attributes:
        started: when the relay was started, in Unix time: nothing was in ClickHouse before.
    """

    def __init__(
        self,
        directory: Path,
        stack: Stack,
        load: Load,
        relay: Process,
        loader: Process,
        started: float,
    ) -> None:
        self.stack = stack
        self.load = load
        self.started = started
        self.client: Client = servers.client(stack)
        self.visible = loader_bench.visible_rows(self.client)
        self.ends = [0] * load.shape.tables
        self._directory = directory
        self._relay, self._loader = relay, loader

    def still_run(self) -> None:
        """Raises if one has ended."""
        self._relay.still_runs()
        self._loader.still_runs()

    @contextmanager
    def feeding(self, seconds: float, name: str) -> Iterator[Feed]:
        """A feed behind all that was sent before."""
        load = self.load
        order = Order(
            *(self.stack.bootstrap, TOPIC, load.shape, load.partitions),
            *(load.rate, load.per_message, seconds, self.ends),
        )
        file = order.written(self._directory / f"{name}.json")
        contender = contenders.feed(file, self._directory / f"{name}.log")
        with Process(contender) as process:
            yield Feed(process, contender.log)

    def arrived(self, fed: Fed) -> None:
        """Waits until all that was sent is in ClickHouse."""
        self.ends = fed.ends
        measure.samples(self.visible, self.load.taken(fed.ends), self.still_run, _EVERY_SECONDS)

    def meter(self) -> Meter:
        """Of everything that runs, but for the feed: that tells what it used itself."""
        endpoint, broker = self.stack.clickhouse_pid, self.stack.broker_pids[0]
        assert endpoint is not None and broker is not None, "servers.started gives running ones"  # noqa: PT018
        return Meter({
            "relay": self._relay.pid,
            "loader": self._loader.pid,
            "broker": broker,
            "ClickHouse's engine": endpoint,
        })  # fmt: skip


@contextmanager
def running(
    directory: Path, load: Load, progress: Callable[[str], None], *, block_column: bool
) -> Iterator[Live]:
    """Servers and programs, warm."""
    with servers.started(directory, progress) as stack:
        rows.create_tables(servers.client(stack), load.shape, block_column=block_column)
        if load.bad:
            message = f"intDiv(event, {load.per_message})"
            servers.client(stack).command(
                f"ALTER TABLE {load.shape.names[-1]} "
                f"ADD CONSTRAINT rare CHECK {message} % {_OF} != {_BAD}"
            )
        sources.create_topics(stack.bootstrap, [TOPIC], load.partitions)
        file = config.write(directory, APP, stack, TOPIC, load.block, relay=load.relay)
        relay = contenders.relay(file, APP, directory / "relay.log", load.processes)
        loader = contenders.loader(file, APP, directory / "loader.log", once=False)
        started = time.time()
        with Process(relay) as relaying, Process(loader) as loading:
            live = Live(directory, stack, load, relaying, loading, started)
            progress(f"warming up: {load.rate:,.0f} rows/s for {WARM_UP_SECONDS:g} s")
            with live.feeding(WARM_UP_SECONDS, "warm-up") as feed:
                fed = feed.fed()
            live.arrived(fed)
            yield live
