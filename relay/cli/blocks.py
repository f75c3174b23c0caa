"""`relay blocks`: lists sealed blocks, and follows one from source offsets to parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from relay.cli.arguments import INSTANT, TABLE
from relay.cli.options import config_argument, settings_of
from relay.cli.output import blocks as output_blocks
from relay.config.settings import Settings
from relay.errors import NotExactlyOnce, Refused, Unavailable
from relay.operate.verify.read.journal import from_the_start
from relay.operate.view import ask, block_story, start
from relay.operate.view.journal_state import Listed
from relay.program.command import WholeGroup
from relay.program.console import console_of, print_parts
from relay.program.json_output import print_json, print_lines
from relay.program.spelling import did_you_mean_table

_RECORDS_WIDTH = 1_000  # columns, where there is no terminal to ask: a line for each


@click.group(cls=WholeGroup)
def blocks() -> None:
    """List sealed blocks, or follow one from its source offsets to the table's parts.

    \b
    relay blocks ls relay.toml --state parked
    relay blocks show relay.toml shop:shop.orders:0:0:1200
    """


@blocks.command("ls")
@config_argument
@click.option("--table", type=TABLE, help="List only blocks of this table.")
@click.option(
    "--since",
    "since_ms",
    type=INSTANT,
    help="List only blocks sealed since: an age such as 2h, or ISO 8601.",
)
@click.option(
    "--state", type=click.Choice(block_story.STATES), help="List only blocks in this state."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="List only the latest; 0 lists all, and --json always has all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_blocks(
    config_file: Path,
    table: str | None,
    since_ms: int | None,
    state: str | None,
    limit: int,
    *,
    as_json: bool,
) -> None:
    """List the blocks in the retained journal: table, rows, state, when and why they were sealed.

    \b
    sealed     no loader has begun to load it
    claimed    a loader is loading it, or stopped in the middle
    loaded     its rows are in the table
    aside      the table or a limit refuses it for now; the loader retries it
    parked     a person has to decide (`loader parked`)
    discarded  a person gave it up
    dead       its messages were left out of another block, and are dead letters

    Messages that were left out of a block are a block of their own (BLOCK:left-out), with the time
    and the places of the other. What waits for a person although retention has deleted its journal
    record is only in `loader parked ls`.

    \b
    relay blocks ls relay.toml --since 10m
    relay blocks ls relay.toml --table shop.orders --state sealed
    relay blocks ls relay.toml --state claimed --json | jq -r .id
    """
    settings = settings_of(config_file)
    begin = from_the_start if since_ms is None else start.since(since_ms)
    tables, listed = set(), []
    for entry in ask.listed(settings, begin):
        tables.add(entry.block.table)
        if table in {None, entry.block.table}:
            listed.append(entry)
    states = _read_states(settings, listed, needed=state is not None)
    rows = list(block_story.rows_of(listed, states, table, since_ms or 0, state))
    rows.sort(key=lambda row: (row.listed.block.sealed_at_ms, row.id))
    if as_json:
        print_lines(map(block_story.row_as_json, rows))
        return
    if not rows:
        hint = did_you_mean_table(table, tables) if table and not listed else ""
        click.echo(f"the retained journal records list no such blocks{hint}", err=True)
        return
    shown = rows[-limit:] if limit else rows
    console = console_of(_RECORDS_WIDTH)
    print_parts(console, output_blocks.block_table(shown, console.width))
    if len(rows) > len(shown):
        click.echo(f"the latest {len(shown)} of {len(rows):,}; --limit 0 shows all", err=True)


def _read_states(
    settings: Settings, listed: Sequence[Listed], *, needed: bool
) -> dict[str, str] | None:
    try:
        return ask.ledger(settings, {entry.block.table for entry in listed})
    except (Unavailable, Refused) as error:
        if needed:
            raise
        click.echo(f"the blocks' states are not known: {error.message}", err=True)
        return None


@blocks.command()
@config_argument
@click.argument("block")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(config_file: Path, block: str, *, as_json: bool) -> None:
    """Show everything about one BLOCK: source offsets, journal record, chunks, ledger, parts.

    The command reads the block's chunks and compares count and checksum with the journal. It
    counts the block's rows if the table has the block-id column. The exit status is 1 if the
    chunks differ from the journal.

    \b
    relay blocks show relay.toml shop:shop.orders:0:0:1200
    """
    story = ask.story_of(settings_of(config_file), block)
    if as_json:
        print_json(block_story.story_as_json(story))
    else:
        click.echo("\n".join(output_blocks.describe_block(story)))
    if story.chunks is not None and story.chunks.problems:
        raise NotExactlyOnce(
            story.chunks.problems[0],
            "keep the records of source and block topic (raise their retention); `relay verify "
            "--deep` checks all blocks",
        )
