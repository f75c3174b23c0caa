"""The demo from beginning to end.

    servers up ─► tables ─► two relays, loader ─► feed ─┬─► kill one relay and the loader
                                                        └─► start them again ─► all there?
    ─► end everything ─► compare contents

Gives whether every row is in ClickHouse exactly once. Whatever happens, nothing it started
runs on, but for the servers with `keep`.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewTopic,
)
from rich.console import Console

from relay.config import kafka_clients, settings_file
from relay.config.settings import Settings
from relay.dev import clickhouse
from relay.dev import stack as servers
from relay.dev.demo import data, show
from relay.dev.demo.feed import Feed
from relay.dev.demo.programs import Program
from relay.dev.demo.show import Bars
from relay.dev.demo.transfer import STOP_SECONDS, Demo, differences
from relay.dev.demo.watch import JournalWatch, Warehouse
from relay.dev.stack import Stack
from relay.errors import ConfigError, NotExactlyOnce, Unavailable
from relay.produce.row_producer import RowProducer

FILE = "relay.toml"
PARTITIONS = 4
MEMBERS = ("demo-0", "demo-1")

CONFIGURATION = """\
app = "demo"

[kafka]
bootstrap = "{bootstrap}"

[source]
topic = "nycflights13"
start = "earliest"

[clickhouse]
{clickhouse}
[loader]
checkpoint = "{checkpoint}"
master = "local[2]"
"""


def run(directory: Path, rows: int | None, seed: int, console: Console, *, keep: bool) -> bool:
    """Run the demo; return whether every row arrived exactly once.

    About `rows` rows are sent; None: all. `keep` leaves the servers running.

    Raises:
        RelayError: the demo could not begin: Java or a server is missing, a wrong directory.
    """
    counts = data.row_counts(rows)
    sent = {table.full_name: data.read(table).slice(0, counts[table.name]) for table in data.TABLES}
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / FILE).exists():
        raise ConfigError(
            f"{directory} holds an earlier demo",
            "name another directory, or remove this one (after `relay dev down --directory` it)",
        )
    arrived, leave_up = True, False
    with contextlib.ExitStack() as cleanup:
        for number in (signal.SIGINT, signal.SIGTERM):
            cleanup.callback(signal.signal, number, signal.getsignal(number))
        cleanup.callback(lambda: leave_up or servers.down(directory))
        _ignore_signals(cleanup)
        stack = servers.up(directory, progress=console.print)
        file = _configure(stack, directory)
        with _assembled(_quiet(settings_file.load(file)), file, sent, seed, console) as demo:
            with demo.bars.progress:
                try:
                    demo.move()
                except (NotExactlyOnce, Unavailable) as problem:
                    console.print(f"[bold red]{problem.message}[/]\n{problem.next_step}")
                    arrived = False
                demo.stop()
                demo.look()  # what the last transaction of a relay showed
            compared = differences(demo.warehouse, sent)
            console.print(show.results(compared, dict(demo.journal.blocks)))
            least = 100 if rows is None else 10
            console.print(show.answer(demo.warehouse.rows(show.ANSWER.format(least=least)), least))
            if demo.journal.dead:
                console.print(f"{demo.journal.dead} messages became dead letters")
        if keep:
            _how_to_reach(stack, file, console)
            leave_up = True
        return arrived and not demo.journal.dead and all(d.none for d in compared.values())


def _ignore_signals(cleanup: contextlib.ExitStack) -> None:
    """Ignore signals from the beginning of the clean-up: a second Ctrl-C must not cut it short."""
    for number in (signal.SIGINT, signal.SIGTERM):
        cleanup.callback(signal.signal, number, signal.SIG_IGN)


def _configure(stack: Stack, directory: Path) -> Path:
    """Write the app's TOML file, which a user may go on with after --keep."""
    file = directory / FILE
    file.write_text(
        CONFIGURATION.format(
            bootstrap=stack.bootstrap,
            clickhouse=clickhouse.toml(stack.clickhouse),
            checkpoint=directory / "checkpoint",
        ),
        encoding="utf-8",
    )
    return file


def _quiet(settings: Settings) -> Settings:
    """Silence the demo's own clients: they outlive the broker by a moment and would say so."""
    client = {**settings.kafka.client, "log_level": 0}
    return settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"client": client})}
    )


@contextlib.contextmanager
def _assembled(
    settings: Settings, file: Path, sent: dict[str, pa.Table], seed: int, console: Console
) -> Iterator[Demo]:
    """Make tables, topic, programs and feed; end all of them afterwards."""
    with contextlib.ExitStack() as cleanup:
        warehouse = Warehouse(settings)
        cleanup.callback(warehouse.close)
        warehouse.create()
        admin = AdminClient(kafka_clients.admin(settings.kafka))
        topic = NewTopic(settings.source.topic, num_partitions=PARTITIONS, replication_factor=1)
        admin.create_topics([topic])[settings.source.topic].result(timeout=30)
        producer = cleanup.enter_context(RowProducer.from_settings(settings))
        feed = Feed(producer, sent, seed)
        console.print(
            f"{sum(feed.total.values()):,} rows of {len(sent)} tables in {feed.messages:,} messages"
        )
        journal = JournalWatch(settings, PARTITIONS)
        cleanup.callback(journal.close)
        logs = file.parent
        relays = [
            Program(name, ["relay", "run", str(file), "--member", name], logs / f"{name}.log")
            for name in MEMBERS
        ]
        loader = Program("loader", ["loader", "run", str(file)], logs / "loader.log")
        bars = Bars(console, sum(feed.total.values()))
        demo = Demo(settings, console, feed, journal, warehouse, relays, loader, bars)
        for program in (*relays, loader):
            cleanup.callback(program.stop, STOP_SECONDS)
        cleanup.callback(feed.stop)
        _ignore_signals(cleanup)
        for program in (*relays, loader):
            program.start()
        yield demo


def _how_to_reach(stack: Stack, file: Path, console: Console) -> None:
    console.print(
        f"Kafka is at {stack.bootstrap}, ClickHouse at {stack.clickhouse.url} "
        f"(user {stack.clickhouse.user}, password in {stack.clickhouse.password_file}), "
        f"configuration and logs in {file.parent}.\n"
        f"  relay run {file}        moves on\n"
        f"  relay dev sql --directory {file.parent}    looks at the rows\n"
        f"  relay dev down --directory {file.parent}   ends both",
        soft_wrap=True,
    )
