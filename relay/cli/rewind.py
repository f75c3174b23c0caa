"""`relay rewind`: reads source messages again and replaces the rows made from them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import click

from relay import log
from relay.cli.arguments import INSTANT, TABLE, Parsed
from relay.cli.options import config_argument, run_option, settings_of, within_one_cluster
from relay.cli.output import rewind as output_rewind
from relay.errors import NEW_APP
from relay.operate.rewind import rewind as steps
from relay.operate.rewind.plan import PartitionPositions
from relay.operate.rewind.records import RewindAuthor
from relay.operate.rewind.removal import RewindConsent
from relay.operate.rewind.rewind import RewindRequest
from relay.operate.rewind.servers import Servers
from relay.operate.view.group import GroupReader
from relay.program.command import chosen_pipeline
from relay.program.config_argument import ConfiguredCommand
from relay.program.json_output import print_lines
from relay.program.spelling import did_you_mean_table

EARLIEST = "earliest"


def _offset(text: str) -> int | str:
    if text == EARLIEST:
        return text
    if not text.isdecimal():
        raise ValueError(f"{text!r} is neither an offset nor {EARLIEST!r}")
    return int(text)


@click.command(cls=ConfiguredCommand)
@config_argument
@click.option("--partition", type=click.IntRange(min=0), help="Rewind only this source partition.")
@click.option("--table", type=TABLE, help="Rewind only this table; others stay as they are.")
@click.option("--all", "whole", is_flag=True, help="Rewind all tables of all source partitions.")
@click.option(
    "--to-offset",
    type=Parsed("offset", _offset),
    help=f'Source offset to read again from; "{EARLIEST}": the first one that is left.',
)
@click.option(
    "--to-time",
    "when_ms",
    type=INSTANT,
    help="Read messages again that were written since this time: ISO 8601 (UTC if it names no "
    "zone), or an age such as 2h or 7d.",
)
@click.option(
    "--keep-rows",
    "keep",
    type=TABLE,
    multiple=True,
    help="Do not remove this table's old rows, for example because you emptied it; repeatable.",
)
@click.option(
    "--despite-views",
    is_flag=True,
    help="Go on although materialized views have counted the old rows; you will correct the views.",
)
@click.option(
    "--despite-replays",
    is_flag=True,
    help="Go on although dead letters that were replayed may become rows twice, also where "
    "marks of replays were deleted, so that nobody knows which.",
)
@click.option(
    "--despite-missing",
    is_flag=True,
    help="Go on although loaded rows cannot be found by their block ids: you say that they are "
    "deleted. If they only lost their ids, they are doubled.",
)
@click.option(
    "--why", default="", metavar="TEXT", help="Your reason; the journal and the ledger keep it."
)
@run_option("Rewind. Without --run the command only prints what it would do.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
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
    despite_missing: bool,
    do: bool,
    as_json: bool,
) -> None:
    """Read source messages again and replace the rows made from them, without doubling a row.

    Whole blocks are replaced: each table goes back to the beginning of the block that holds the
    offset. With --run the command fences the relays (they end with status 7, and a supervisor may
    start them again at any time), records the rewind in the journal, settles the old blocks and
    removes their rows by block id. Until that is done relays stop with status 4; started again
    afterwards, they continue from the new offset. If the command is killed, run it again, or run
    `relay rewind CONFIG --run`: it continues where it stopped. That also repeats the settling and
    the removal of a rewind that a restored or lost ledger does not know; no relay is fenced for it.
    Dead letters of the messages that are read again are written again.

    \b
    Examples:
      relay rewind relay.toml --partition 3 --to-offset 120000
      relay rewind relay.toml --table shop.orders --to-time 2026-08-01T03:00 --run --why 'bad rate'
      relay rewind relay.toml --all --to-offset earliest --run
    Exit status: 0 done · 2 it cannot be done this way or an option is missing, nothing was
    changed · 6 the message says what to do first · 4, 7 interrupted: run it again.
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
    within_one_cluster(settings, "rewind", NEW_APP)
    column = settings.loader.block_column
    consent = RewindConsent(frozenset(keep), despite_views, despite_replays, despite_missing)
    with contextlib.closing(Servers(settings, config_file, chosen_pipeline())) as servers:
        request = None
        if not bare:
            offsets = _offsets(servers, partition, to_offset, when_ms)
            request = RewindRequest(offsets, table, consent)
        if do:
            result = steps.rewind(servers, request, column, lambda: _author(why))
            print_lines(output_rewind.describe_result(result, as_json=as_json))
            return
        positions = servers.look({} if request is None else request.offsets)
        unfinished = steps.unfinished(positions)
        repeated = steps.without_note(servers, positions) if request is None else []
        if unfinished or repeated:
            print_lines(output_rewind.describe_unfinished(unfinished, repeated, as_json=as_json))
        elif request is None:
            raise click.UsageError(
                "no unfinished rewind; say what to rewind: --partition, --table or --all"
            )
        else:
            plan = steps.ready(servers, positions, request, column)
            _warn_of_unknown(table, positions)
            members = [member.name for member in GroupReader(settings).read().members]
            print_lines(output_rewind.describe_plan(plan, positions, members, as_json=as_json))


def _warn_of_unknown(table: str | None, positions: Mapping[int, PartitionPositions]) -> None:
    tables = {name for position in positions.values() for name in position.seals.tables(0)}
    if table and table not in tables:
        hint = did_you_mean_table(table, tables)
        click.echo(f"no message of {table} is in the journal{hint}", err=True)


def _offsets(
    servers: Servers, partition: int | None, to_offset: int | str | None, when_ms: int | None
) -> dict[int, int]:
    """Return offsets by partition; a partition without messages that late is left out."""
    if when_ms is not None:
        offsets = servers.offsets_at(when_ms)
    elif to_offset == EARLIEST:
        offsets = servers.oldest()
    else:
        offsets = dict.fromkeys(range(servers.partitions()), int(to_offset or 0))
    if partition is None:
        return offsets
    if partition >= servers.partitions():
        raise click.UsageError(f"there is no source partition {partition}")
    return {partition: offsets[partition]} if partition in offsets else {}


def _author(why: str) -> RewindAuthor:
    return RewindAuthor("rewind", time.time_ns() // 1_000_000, why)
