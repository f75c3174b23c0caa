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

from loader.clioptions import config_argument, say
from loader.cliparked import parked
from loader.clistatus import status
from loader.clisupersede import supersede
from relay import config, errors, log
from relay.cli_support import chosen_pipeline, log_format_option, show_error
from relay.errors import RelayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relay.settings import Settings


@click.group()
def loader() -> None:
    """Insert every sealed block into ClickHouse exactly once."""


@loader.command()
@config_argument
@click.option("--once", is_flag=True, help="Load what is sealed now, then exit.")
@click.option("--master", help="Spark master, instead of loader.master.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Instead of loader.checkpoint.")
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
    every = config.pipelines(path, pipeline=chosen_pipeline())
    if len(every) > 1:
        if checkpoint is not None:
            raise click.UsageError("--checkpoint is one pipeline's: name it with --pipeline")
        from loader.several import load  # noqa: PLC0415 - Spark

        sys.exit(load(every, master, listen, once=once, json_log=log_format == "json"))
    _alone(every[0].settings, master, checkpoint, listen, once=once, json_log=log_format == "json")
    say("ended")


def _alone(
    settings: Settings,
    master: str | None,
    checkpoint: Path | None,
    listen: str | None,
    *,
    once: bool,
    json_log: bool,
) -> None:
    """One app; a signal before its query runs ends the process at once."""
    # Spark, which the other commands do without.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415

    from loader.load import Load  # noqa: PLC0415
    from loader.session import session  # noqa: PLC0415

    work = Load(settings, say, listen)
    engines: list[SparkSession] = []

    def stop(*_: object) -> None:
        if not work.runs:
            raise SystemExit(0)
        work.stop()

    def engine() -> SparkSession:
        engines.append(session(settings, master, json_log=json_log))
        # Spark has set a handler of its own for SIGINT.
        signal.signal(signal.SIGINT, stop)
        return engines[0]

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        work.run(engine, str(checkpoint or settings.loader.checkpoint), once=once)
    finally:
        for spark in engines:
            with contextlib.suppress(Py4JError, ConnectionError):  # its JVM has ended by itself
                spark.stop()


loader.add_command(status)
loader.add_command(parked)
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


if __name__ == "__main__":
    main()
