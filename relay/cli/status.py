"""`relay status`: shows the state of an app on one screen."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import click
from rich.console import Console

from relay.cli.arguments import TABLE
from relay.cli.options import config_argument, pipelines_of
from relay.cli.output import status as output_status
from relay.errors import Unavailable
from relay.operate.view import ask, start
from relay.operate.view import status as view_status
from relay.program.config_argument import ConfiguredCommand
from relay.program.console import console_of, print_parts
from relay.program.json_output import print_json
from relay.program.spelling import did_you_mean_table
from relay.program.waiting import stopped_by_signal

WIDTH = 160  # columns, where there is no terminal to ask


@click.command(cls=ConfiguredCommand)
@config_argument
@click.option(
    "--watch",
    type=click.FloatRange(min=0.2),
    metavar="SECONDS",
    help="Refresh the screen at this interval until SIGTERM or Ctrl-C.",
)
@click.option(
    "--records",
    type=click.IntRange(min=0),
    default=start.RECORDS,
    show_default=True,
    help="How many offsets to read back in each journal partition; 0 reads all.",
)
@click.option(
    "--table", "tables", type=TABLE, multiple=True, help="Show only this table; repeatable."
)
@click.option(
    "--all", "every", is_flag=True, help="Also show tables without recent rows, and every column."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per screen, with all tables."
)
def status(
    config_file: Path,
    watch: float | None,
    records: int,
    tables: tuple[str, ...],
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Show the state of the app: members, lag, waiting and parked blocks, dead letters.

    \b
    For the app:               members with their partitions, rates of the last minute, the last
                               anomaly in the journal
    For each source partition: lag in messages, messages in buffers
    For each table:            age of the oldest row that is not in ClickHouse yet, blocks that
                               wait, are parked or discarded, dead letters

    Problems are red, for example that no relay or no loader runs (`troubles` in --json). The
    command asks Kafka and ClickHouse only, so it works while relays and loaders are down, and
    shows what Kafka knows while ClickHouse is down. It changes nothing. The exit status is 0
    whatever the screen shows; use the alerts for alarms.

    \b
    relay status relay.toml
    relay status relay.toml --watch 2
    relay status relay.toml --table shop.orders
    relay status relay.toml --json | jq '.tables[] | {table, lag_seconds}'
    """
    style = ScreenStyle(console_of(WIDTH), tables, every=every or bool(tables), as_json=as_json)
    with contextlib.ExitStack() as stack:
        readers = {
            name: stack.enter_context(
                contextlib.closing(ask.StatusReader(settings, records, lasting=watch is not None))
            )
            for name, settings in pipelines_of(config_file)
        }
        # In parallel: a reader whose brokers are unavailable takes its time to say so.
        threads = stack.enter_context(ThreadPoolExecutor(len(readers)))
        if watch is None:
            errors = _show_all(style, _ask_all(threads, readers))
            for name, error in errors:
                if name:
                    click.echo(f"{name}: {error}", err=True)
            if errors:
                raise errors[0][1]
            return
        stop = stopped_by_signal()
        while not stop.is_set():
            screens = _ask_all(threads, readers)
            if not as_json and any(future.exception() is None for future in screens.values()):
                style.console.clear()
            for name, error in _show_all(style, screens):
                if not isinstance(error, Unavailable):
                    raise error
                click.echo(f"{name}{': ' if name else ''}waiting: {error.message}", err=True)
            stop.wait(watch)


@dataclass(frozen=True, slots=True)
class ScreenStyle:
    """How screens are printed: `tables` alone, empty: all; `every`: also those at rest."""

    console: Console
    tables: tuple[str, ...] = ()
    _: KW_ONLY
    every: bool = False
    as_json: bool = False

    def show(self, screen: view_status.Screen) -> None:
        """Print a screen."""
        if self.as_json:
            print_json(view_status.as_json(screen))
            return
        chosen = view_status.of_tables(screen, self.tables) if self.tables else screen
        parts = output_status.screen_parts(chosen, self.console.width, every=self.every)
        print_parts(self.console, parts)
        names = {row.table for row in screen.tables}
        for table in sorted(set(self.tables) - names):
            hint = did_you_mean_table(table, names)
            click.echo(f"no table {table} in the journal that was read, nor in the ledger{hint}")


def _ask_all(
    threads: ThreadPoolExecutor, readers: Mapping[str, ask.StatusReader]
) -> dict[str, Future[view_status.Screen]]:
    """Return a screen of each pipeline, or its error."""
    futures = {name: threads.submit(reader.screen) for name, reader in readers.items()}
    wait(futures.values())
    return futures


def _show_all(
    style: ScreenStyle, screens: Mapping[str, Future[view_status.Screen]]
) -> list[tuple[str, BaseException]]:
    """Print the screens, one under the other; return the errors, by pipeline."""
    errors = []
    for name, future in screens.items():
        error = future.exception()
        if error is None:
            style.show(future.result())
        else:
            errors.append((name, error))
    return errors
