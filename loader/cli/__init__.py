"""Defines the command `loader` and `loader run`.

The others are modules: `status`, `parked`, `ledger`, `supersede` and `prepare`, with the `options`
that they share.

Receives arguments and the configuration file; relay.program.command prints errors and gives the
exit status. SIGTERM and SIGINT end a run with status 0.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loader.cli.ledger import ledger
from loader.cli.options import config_argument, require_spark
from loader.cli.parked import parked
from loader.cli.prepare import prepare
from loader.cli.status import status
from loader.cli.supersede import supersede
from loader.console import say
from relay import log
from relay.config import settings_file
from relay.program import java
from relay.program.command import (
    EXIT_STATUSES,
    HELP,
    WholeGroup,
    chosen_pipeline,
    log_format_option,
    run_main,
)
from relay.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from loader.spark.one_app import Load
    from relay.config.settings import Settings


@click.group(cls=WholeGroup, epilog=EXIT_STATUSES, context_settings={**HELP})
@click.version_option(__version__, prog_name="loader")
def loader() -> None:
    """Insert every sealed block into ClickHouse exactly once.

    The other program, `relay`, forms these blocks from the source topic.
    """


@loader.command()
@config_argument
@click.option("--once", is_flag=True, help="Load the blocks that are sealed now, then exit.")
@click.option("--master", help="Spark master; overrides loader.master.")
@click.option(
    "--checkpoint",
    type=click.Path(),  # text: it may be a URL
    help="Directory of Spark's checkpoint; overrides loader.checkpoint.",
)
@click.option(
    "--ledger-lost",
    "lost",
    is_flag=True,
    help="Use this after the ledger was lost or emptied: the loader begins with the journal's "
    "first record and checks what each table has of a block before it inserts.",
)
@click.option(
    "--http",
    "listen",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz at this address. With several pipelines the second "
    "serves at PORT+1, and so on.",
)
@log_format_option
def run(
    config_file: Path,
    *,
    once: bool,
    master: str | None,
    checkpoint: str | None,
    lost: bool,
    listen: str | None,
    log_format: str,
) -> None:
    """Load sealed blocks into ClickHouse until SIGTERM or Ctrl-C.

    If the configuration has several pipelines, all of them run in one Spark session, each with a
    query and a checkpoint of its own. A pipeline that fails is started again after a pause and does
    not end the others, unless it ended with a status that needs a person (2, 3, 5, 6). The exit
    status of the command is then the most severe one. With --once nothing is started again.
    """
    log.setup(json=log_format == "json")
    os.environ[log.FORMAT] = log_format  # for the Python processes that Spark starts
    every = settings_file.pipelines(config_file, pipeline=chosen_pipeline())
    require_spark()
    java.require()  # before anything waits for a server
    if len(every) > 1:
        if checkpoint is not None or lost:
            option = "--checkpoint" if checkpoint is not None else "--ledger-lost"
            raise click.UsageError(f"{option} applies to one pipeline: name it with --pipeline")
        from loader.spark.several_apps import load  # noqa: PLC0415 - Spark

        sys.exit(load(every, master, listen, once=once, json_log=log_format == "json"))
    from loader.spark.one_app import Load  # noqa: PLC0415 - Spark, which the other commands do without

    settings = every[0].settings
    work = Load(settings, say, listen, lost=lost)
    where = checkpoint or settings.loader.checkpoint
    _load_one(work, settings, master, where, once=once, json_log=log_format == "json")
    say("ended")


def _load_one(
    work: Load,
    settings: Settings,
    master: str | None,
    checkpoint: str,
    *,
    once: bool,
    json_log: bool,
) -> None:
    """Load one app; a signal before its query runs ends the process at once."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415 - Spark

    from loader.spark.session import session  # noqa: PLC0415

    engines: list[SparkSession] = []

    def stop(*_: object) -> None:
        if not work.runs:
            raise SystemExit(0)
        work.stop()

    def engine() -> SparkSession:
        if not engines:
            engines.append(session(settings, master, json_log=json_log))
            # Spark has set a handler of its own for SIGINT.
            signal.signal(signal.SIGINT, stop)
        return engines[0]

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        work.run(engine, checkpoint, once=once)
    finally:
        for spark in engines:
            with contextlib.suppress(Py4JError, ConnectionError):  # its JVM has ended by itself
                spark.stop()


for command in (status, parked, ledger, supersede, prepare):
    loader.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    log.setup_for_answers()
    sys.exit(run_main(loader, "loader", arguments))
