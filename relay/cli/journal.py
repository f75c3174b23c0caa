"""`relay journal`: shows the records that the relays committed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from relay.cli.options import config_argument, settings_of
from relay.cli.output.status import clock
from relay.errors import Unavailable
from relay.operate.verify.rounds import ROUND_SECONDS
from relay.operate.view import journal_lines
from relay.operate.view.journal_tail import Tail
from relay.program.command import WholeGroup
from relay.program.json_output import print_json
from relay.program.waiting import stopped_by_signal


@click.group(cls=WholeGroup)
def journal() -> None:
    """Show the journal, which has one record per source partition and transaction.

    \b
    relay journal tail relay.toml -n 3
    """


@journal.command()
@config_argument
@click.option(
    "-n",
    "--records",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Records to show of each partition.",
)
@click.option("--follow", is_flag=True, help="Keep printing new records until SIGTERM or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record.")
def tail(config_file: Path, records: int, *, follow: bool, as_json: bool) -> None:
    """Show the last records of each journal partition, and new ones with --follow.

    \b
    relay journal tail relay.toml
    relay journal tail relay.toml -n 1 --follow
    relay journal tail relay.toml -n 100 --json | jq '.record.blocks[].id'
    """
    stop = stopped_by_signal() if follow else None
    with contextlib.closing(Tail(settings_of(config_file))) as reading:
        for entry in reading.last(records):
            _show(entry, as_json=as_json)
        while stop is not None and not stop.wait(ROUND_SECONDS):
            try:
                for entry in reading.more():
                    _show(entry, as_json=as_json)
            except Unavailable as error:
                click.echo(f"waiting: {error.message}", err=True)


def _show(entry: journal_lines.JournalLine, *, as_json: bool) -> None:
    if as_json:
        print_json(journal_lines.as_json(entry))
        return
    first, *others = journal_lines.lines(entry)
    click.echo("\n".join([f"{clock(entry.commit.written_at_ms)}  {first}", *others]))
