"""`python -m tests.bench relay|loader|dead`: speed, beside a peer and a ceiling, in the same run.

Starts all servers it needs in a temporary directory and ends them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from relay.cli_support import run_main
from relay.errors import ConfigError
from tests.bench import dead_bench, loader_bench, relay_bench, report
from tests.bench.measure import Result

Bench = Callable[[Path, int, int, Callable[[str], None]], list[Result]]


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--runs",
            type=click.IntRange(min=1),
            default=3,
            show_default=True,
            help="Rounds; medians are shown.",
        ),
        click.option(
            "--rows",
            type=click.IntRange(min=1),
            default=6_000_000,
            show_default=True,
            help="Rows at 1 row per message; at 100 per message it is "
            f"{relay_bench.PER_MESSAGE_FACTOR} times as many, for the loader "
            f"{loader_bench.ROWS_FACTOR} times.",
        ),
        click.option("--json", "as_json", is_flag=True, help="JSON instead of a table."),
        click.option(
            "--keep",
            type=click.Path(file_okay=False, path_type=Path),
            help="Keep logs and configuration files in this directory, which must be new.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def bench() -> None:
    """Rows per second of the product, Kafka Streams exactly_once_v2 and a ceiling."""


@bench.command()
@_options
def relay(**options: Any) -> None:
    """`relay run` beside Kafka Streams routing by header, and a plain pass-through."""
    _measure("relay", relay_bench.run, **options)


@bench.command()
@_options
def loader(**options: Any) -> None:
    """`loader run --once` beside insert_arrow of ready Arrow, and Kafka Streams' routing."""
    _measure("loader", loader_bench.run, **options)


@bench.command()
@_options
def dead(**options: Any) -> None:
    """`relay run` with 1 % bad messages beside `relay run` with none ("peer"), same messages."""
    _measure("dead", dead_bench.run, **options)


def _measure(
    name: str, of: Bench, *, runs: int, rows: int, as_json: bool, keep: Path | None
) -> None:
    def progress(line: str) -> None:
        click.echo(line, err=True)

    where = report.machine()
    sent = {"runs": runs, "rows": rows}
    if keep is not None:
        if keep.exists():
            raise ConfigError(f"{keep} is there already", "Name a directory that is not.")
        keep.mkdir(parents=True)
        results = of(keep.resolve(), rows, runs, progress)
    else:
        with tempfile.TemporaryDirectory(prefix="block-relay-bench-") as place:
            results = of(Path(place), rows, runs, progress)
    report.show(name, results, where, sent, as_json=as_json)


if __name__ == "__main__":
    sys.exit(run_main(bench, "python -m tests.bench"))
