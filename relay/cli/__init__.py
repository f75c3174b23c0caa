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
    "demo": Lazy(
        "relay.cli.dev.demo:demo", "Run the whole pipeline on this machine with real data."
    ),
    "dev": Lazy(
        "relay.cli.dev.command:dev", "Run a Kafka broker and a ClickHouse server for development."
    ),
    "config": Lazy("relay.cli.config:config", "Write, check and show the configuration file."),
    "topic": Lazy("relay.cli.topic:topic", "Create the source topic, which relays only read."),
    "doctor": Lazy(
        "relay.cli.doctor:doctor",
        "Check Kafka and ClickHouse for settings that could lose, double or delay rows.",
    ),
    "schema": Lazy(
        "relay.cli.schema.command:schema",
        "Show the protobuf row message of each table, for producers.",
    ),
    "produce": Lazy("relay.cli.produce:produce", "Write rows of files into the source topic."),
    "run": Lazy("relay.cli.run:run", "Run the relay, which forms blocks from the source topic."),
    "dead": Lazy(
        "relay.cli.dead.command:dead", "List, show and replay messages that could not become rows."
    ),
    "retire": Lazy(
        "relay.cli.retire:retire",
        "Abort transactions left open by members that will not come back.",
    ),
    "status": Lazy("relay.cli.status:status", "Show the state of the app on one screen."),
    "blocks": Lazy(
        "relay.cli.blocks:blocks", "List sealed blocks, or follow one from source to table."
    ),
    "journal": Lazy(
        "relay.cli.journal:journal", "Show the last journal records that the relays committed."
    ),
    "rewind": Lazy(
        "relay.cli.rewind:rewind", "Read source messages again and replace the rows made from them."
    ),
    "accept": Lazy(
        "relay.cli.accept:accept",
        "Acknowledge a gap or a recreated topic so that relays can continue.",
    ),
    "verify": Lazy(
        "relay.cli.verify.command:verify", "Prove from the records that no row was lost or doubled."
    ),
    "export": Lazy(
        "relay.cli.export:export", "Print alert rules and dashboard, write Kubernetes manifests."
    ),
    "docs": Lazy("relay.cli.docs:docs", "List the documents, or print one of them."),
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
