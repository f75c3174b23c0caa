"""The command line `relay`: names its subcommands, each in a module of its own.

Receives the process's arguments, gives its exit status; imports a command's module
only when that command is used.
"""

from __future__ import annotations

import click

from relay.program.command import EXIT_STATUSES, HELP, Lazy, LazyGroup, run_main
from relay.version import __version__

COMMANDS = {
    "demo": Lazy("relay.cli.dev.demo:demo", "Show the whole way on this machine, with real data."),
    "dev": Lazy(
        "relay.cli.dev.command:dev", "A Kafka broker and a ClickHouse server for development."
    ),
    "config": Lazy("relay.cli.config:config", "Write, check and show the configuration file."),
    "topic": Lazy("relay.cli.topic:topic", "Make the source topic, which relays only read."),
    "doctor": Lazy("relay.cli.doctor:doctor", "What about the servers would lose or hold up rows."),
    "schema": Lazy("relay.cli.schema.command:schema", "Row messages of the tables, for producers."),
    "produce": Lazy("relay.cli.produce:produce", "Rows from files into the source topic."),
    "run": Lazy("relay.cli.run:run", "The relay: rows from the source topic into blocks."),
    "dead": Lazy(
        "relay.cli.dead.command:dead", "Messages that could not become rows; send them again."
    ),
    "retire": Lazy("relay.cli.retire:retire", "End what members that are gone have left open."),
    "status": Lazy("relay.cli.status:status", "One screen: what waits where, what went wrong."),
    "blocks": Lazy("relay.cli.blocks:blocks", "Sealed blocks, and the whole story of one."),
    "journal": Lazy("relay.cli.journal:journal", "The last records that the relays committed."),
    "rewind": Lazy("relay.cli.rewind:rewind", "Read messages again; replace what became of them."),
    "accept": Lazy("relay.cli.accept:accept", "Take note of what relays stop at: a gap, a topic."),
    "verify": Lazy(
        "relay.cli.verify.command:verify", "Prove from the journal that nothing is lost."
    ),
    "export": Lazy("relay.cli.export:export", "Alert rules, dashboard, Kubernetes manifests."),
    "docs": Lazy("relay.cli.docs:docs", "List the documents, or print one."),
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
    """Move protobuf rows of many tables from Kafka towards ClickHouse, each exactly once.

    The other half, from blocks into ClickHouse, is `loader`.
    """


def main() -> int:
    """Entry point of the console script `relay`; returns the exit status."""
    return run_main(cli, "relay")
