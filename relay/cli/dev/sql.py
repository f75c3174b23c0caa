"""`relay dev sql`: queries the development ClickHouse without any other tool."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from relay.cli.options import directory_option
from relay.dev import stack
from relay.dev.sql import PEOPLE, PROGRAMS, Session, is_blank, split
from relay.errors import ConfigError

_PROMPT, _MORE = "clickhouse> ", "       ...> "
_WORDS_OF_END = frozenset({"exit", "quit", "\\q"})
_write = partial(click.echo, nl=False)


@click.command()
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
