"""`relay status`: how an app stands now, on one screen."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click
from rich.console import Console

from relay import config
from relay.cli import statustext
from relay.cli.options import config_argument
from relay.cli.stopping import stopped_by_signal
from relay.console import console_of
from relay.errors import Unavailable
from relay.view import look, screen

WIDTH = 160  # columns, where there is no terminal to ask


@click.command()
@config_argument
@click.option(
    "--watch",
    type=click.FloatRange(min=0.2),
    metavar="SECONDS",
    help="Show it again after so many seconds, until SIGTERM or Ctrl-C.",
)
@click.option(
    "--records",
    type=click.IntRange(min=0),
    default=look.RECORDS,
    show_default=True,
    help="How far back in each journal partition to read, in offsets; 0 reads all.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per screen.")
def status(config_file: Path, watch: float | None, records: int, *, as_json: bool) -> None:
    """Show how the app stands: who relays what, what waits where, and what went wrong.

    Members and their partitions; per source partition the lag in messages and the distance
    from floor to position; per table the age of the oldest row that is sealed and not in
    ClickHouse, blocks that wait, are parked or discarded, dead letters; the rates of the last
    minute, and the last anomaly in the journal that was read. Needs no answer from a relay or
    loader, and shows what Kafka says when ClickHouse is away. Changes nothing.

    \b
    relay status relay.toml
    relay status relay.toml --watch 2
    relay status relay.toml --json | jq '.tables[] | {table, lag_seconds}'
    """
    settings = config.load(config_file)
    console = console_of(WIDTH)
    with contextlib.closing(look.Look(settings, records)) as looking:
        if watch is None:
            _show(console, looking.screen(), as_json=as_json)
            return
        stop = stopped_by_signal()
        while not stop.is_set():
            try:
                found = looking.screen()
            except Unavailable as error:
                click.echo(f"waiting: {error.message}", err=True)
            else:
                if not as_json:
                    console.clear()
                _show(console, found, as_json=as_json)
            stop.wait(watch)


def _show(console: Console, found: screen.Screen, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(screen.as_json(found), ensure_ascii=False))
        return
    for part in statustext.whole(found):
        console.print(part)
