"""The command `loader`: its subcommand run; status and parked stand beside.

Receives arguments and the configuration file; prints errors as message and next step
and exits with the status of relay.errors. SIGTERM and SIGINT end a run with status 0.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loader import begin
from loader.begin import ledger_of, waited
from loader.clioptions import CONFIG, say
from loader.cliparked import parked
from loader.clistatus import status
from loader.clisupersede import supersede
from loader.metrics.observer import NOTHING, Observer
from relay import config, errors, log, names
from relay.cli_support import log_format_option, show_error
from relay.errors import RelayError, Unavailable

if TYPE_CHECKING:
    from loader.journal_source import Start

_RAISED = re.compile(r"relay\.errors\.(\w+): (.*?)(?:\n  next: (.*?))?(?:\n|$)", re.DOTALL)


@click.group()
def loader() -> None:
    """Insert every sealed block into ClickHouse exactly once."""


@loader.command()
@CONFIG
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
    """Load sealed blocks until told to stop."""
    log.setup(json=log_format == "json")
    os.environ[log.FORMAT] = log_format  # for the Python processes that Spark starts
    settings = config.load(path)
    stopped: list[Callable[[], None]] = []

    def stop(*_: object) -> None:
        if not stopped:
            raise SystemExit(0)
        stopped[0]()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    ledger = waited(settings, lambda: ledger_of(settings, make=True))
    start = begin.start(settings, ledger)
    # Spark, which the other commands do without.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415

    from loader import job  # noqa: PLC0415
    from loader.session import session  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        observer = stack.enter_context(_watched(listen, start))
        spark = session(settings, master, json_log=log_format == "json")
        # Spark has set a handler of its own for SIGINT.
        signal.signal(signal.SIGINT, stop)
        work = job.Job(settings, ledger, say, observer)
        stopped.append(work.stop)
        say(f"loading {names.journal_topic(settings.app)} into {settings.clickhouse.url}")
        try:
            directory = str(checkpoint or settings.loader.checkpoint)
            work.run(spark, start, directory, once=once)
        except RelayError:
            raise
        except Exception as error:
            raise (_from_spark(error) or error) from error
        finally:
            with contextlib.suppress(Py4JError, ConnectionError):  # its JVM has ended by itself
                spark.stop()
    say("ended")


@contextlib.contextmanager
def _watched(listen: str | None, start: Start) -> Iterator[Observer]:
    """The job's observer; with `listen`, metrics and health are served meanwhile."""
    if listen is None:
        yield NOTHING
        return
    from loader.metrics.page import Watch  # noqa: PLC0415 - Spark

    with Watch(listen, start) as watch:
        say(f"serving metrics and health at {watch.address}", address=watch.address)
        yield watch.observer


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


def _from_spark(error: Exception) -> RelayError | None:
    """The product's error inside one of Spark's, which carries a worker's traceback as text."""
    try:
        found = _RAISED.search(str(error))
    except ConnectionError:  # the text is in the JVM
        return Unavailable("Spark's JVM has ended", "Find out what ended it; start again.")
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, RelayError)):
        return None
    return kind(found[2].strip(), (found[3] or "").strip())


if __name__ == "__main__":
    main()
