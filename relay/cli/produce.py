"""`relay produce`: writes rows of files into the source topic."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from relay.cli.arguments import RENAMING
from relay.cli.options import config_argument, settings_of
from relay.produce.arrow_columns import repeated
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import SUFFIXES, RowFile
from relay.produce.send_files import Cut, spooled, total_bytes
from relay.produce.send_files import produce as send_files
from relay.program.config_argument import ConfiguredCommand
from relay.program.json_output import print_json


@click.command(cls=ConfiguredCommand)
@config_argument
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--table", required=True, help="Table that the rows are for, as database.table in ClickHouse."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(sorted({*SUFFIXES.values(), "json"})),
    help="Format of the files; json and jsonl both read an array of objects or one object per "
    "line. Default: by each file's suffix, of standard input by its first bytes.",
)
@click.option(
    "--rows-per-message",
    default="200",
    show_default=True,
    help="Rows in each message: a number, or a range such as 1..200 to draw from.",
)
@click.option("--seed", type=int, help="Seed for drawing from a range of --rows-per-message.")
@click.option(
    "--null",
    "nulls",
    multiple=True,
    default=("",),
    metavar="TEXT",
    help="CSV: unquoted text that means null, for example NA; repeatable. Default: the empty text.",
)
@click.option(
    "--allow-missing", is_flag=True, help="Let columns that a file lacks take their DEFAULT."
)
@click.option(
    "--ignore-unknown-columns",
    "ignore_unknown",
    is_flag=True,
    help="Leave out columns of a file that the table does not have.",
)
@click.option(
    "--column",
    "columns",
    type=RENAMING,
    multiple=True,
    metavar="FILE=TABLE",
    help="Put the file's column FILE into the table's column TABLE; repeatable.",
)
@click.option(
    "--date-format",
    default="",
    metavar="FORMAT",
    help="Format of dates and times in the files, in strptime's letters: %d/%m/%Y.",
)
@click.option("--dry-run", is_flag=True, help="Check the files and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was sent as one JSON object.")
def produce(  # noqa: PLR0913 - one per option
    config_file: Path,
    files: tuple[Path, ...],
    table: str,
    format_: str | None,
    rows_per_message: str,
    seed: int | None,
    *,
    nulls: tuple[str, ...],
    columns: tuple[tuple[str, str], ...],
    date_format: str,
    allow_missing: bool,
    ignore_unknown: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the rows of Parquet, CSV or JSON files into the source topic of an app.

    The command finds columns by name; --column renames one. It checks all files before it sends
    anything. Row numbers in errors count from 1, without a CSV header. In a CSV file of one column
    a blank line is a row. Dates and times are ISO 8601 (UTC if they name no zone), dates also
    2012/1/31 or Jan 31 2012, or as --date-format says; the row message's own numbers are read,
    too. A FILE of `-` is standard input, which is kept in a temporary file until it is sent.

    If the command fails or is interrupted while it sends, it says how many rows were delivered. It
    cannot continue: run again, it sends all rows, and those come twice.

    \b
    relay produce --table shop.orders orders.csv
    relay produce --table shop.orders --null NA --date-format %d/%m/%Y orders.csv more.csv
    relay produce --table shop.orders --column 'Order ID=id' --ignore-unknown-columns orders.csv
    curl -s https://example.org/orders.json | relay produce --table shop.orders -
    Exit status: 0 the brokers acknowledged every row · 2 a file or an option is wrong, nothing
    was sent · 4 a server did not answer · 5 a server refused.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, with words
    settings = settings_of(config_file)
    cut = Cut.parse(rows_per_message)
    if doubled := repeated(of_file for of_file, _ in columns):
        raise click.UsageError(f"--column renames {', '.join(map(repr, doubled))} twice")
    options = FileOptions(nulls, allow_missing, ignore_unknown, date_format, columns)
    chosen = "jsonl" if format_ == "json" else format_
    with (
        _open_sources(files, chosen, options) as sources,
        _show_progress(total_bytes(sources)) as progress,
    ):
        random = np.random.default_rng(seed)
        produced = send_files(settings, table, sources, cut, random, progress, dry_run=dry_run)
    topic = settings.source.topic
    if as_json:
        print_json({"table": table, "topic": topic, **asdict(produced), "sent": not dry_run})
    elif dry_run:
        click.echo(f"{produced.rows} rows of {table} are valid; nothing was sent")
    else:
        click.echo(f"{produced.rows} rows of {table} in {produced.messages} messages to {topic}")


@contextlib.contextmanager
def _open_sources(
    files: Sequence[Path], format_: str | None, options: FileOptions
) -> Iterator[list[RowFile]]:
    """The files, and standard input where one is `-`."""
    if [str(path) for path in files].count("-") > 1:
        raise click.UsageError(
            "- is given twice, and standard input can be read only once; give - once"
        )
    with contextlib.ExitStack() as opened:
        yield [
            opened.enter_context(spooled(sys.stdin.buffer, format_, options))
            if str(path) == "-"
            else RowFile.of(path, format_, options)
            for path in files
        ]


@contextlib.contextmanager
def _show_progress(size: int) -> Iterator[Callable[[str, int], None]]:
    """Bars on stderr for the bytes that are checked and sent."""
    columns = (
        TextColumn("{task.description:>6}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {step: bars.add_task(step, total=size) for step in ("check", "send")}
        yield lambda step, done: bars.update(tasks[step], completed=done)
