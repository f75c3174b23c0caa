"""`relay blocks`: sealed blocks, and the story of one from source offsets to parts."""

from __future__ import annotations

import json
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

_RECORDS_WIDTH = 1_000  # columns, where there is no terminal to ask: a line for each


@click.group(cls=WholeGroup)
def blocks() -> None:
    """Sealed blocks: list them, and look at one all the way.

    \b
    relay blocks ls relay.toml --state parked
    relay blocks show relay.toml shop:shop.orders:0:0:1200
    """


@blocks.command("ls")
@config_argument
@click.option("--table", type=TABLE, help="Of this table alone.")
@click.option("--since", "since_ms", type=INSTANT, help="Sealed since then: 2h, or ISO 8601.")
@click.option("--state", type=click.Choice(block_story.STATES), help="In this state alone.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="The latest so many, 0 for all; --json has all of them.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_blocks(
    config_file: Path,
    table: str | None,
    since_ms: int | None,
    state: str | None,
    limit: int,
    *,
    as_json: bool,
) -> None:
    """List the blocks of the journal that is retained: table, rows, state, when and why sealed.

    sealed: no loader touched it; claimed: one is at it, or ended in the middle; loaded;
    aside: it waits for its table, and the loader tries it again; parked: it waits for a
    person; discarded: a person gave it up.

    \b
    relay blocks ls relay.toml --since 10m
    relay blocks ls relay.toml --table shop.orders --state sealed
    relay blocks ls relay.toml --state parked --json | jq -r .id
    """
    settings = settings_of(config_file)
    where = from_the_start if since_ms is None else start.since(since_ms)
    listed = [
        one for one in ask.listed(settings, where) if table is None or one.block.table == table
    ]
    known = _ledger(settings, listed, needed=state is not None)
    found = list(block_story.rows_of(listed, known, table, since_ms or 0, state))
    found.sort(key=lambda row: (row.listed.block.sealed_at_ms, row.listed.block.id))
    if as_json:
        for row in found:
            click.echo(json.dumps(block_story.row_as_json(row), ensure_ascii=False))
        return
    if not found:
        click.echo("the retained journal records list no such blocks", err=True)
        return
    shown = found[-limit:] if limit else found
    console = console_of(_RECORDS_WIDTH)
    print_parts(console, output_blocks.listed(shown, console.width))
    if len(found) > len(shown):
        click.echo(f"the latest {len(shown)} of {len(found):,}; --limit 0 shows all", err=True)


def _ledger(settings: Settings, listed: Sequence[Listed], *, needed: bool) -> dict[str, str] | None:
    try:
        return ask.ledger(settings, {one.block.table for one in listed})
    except (Unavailable, Refused) as error:
        if needed:
            raise
        click.echo(f"the blocks' states are not known: {error.message}", err=True)
        return None


@blocks.command()
@config_argument
@click.argument("block")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(config_file: Path, block: str, *, as_json: bool) -> None:
    """Tell the story of one BLOCK: source offsets, journal record, chunks, ledger, table, parts.

    The chunks are read, and counted and summed against the journal. Rows in the table are
    counted where it has the block-id column. Ends with status 1 where the chunks are not what
    the journal says.

    \b
    relay blocks show relay.toml shop:shop.orders:0:0:1200
    """
    found = ask.story_of(settings_of(config_file), block)
    if as_json:
        click.echo(json.dumps(block_story.story_as_json(found), ensure_ascii=False))
    else:
        click.echo("\n".join(output_blocks.whole(found)))
    if found.chunks is not None and found.chunks.problems:
        raise NotExactlyOnce(
            found.chunks.problems[0],
            "keep the records of source and block topic (raise their retention); `relay verify "
            "--deep` checks all blocks",
        )
