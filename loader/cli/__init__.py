"""The command `loader`: its subcommand run; status and parked stand beside.

Receives arguments and the configuration file; prints errors as message and next step
and exits with the status of relay.errors. SIGTERM and SIGINT end a run with status 0.
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
from loader.cli.options import config_argument
from loader.cli.parked import parked
from loader.cli.status import status
from loader.cli.supersede import supersede
from loader.console import say
from relay import errors, log
from relay.config import settings_file
from relay.errors import RelayError
from relay.program import java
from relay.program.command import (
    EXIT_STATUSES,
    HELP,
    WholeGroup,
    chosen_pipeline,
    log_format_option,
    show_error,
)
from relay.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from loader.spark.one_app import Load
    from relay.config.settings import Settings


@click.group(
    cls=WholeGroup,
    epilog=EXIT_STATUSES,
    context_settings={**HELP},
)
@click.version_option(__version__, prog_name="loader")
def loader() -> None:
    """Insert every sealed block into ClickHouse exactly once.

    The other half, from Kafka into blocks, is `relay`.
    """


@loader.command()
@config_argument
@click.option("--once", is_flag=True, help="Load what is sealed now, then exit.")
@click.option("--master", help="Spark master, instead of loader.master.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Instead of loader.checkpoint.")
@click.option(
    "--ledger-lost",
    "lost",
    is_flag=True,
    help="The ledger was lost or emptied: begin with the journal's first record, and ask each "
    "table what it has of a block before inserting it.",
)
@click.option(
    "--http",
    "listen",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz there.",
)
@log_format_option
def run(
    path: Path,
    *,
    once: bool,
    master: str | None,
    checkpoint: Path | None,
    lost: bool,
    listen: str | None,
    log_format: str,
) -> None:
    """Load sealed blocks until told to stop.

    Where the configuration has several pipelines, all of them, in one Spark session with a query
    and a checkpoint for each. What ends one ends no other: it is begun again, with pauses, unless
    it ended with a status that waits for a person (2, 3, 5, 6). The worst status is this command's
    at its end. With --once, none is begun again, and it ends when all have ended. --http: the
    first serves at PORT, the second at PORT+1, and so on.
    """
    log.setup(json=log_format == "json")
    os.environ[log.FORMAT] = log_format  # for the Python processes that Spark starts
    every = settings_file.pipelines(path, pipeline=chosen_pipeline())
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
    where = str(checkpoint or settings.loader.checkpoint)
    _alone(work, settings, master, where, once=once, json_log=log_format == "json")
    say("ended")


def _alone(
    work: Load,
    settings: Settings,
    master: str | None,
    checkpoint: str,
    *,
    once: bool,
    json_log: bool,
) -> None:
    """One app; a signal before its query runs ends the process at once."""
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


loader.add_command(status)
loader.add_command(parked)
loader.add_command(ledger)
loader.add_command(supersede)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command."""
    try:
        sys.exit(loader.main(arguments, prog_name="loader", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(errors.ConfigError.exit_code)
    except click.Abort:
        sys.exit(130)
    except RelayError as error:
        show_error("loader", error)
        sys.exit(error.exit_code)
