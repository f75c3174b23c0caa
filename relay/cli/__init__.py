"""The command line `relay`: names its subcommands, each in a module of its own.

Receives the process's arguments, gives its exit status; imports a command's module
only when that command is used.
"""

from __future__ import annotations

from typing import NoReturn

import click

from relay import log
from relay.program.command import EXIT_STATUSES, HELP, Lazy, LazyGroup, end, run_main
from relay.version import __version__

COMMANDS = {
    name: Lazy(f"relay.cli.{module}:{name}", summary)
    for name, module, summary in (
        ("demo", "dev.demo", "Run the whole pipeline on this machine with real data."),
        ("dev", "dev.command", "Run a Kafka broker and a ClickHouse server for development."),
        ("config", "config", "Write, check and show the configuration file."),
        ("topic", "topic", "Create the source topic, which relays only read."),
        (
            "doctor",
            "doctor",
            "Check Kafka and ClickHouse for settings that could lose, double or delay rows.",
        ),
        ("schema", "schema.command", "Show the protobuf row message of each table, for producers."),
        ("produce", "produce", "Write rows of files into the source topic."),
        ("run", "run", "Run the relay, which forms blocks from the source topic."),
        ("dead", "dead.command", "List, show and replay messages that could not become rows."),
        ("retire", "retire", "Abort transactions left open by members that will not come back."),
        ("status", "status", "Show the state of the app on one screen."),
        ("blocks", "blocks", "List sealed blocks, or follow one from source to table."),
        ("journal", "journal", "Show the last journal records that the relays committed."),
        ("rewind", "rewind", "Read source messages again and replace the rows made from them."),
        ("accept", "accept", "Acknowledge a gap or a recreated topic so that relays can continue."),
        ("verify", "verify.command", "Prove from the records that no row was lost or doubled."),
        ("export", "export", "Print alert rules and dashboard, write Kubernetes manifests."),
        ("docs", "docs", "List the documents, or print one of them."),
    )
}
"""In the order in which a newcomer needs them."""


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog=EXIT_STATUSES,
    context_settings={**HELP},
)
@click.version_option(__version__, prog_name="relay")
def cli() -> None:
    """Form blocks of rows from a multi-table Kafka topic, each row exactly once.

    The other program, `loader`, inserts these blocks into ClickHouse.
    """


def main() -> int:
    """Run the command line `relay`; return its exit status."""
    log.setup_for_answers()
    return run_main(cli, "relay")


def program() -> NoReturn:
    """Run the console script `relay`, and end the process with its exit status."""
    end(main())
