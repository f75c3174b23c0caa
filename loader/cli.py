"""The command `loader`: run, status, parked, resolve.

Receives arguments and the configuration file; prints errors as message and next step
and exits with the status of relay.errors. SIGTERM and SIGINT end a run with status 0.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loader import clickhouse
from loader.ledger import Ledger
from relay import config, errors, names
from relay.errors import ContractBroken, RelayError, Unavailable
from relay.topics import READ, Topics

if TYPE_CHECKING:
    from relay.settings import Settings

T = TypeVar("T")
_CONFIG = click.argument("path", metavar="CONFIG", type=click.Path(path_type=Path))
_RAISED = re.compile(r"relay\.errors\.(\w+): (.*?)(?:\n  next: (.*?))?(?:\n|$)", re.DOTALL)


@click.group()
def loader() -> None:
    """Insert every sealed block into ClickHouse exactly once."""


@loader.command()
@_CONFIG
@click.option("--once", is_flag=True, help="Load what is sealed now, then exit.")
@click.option("--master", help="Spark master, instead of loader.master.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Instead of loader.checkpoint.")
def run(path: Path, *, once: bool, master: str | None, checkpoint: Path | None) -> None:
    """Load sealed blocks until told to stop."""
    settings = config.load(path)
    stopped: list[Callable[[], None]] = []

    def stop(*_: object) -> None:
        if not stopped:
            raise SystemExit(0)
        stopped[0]()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    ledger = _waited(settings, lambda: _ledger(settings, make=True))
    start = _start(settings, ledger)
    # Spark, which the other commands do without.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415

    from loader import job  # noqa: PLC0415

    spark = job.session(settings, master)
    # Spark has set a handler of its own for SIGINT.
    signal.signal(signal.SIGINT, stop)
    work = job.Job(settings, ledger, _say)
    stopped.append(work.stop)
    _say(f"loading {names.journal_topic(settings.app)} into {settings.clickhouse.url}")
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
    _say("ended")


@loader.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def status(path: Path, *, as_json: bool) -> None:
    """Show how many blocks of each table are in which state."""
    counts = _ledger(config.load(path), make=False).counts()
    if as_json:
        keys = ("table", "state", "blocks", "rows")
        click.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in counts]))
        return
    for table, state, blocks, rows in counts:
        click.echo(f"{table:40} {state:9} {blocks:>10,} blocks {rows:>15,} rows")


@loader.command()
@_CONFIG
def parked(path: Path) -> None:
    """List parked blocks with their reasons."""
    for block, reason in _ledger(config.load(path), make=False).parked():
        click.echo(f"{block.id}  {block.rows} rows  {reason}")


@loader.command()
@_CONFIG
@click.argument("blocks", nargs=-1, required=True)
@click.option(
    "--retry", "human", flag_value="retry", help="Decide again: what stood in the way is mended."
)
@click.option(
    "--insert",
    "human",
    flag_value="absent",
    help="Insert: you have looked, and none of the block's rows are in the table.",
)
@click.option(
    "--loaded",
    "human",
    flag_value="loaded",
    help="Mark as loaded: you have looked, and all of its rows are in the table.",
)
def resolve(path: Path, blocks: tuple[str, ...], human: str | None) -> None:
    """Settle parked BLOCKS ("all" means every parked one)."""
    if human is None:
        raise click.UsageError("Say what to do: --retry, --insert or --loaded.")
    from loader.resolve import resolve as settle  # noqa: PLC0415 - Kafka and Arrow

    settings = config.load(path)
    left = 0
    for block, outcome, reason in settle(settings, _ledger(settings, make=False), blocks, human):
        click.echo(f"{block}: {outcome}{': ' + reason if reason else ''}")
        left += outcome != "loaded"
    if left:
        raise errors.Refused(f"{left} blocks are not loaded", "Read the reasons above.")


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
        click.echo(f"loader: {error}", err=True)
        sys.exit(error.exit_code)


def _say(text: str) -> None:
    click.echo(f"loader: {text}", err=True)


def _ledger(settings: Settings, *, make: bool) -> Ledger:
    client = clickhouse.connect(settings.clickhouse, settings.loader.insert_timeout_seconds)
    ledger = Ledger(client, settings.loader.database, settings.app)
    if make:
        ledger.ensure(settings.loader.database)
    return ledger


def _waited(settings: Settings, call: Callable[[], T]) -> T:
    """Calls until the server answers, or loader.wait_for_servers_seconds are over."""
    limit, begun, pause = settings.loader.wait_for_servers_seconds, time.monotonic(), 0.5
    while True:
        try:
            return call()
        except Unavailable as error:
            if limit and time.monotonic() - begun > limit:
                raise
            _say(f"waiting, next try in {pause:.1f} s: {error.message}")
        time.sleep(pause)
        pause = min(pause * 2, 10.0)


def _start(settings: Settings, ledger: Ledger) -> Any:
    """Journal and position to begin with.

    Raises:
        ContractBroken: the ledger's positions belong to another journal.
    """
    from loader.journal_source import Start  # noqa: PLC0415 - Spark

    topic = names.journal_topic(settings.app)
    journal = _waited(settings, lambda: _topic_id(settings, topic))
    positions = _waited(settings, ledger.positions)
    others = {known for known, _ in positions} - {journal}
    if others and not any(known == journal for known, _ in positions):
        raise ContractBroken(
            f"the ledger's positions of app {settings.app} belong to journal "
            f"{', '.join(sorted(others))}, the topic {topic} is now {journal}",
            "It was deleted and made anew: use a new app name; or, if every block of the old "
            f"journal is loaded, remove {ledger.name}'s position rows of this app.",
        )
    return Start(
        settings, journal, {p: o for (known, p), o in positions.items() if known == journal}
    )


def _topic_id(settings: Settings, topic: str) -> str:
    facts = Topics(settings).describe(topic, (READ,))
    if facts is None:
        raise Unavailable(f"topic {topic} is not there", "Start `relay run` once, it creates it.")
    return facts.topic_id


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
