"""`relay dev`: runs Kafka and ClickHouse on this machine, for development."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from relay.cli.options import directory_option
from relay.dev import stack
from relay.dev.layout import HOST
from relay.dev.sql import PEOPLE, PROGRAMS, Session, is_blank, split
from relay.dev.stack import Stack
from relay.errors import ConfigError
from relay.program.command import WholeGroup
from relay.program.json_output import print_json

_port = click.IntRange(0, 65_535)
_PROMPT, _MORE = "clickhouse> ", "       ...> "
_WORDS_OF_END = frozenset({"exit", "quit", "\\q"})
_write = partial(click.echo, nl=False)


@click.group(cls=WholeGroup)
def dev() -> None:
    """Run Kafka and ClickHouse on this machine, for development."""


@dev.command()
@directory_option
@click.option("--brokers", type=click.IntRange(1, 9), help="Number of brokers.  [default: 1]")
@click.option(
    "--kafka-port",
    type=click.IntRange(0, 65_000),
    default=0,
    help="Port of the first broker; 0 takes a free one.",
)
@click.option(
    "--clickhouse-port", type=_port, default=0, help="ClickHouse's HTTP port; 0 takes a free one."
)
@click.option(
    "--clickhouse-tcp-port",
    type=_port,
    default=0,
    help="ClickHouse's native TCP port; 0 takes a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, as status does.")
def up(
    directory: Path,
    brokers: int | None,
    kafka_port: int,
    clickhouse_port: int,
    clickhouse_tcp_port: int,
    *,
    as_json: bool,
) -> None:
    """Start Kafka and ClickHouse; servers that run already are left alone.

    Prints the lines of a configuration file that reach the servers. ClickHouse has a random
    password, which is in a file of the directory. Look at rows with `relay dev sql`.
    """
    running = stack.up(
        directory,
        brokers=brokers,
        kafka_port=kafka_port,
        clickhouse_port=clickhouse_port,
        clickhouse_tcp_port=clickhouse_tcp_port,
        progress=lambda line: click.echo(line, err=True),
    )
    if as_json:
        print_json(_as_json(running), indent=1)
        return
    click.echo(running.config_hint, nl=False)
    click.echo("write a configuration with: relay config init relay.toml --short", err=True)
    click.echo("look at rows with: relay dev sql", err=True)


@dev.command()
@directory_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(directory: Path, *, as_json: bool) -> None:
    """Show which servers run; the exit status is 0 if all do, else 1."""
    running = stack.status(directory)
    if as_json:
        print_json(None if running is None else _as_json(running), indent=1)
    elif running is None:
        click.echo(f"no stack in {directory}; start one with: relay dev up")
    else:
        for index, pid in enumerate(running.broker_pids):
            address = running.bootstrap.split(",")[index]
            click.echo(f"broker-{index}    {_state(pid)}  {address}")
        click.echo(
            f"clickhouse  {_state(running.clickhouse_pid)}  {running.clickhouse.url}  "
            f"native protocol {HOST}:{running.clickhouse_tcp_port}  user {running.clickhouse.user}"
        )
        click.echo(f"    its password: {running.clickhouse.password_file}")
    if running is None or not running.complete:
        raise click.exceptions.Exit(1)


@dev.command()
@directory_option
def down(directory: Path) -> None:
    """Stop the servers that `up` started; the data stays in the directory."""
    ended = stack.down(directory)
    click.echo("ended " + ", ".join(ended) if ended else "nothing was running")


@dev.command()
@directory_option
@click.argument("statement", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@click.option(
    "--format",
    "output",
    metavar="NAME",
    help="Print rows in this ClickHouse format, for example CSV or Vertical.",
)
def sql(directory: Path, statement: str | None, output: str | None, *, as_json: bool) -> None:
    """Run statements in ClickHouse and print a table.

    \b
    List databases:       relay dev sql "SHOW DATABASES"
    Rows of a table:      relay dev sql "SELECT * FROM shop.orders LIMIT 10"
    Columns of a table:   relay dev sql "DESCRIBE shop.orders"
    Several statements:   relay dev sql "USE shop; SHOW TABLES"
    From a file:          relay dev sql < tables.sql

    Without STATEMENT the command prompts for statements, which may span several lines and end
    with `;`. Ctrl-D, `exit` or `quit` leaves. In a list of statements the first error ends the
    command with status 2; at the prompt it does not. Statements run with all rights. A FORMAT
    clause in the statement wins over --json and --format.
    """
    if as_json and output:
        raise ConfigError("--json and --format were both given", "give only one of them")
    running = stack.status(directory)
    if running is None:
        raise ConfigError(
            f"no stack in {directory}", "start one with `relay dev up`, or name its --directory"
        )
    session = Session(running.clickhouse, output or (PROGRAMS if as_json else PEOPLE))
    with contextlib.closing(session):
        if statement is None and sys.stdin.isatty():
            _talk(session)
        else:
            statements, rest = split(sys.stdin.read() if statement is None else statement)
            for text in [*statements, *([] if is_blank(rest) else [rest])]:
                session.ask(text, _write)


def _state(pid: int | None) -> str:
    return "down".ljust(12) if pid is None else f"pid {pid}".ljust(12)


def _as_json(running: Stack) -> dict[str, object]:
    return {
        "directory": str(running.directory),
        "bootstrap": running.bootstrap,
        "clickhouse_url": running.clickhouse.url,
        "clickhouse_tcp_port": running.clickhouse_tcp_port,
        "clickhouse_user": running.clickhouse.user,
        "clickhouse_password_file": str(running.clickhouse.password_file),
        "broker_pids": running.broker_pids,
        "clickhouse_pid": running.clickhouse_pid,
        "complete": running.complete,
    }


def _talk(session: Session) -> None:
    """Read statements from a terminal; print errors, then prompt for the next statement."""
    click.echo("Statements end with `;`. Ctrl-D leaves.")
    for statement in _typed():
        try:
            session.ask(statement, _write)
        except ConfigError as error:
            click.echo(str(error), err=True)


def _typed() -> Iterator[str]:
    """Yield statements as they are typed, until the end of the input."""
    text = ""
    while True:
        try:
            line = input(_MORE if text.strip() else _PROMPT)
        except KeyboardInterrupt:  # what was typed so far is taken back
            text = ""
            click.echo()
            continue
        except EOFError:
            click.echo()
            return
        if not text.strip() and line.strip().rstrip(";") in _WORDS_OF_END:
            return
        statements, text = split(f"{text}{line}\n")
        yield from statements
