"""`relay produce`: rows of files into the source topic."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from relay.cli.options import config_argument, settings_of
from relay.produce.file_rows import SUFFIXES, RowFile
from relay.produce.send_files import Cut, total_bytes
from relay.produce.send_files import produce as send_files


@click.command()
@config_argument
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--table", required=True, help="database.table, as ClickHouse has it.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(sorted(set(SUFFIXES.values()))),
    help="Default: by suffix.",
)
@click.option(
    "--rows-per-message", default="200", show_default=True, help="N, or a range as 1..200."
)
@click.option("--seed", type=int, help="Of the sizes that a range of --rows-per-message draws.")
@click.option(
    "--null",
    "nulls",
    multiple=True,
    default=("",),
    metavar="TEXT",
    help="CSV: unquoted text that means null, as NA; may be repeated. Default: nothing at all.",
)
@click.option("--allow-missing", is_flag=True, help="Columns not in a file take their DEFAULT.")
def produce(  # noqa: PLR0913 - one per option
    config_file: Path,
    files: tuple[Path, ...],
    table: str,
    format_: str | None,
    rows_per_message: str,
    seed: int | None,
    nulls: tuple[str, ...],
    *,
    allow_missing: bool,
) -> None:
    """Write the rows of Parquet, CSV or JSON Lines files into the source topic of an app.

    Columns are found by name. All files are checked before anything is sent; row numbers in
    errors count from 1, a CSV header not included. Dates and times are ISO 8601 (without a
    zone: UTC) or the row message's own numbers.

    \b
    Exit status: 0 every row is acknowledged · 2 a file or an option is wrong, nothing was
    sent · 4 a server does not answer · 5 a server refused.
    """
    settings = settings_of(config_file)
    cut = Cut.parse(rows_per_message)
    sources = [
        RowFile.of(path, format_, nulls=nulls, allow_missing=allow_missing) for path in files
    ]
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:>6}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        size = total_bytes(sources)
        tasks = {step: bars.add_task(step, total=size) for step in ("check", "send")}
        produced = send_files(
            settings,
            table,
            sources,
            cut,
            np.random.default_rng(seed),
            lambda step, done: bars.update(tasks[step], completed=done),
        )
    click.echo(
        f"{produced.rows} rows of {table} in {produced.messages} messages "
        f"to {settings.source.topic}"
    )
