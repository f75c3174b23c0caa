"""`relay rewind`: source messages are read again, and what became of them before is replaced."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay import log
from relay.cli.arguments import INSTANT, TABLE, Parsed
from relay.cli.options import config_argument, settings_of, within_one_cluster
from relay.cli.output import rewind as output_rewind
from relay.operate.rewind import rewind as steps
from relay.operate.rewind.records import Author
from relay.operate.rewind.removal import Told
from relay.operate.rewind.rewind import Wanted
from relay.operate.rewind.servers import Servers
from relay.operate.view.group import GroupReader
from relay.program.command import chosen_pipeline

if TYPE_CHECKING:
    from relay.config.settings import Settings

EARLIEST = "earliest"


def _offset(text: str) -> int | str:
    if text == EARLIEST:
        return text
    if not text.isdecimal():
        raise ValueError(f"{text!r} is neither an offset nor {EARLIEST!r}")
    return int(text)


@click.command()
@config_argument
@click.option("--partition", type=click.IntRange(min=0), help="Only this source partition.")
@click.option("--table", type=TABLE, help="Only this table (database.table); others stay.")
@click.option("--all", "whole", is_flag=True, help="All tables of all source partitions.")
@click.option(
    "--to-offset",
    type=Parsed("offset", _offset),
    help=f'Messages from this source offset on; "{EARLIEST}" for all that can be read again.',
)
@click.option(
    "--to-time",
    "when_ms",
    type=INSTANT,
    help="Messages written since then: ISO 8601 (UTC where it names no zone), or an age as 2h, 7d.",
)
@click.option(
    "--keep-rows",
    "keep",
    type=TABLE,
    multiple=True,
    help="Leave this table's old rows where they are, e.g. because you emptied it; repeatable.",
)
@click.option("--despite-views", is_flag=True, help="Views that counted old rows: you mend them.")
@click.option("--despite-replays", is_flag=True, help="Replayed dead letters may come twice.")
@click.option("--why", default="", metavar="TEXT", help="For the journal and the ledger.")
@click.option(
    "--run/--dry-run", "do", default=False, help="Do it; without --run it only says what it would."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def rewind(  # noqa: PLR0913 - each is a thing to be said
    config_file: Path,
    partition: int | None,
    table: str | None,
    to_offset: int | str | None,
    when_ms: int | None,
    keep: tuple[str, ...],
    why: str,
    *,
    whole: bool,
    despite_views: bool,
    despite_replays: bool,
    do: bool,
    as_json: bool,
) -> None:
    """Read source messages again and replace what became of them, without a row twice.

    Blocks are re-run whole: each table goes back to where the block began that holds the offset.
    With --run relays are fenced (status 7; a supervisor may start them again at any time), the
    journal records the rewind, old blocks are settled and their rows removed by block id, and
    then relays go on from the new floor. Until then they stop with status 6. Killed in the
    middle, the same command, or `relay rewind CONFIG --run` alone, goes on to the same end.
    Dead letters of the stretch are written again.

    \b
    Examples:
      relay rewind relay.toml --partition 3 --to-offset 120000
      relay rewind relay.toml --table shop.orders --to-time 2026-08-01T03:00 --run --why 'bad rate'
      relay rewind relay.toml --all --to-offset earliest --run
    Exit status: 0 done · 2 it cannot be done so, or must be told; nothing was changed · 6 the
    truth has to be settled first (`relay accept`) · 4, 7 broken off: run it again.
    """
    log.setup(json=False)
    bare = partition is None and table is None and not whole
    if bare and (to_offset is not None or when_ms is not None):
        raise click.UsageError("say what to rewind: --partition, --table or --all")
    if not bare and (to_offset is None) == (when_ms is None):
        raise click.UsageError("say from where to read again: --to-offset or --to-time")
    if whole and (partition is not None or table is not None):
        raise click.UsageError("--all cannot be combined with --partition or --table")
    settings = settings_of(config_file)
    within_one_cluster(settings, "rewind", "begin under a new `app`, which reads the source again")
    author = partial(_author, why)
    column = settings.loader.block_column
    told = Told(frozenset(keep), despite_views, despite_replays)
    with contextlib.closing(Servers(settings, config_file, chosen_pipeline())) as servers:
        wanted = None
        if not bare:
            offsets = _offsets(servers, partition, to_offset, when_ms)
            wanted = Wanted(offsets, table, told)
        if do:
            done = steps.rewind(servers, wanted, column, author)
            _say(output_rewind.done(done, as_json=as_json))
            return
        places = servers.look({} if wanted is None else wanted.offsets)
        begun = steps.unfinished(places)
        if begun:
            _say(output_rewind.unfinished(begun, as_json=as_json))
        elif wanted is None:
            raise click.UsageError(
                "no unfinished rewind; say what to rewind: --partition, --table or --all"
            )
        else:
            would = steps.ready(servers, places, wanted, column)
            members = _members(settings)
            _say(output_rewind.would(would, places, members, as_json=as_json))


def _offsets(
    servers: Servers, partition: int | None, to_offset: int | str | None, when_ms: int | None
) -> dict[int, int]:
    """By partition; without those where there is nothing that late."""
    if when_ms is not None:
        found = servers.standing.offsets_at(when_ms)
    elif to_offset == EARLIEST:
        found = servers.standing.oldest()
    else:
        found = dict.fromkeys(range(servers.standing.partitions()), int(to_offset or 0))
    if partition is None:
        return found
    if partition >= servers.standing.partitions():
        raise click.UsageError(f"there is no source partition {partition}")
    return {partition: found[partition]} if partition in found else {}


def _members(settings: Settings) -> list[str]:
    return [member.name for member in GroupReader(settings).read().members]


def _author(why: str) -> Author:
    return Author("rewind", time.time_ns() // 1_000_000, why)


def _say(lines: Any) -> None:
    for line in lines:
        sys.stdout.write(f"{line if isinstance(line, str) else json.dumps(line)}\n")
