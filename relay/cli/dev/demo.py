"""`relay demo`: runs the whole system on this machine with real rows, and kills it on the way."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

import click

from relay.dev.demo.run import run
from relay.program.console import console_of

PIPE_WIDTH = 110  # columns, where there is no terminal to ask


@click.command()
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of data and logs. Default: a temporary one, removed after a success.",
)
@click.option(
    "--keep", is_flag=True, help="Leave Kafka and ClickHouse running and print their addresses."
)
@click.option(
    "--rows", type=click.IntRange(10_000), help="Use about this many rows instead of all 367 687."
)
@click.option(
    "--seed", type=int, default=13, show_default=True, help="Seed of message sizes and order."
)
@click.pass_context
def demo(
    context: click.Context, directory: Path | None, rows: int | None, seed: int, *, keep: bool
) -> None:
    """Move every flight of 2013 from New York through Kafka into ClickHouse.

    Starts Kafka, ClickHouse, two relays and the loader on this machine, writes rows of five tables
    into one topic, and kills one relay and the loader with SIGKILL on the way. Then compares the
    rows in ClickHouse with the rows that were sent, one by one.

    \b
    Exit status: 0 every row is there exactly once · 1 it is not · 3 Java is missing ·
    130 interrupted.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    console = console_of(PIPE_WIDTH)
    chosen = directory or Path(tempfile.mkdtemp(prefix="relay-demo-"))
    arrived = False
    try:
        arrived = run(chosen.absolute(), rows, seed, console, keep=keep)
    finally:
        if directory is None and arrived and not keep:
            shutil.rmtree(chosen)
        elif not arrived:
            console.print(f"Logs are in {chosen}")
    click.echo(f"EXACTLY ONCE: {'yes' if arrived else 'no'}")
    context.exit(0 if arrived else 1)
