"""The options that scenarios share, and what stands around each of their runs.

Receives a click command, gives it with options; runs a scenario in a directory, shows what it
measured, and remembers it in a history.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from relay.errors import ConfigError
from tests.bench import filesystem, history, plot, rows
from tests.bench.figures import Curve, Figure
from tests.bench.measure import Result
from tests.bench.report import figures as figures_of
from tests.bench.report import machine, show, show_figures, versions
from tests.bench.rows import Shape

Progress = Callable[[str], None]
Command = Callable[..., None]
Decorator = Callable[[Any], Any]

OUTPUT = (
    click.option("--json", "as_json", is_flag=True, help="JSON instead of a table."),
    click.option(
        "--keep",
        type=click.Path(file_okay=False, path_type=Path),
        help="Keep logs and configuration files in this directory, which must be new.",
    ),
    click.option(
        "--history",
        "history_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Add this run to the file, one JSON line a run, and show beside each figure the "
        "median of earlier runs with the same parameters on a machine of the same kind. WORSE "
        f"marks what is worse by more than {history.WORSE_SHARE:.0%}.",
    ),
    click.option(
        "--plot",
        "plot_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Draw what was measured into this file: .png, .svg or .pdf.",
    ),
)
RUNS = click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Rounds; medians are shown.",
)

BESIDE = click.option(
    "--beside",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    metavar="CHECKOUT",
    help="Take turns with the product of another checkout, installed in its .venv, and not with "
    "peers: what a change costs.",
)


def per_message_option(rows_each: int) -> Decorator:
    """So many by default."""
    return click.option(
        "--per-message",
        type=click.IntRange(min=1),
        default=rows_each,
        show_default=True,
        help="Rows in each source message.",
    )


PER_MESSAGE = per_message_option(100)

PARTITIONS = click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Of the source topic.",
)


def rows_option(total: int) -> Decorator:
    """So many by default: a clock of some seconds, as transactions and blocks come in steps."""
    return click.option(
        "--rows",
        "total",
        type=click.IntRange(min=1),
        default=total,
        show_default=True,
        help="Rows in each topic.",
    )


def columns_option() -> Decorator:
    """Of a row."""
    return click.option(
        "--columns",
        type=click.Choice([str(n) for n in rows.WIDTHS]),
        default=str(rows.USUAL),
        show_default=True,
        help="Columns of a row: narrow (about 30 bytes), usual (80), large (1 500) or wide (800).",
    )


def shape_options(tables: int) -> tuple[Decorator, ...]:
    """Columns, tables (so many by default) and their shares; `shape` takes them."""
    return (
        columns_option(),
        click.option(
            "--tables",
            type=click.IntRange(min=1, max=1000),
            default=tables,
            show_default=True,
            help="Among which rows are spread.",
        ),
        click.option(
            "--skew", is_flag=True, help="The n-th table gets 1/n of the first one's rows."
        ),
    )


def rate_option(rate: float) -> Decorator:
    """Of a steady feed, so fast by default."""
    return click.option(
        "--rate",
        type=click.FloatRange(min=1),
        default=rate,
        show_default=True,
        help="Rows per second over all tables.",
    )


def load_options(rate: float, seconds: float) -> tuple[Decorator, ...]:
    """Of a steady feed, so fast and so long by default, and of what takes it in."""
    return (
        rate_option(rate),
        click.option(
            "--seconds",
            type=click.FloatRange(min=1),
            default=seconds,
            show_default=True,
            help="How long rows come in; after a warm-up that does not count.",
        ),
        PER_MESSAGE,
        PARTITIONS,
        click.option(
            "--processes",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Of the relay.",
        ),
        click.option(
            "--max-age",
            type=click.FloatRange(min=0.001),
            metavar="SECONDS",
            help="block.max_age_seconds of the relay. Default: as shipped.",
        ),
    )


def with_options(*options: Decorator) -> Callable[[Command], Command]:
    """Adds them, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def shape(columns: str, tables: int, *, skew: bool) -> Shape:
    """From the options of `shape_options`."""
    return Shape(int(columns), tables, skew)


def apart(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of OUTPUT, which say nothing of what is measured, and all others."""
    output = {"as_json", "keep", "history_file", "plot_file"}
    return (
        {name: value for name, value in options.items() if name in output},
        {name: value for name, value in options.items() if name not in output},
    )


class Scenario:
    """One run of the command: where it works, and what becomes of what it measures.

    Args:
        bench: its name.
        parameters: that a run must share to compare.
        keep: a directory that is not there yet, to be kept; None: a temporary one.
        history_file: of earlier runs; None: none.
        plot_file: to draw into; None: none.
        as_json: print JSON.
    """

    def __init__(
        self,
        bench: str,
        parameters: dict[str, Any],
        *,
        keep: Path | None,
        history_file: Path | None,
        plot_file: Path | None,
        as_json: bool,
    ) -> None:
        self._bench, self._parameters = bench, parameters
        self._keep, self._file, self._as_json = keep, history_file, as_json
        self._plot = plot_file
        # Before an hour is spent on a run that cannot be remembered.
        self._earlier = history.read(history_file) if history_file else []
        if plot_file:
            plot.check(plot_file)
        self._machine = machine(_parent(keep))
        if said := filesystem.warning(self._machine["files"]):
            self.progress(said)

    def progress(self, line: str) -> None:
        """For who waits."""
        click.echo(line, err=True)

    @contextmanager
    def place(self) -> Iterator[Path]:
        """A directory to work in.

        Raises:
            ConfigError: the one to keep is there already.
        """
        if self._keep is None:
            with tempfile.TemporaryDirectory(prefix="block-relay-bench-") as place:
                yield Path(place)
            return
        if self._keep.exists():
            raise ConfigError(f"{self._keep} is there already", "Name a directory that is not.")
        self._keep.mkdir(parents=True)
        yield self._keep.resolve()

    def results(self, results: list[Result]) -> None:
        """Shows contenders beside each other."""
        run, before = self._remembered(figures_of(results))
        show(results, run, before, as_json=self._as_json)
        if self._plot:
            plot.results(results, _title(run), self._plot)

    def figures(self, found: list[Figure], summary: Table | None = None) -> None:
        """Shows figures, and for people first what they come to."""
        run, before = self._remembered(found)
        show_figures(found, run, before, as_json=self._as_json, summary=summary)
        if self._plot:
            plot.figures(found, _title(run), self._plot)

    def curves(self, found: list[Curve]) -> None:
        """Shows curves, by their points."""
        points = [figure for curve in found for figure in curve.figures()]
        run, before = self._remembered(points)
        show_figures(points, run, before, as_json=self._as_json)
        if self._plot:
            plot.curves(found, _title(run), self._plot)

    def _remembered(self, found: list[Figure]) -> tuple[history.Entry, dict[str, float]]:
        run = history.entry(self._bench, self._parameters, self._machine, versions(), found)
        if self._file is not None:
            history.append(self._file, run)
        return run, history.medians(self._earlier, run)


def _parent(keep: Path | None) -> Path:
    """Where a run's directory will be."""
    above = [] if keep is None else keep.resolve().parents
    return next((parent for parent in above if parent.exists()), Path(tempfile.gettempdir()))


def _title(run: history.Entry) -> str:
    where = run["machine"]
    return f"{run['bench']}, {where['cores']} cores of {where['cpu']}, commit {run['commit']}"
