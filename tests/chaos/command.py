"""What all commands of `python -m tests.chaos` have in common: options, run, verdict."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tests.chaos.controls import GUARDS
from tests.chaos.options import Options, Report
from tests.chaos.running import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.campaign import Campaign


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Seed, output, and what is kept."""
    for option in (
        click.option("--seed", type=int, help="Repeats a schedule; default: a new one."),
        click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
        click.option(
            "--keep",
            type=click.Path(file_okay=False, path_type=Path),
            help="Keep history and logs in this directory, also when all is well.",
        ),
    ):
        command = option(command)
    return command


def seed_of(given: dict[str, Any]) -> int:
    """The one of the options, or a new one."""
    return random.randrange(1 << 31) if given["seed"] is None else int(given["seed"])


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """`run_options`, and what the campaign runs with."""
    for option in (
        run_options,
        click.option(
            "--without",
            default="",
            help=f"Take a guard away: {', '.join(GUARDS)}. The verdict should be red.",
        ),
        click.option(
            "--loader",
            type=click.Choice(["spark", "bare"]),
            help="The Spark job, or its worker in one process.",
        ),
    ):
        command = option(command)
    return command


def run_command(
    name: str,
    body: Callable[[Campaign], Any],
    options: dict[str, Any],
    given: dict[str, Any],
    common: dict[str, Any],
    default_loader: str = "bare",
) -> None:
    """Run, print, and exit with the verdict."""
    seed = seed_of(common)
    loader = common["loader"] or default_loader
    command = name, {**given, "seed": seed, "loader": loader, "without": common["without"]}
    made = Options(seed=seed, loader=loader, without=common["without"], **options)
    report = run(made, body, lambda line: click.echo(line, err=True), common["keep"], command)
    _show(name, report, as_json=common["as_json"])
    if not report.clean:
        sys.exit(1)


def _show(name: str, report: Report, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.record()))
        return
    for key, value in report.figures.items():
        click.echo(f"{key:24} {value}")
    for what, times in report.anomalies.items():
        click.echo(f"ANOMALY x{times}: {what}")
    verdict = "clean" if report.clean else "RED"
    click.echo(f"{name}: {verdict} after {report.seconds:.0f} s, seed {report.seed}")
