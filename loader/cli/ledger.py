"""`loader ledger`: removes ledger entries that no loader needs any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from loader.cli.options import config_argument, settings_of
from loader.journal.startup import ledger_of
from loader.operate.clean import Cleaned, clean
from relay.errors import ConfigError
from relay.program.command import WholeGroup
from relay.program.json_output import print_json

_DAY = 86_400


@click.group(cls=WholeGroup)
def ledger() -> None:
    """Maintain the ledger, the table that records which blocks are loaded.

    \b
    loader ledger clean relay.toml
    loader ledger clean relay.toml --run
    """


@ledger.command("clean")
@config_argument
@click.option(
    "--run",
    is_flag=True,
    help="Remove entries. Without --run the command only prints what it would remove.",
)
@click.option(
    "--gone",
    multiple=True,
    metavar="TOPIC-ID",
    help="Also remove entries that belong to this deleted journal; `loader run` prints its id.",
)
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(min=2),
    default=7,
    show_default=True,
    metavar="DAYS",
    help="Keep entries of blocks that were settled within this many days.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def clean_command(
    config_file: Path, *, run: bool, gone: tuple[str, ...], days: int, as_json: bool
) -> None:
    """Remove ledger entries that no loader needs any more.

    These are old positions, and entries of blocks that are loaded or discarded and whose journal
    records Kafka's retention has deleted. Blocks that wait for a person stay, as does every block
    that is still in the journal. Loaders may keep running. Afterwards `loader status` shows fewer
    loaded blocks, because it counts the ledger's entries.

    \b
    loader ledger clean relay.toml
    loader ledger clean relay.toml --older-than 30 --run
    loader ledger clean relay.toml --gone wQ9q0J0bQ2a5xM3p0Zr1Yg --run
    """
    settings = settings_of(config_file)
    table = ledger_of(settings)
    if not table.exists():
        raise ConfigError(
            f"there is no ledger {table.name}", "Start `loader run` once, which creates it."
        )
    cleaned = clean(settings, table, gone, days * _DAY, run=run)
    if as_json:
        print_json({"app": settings.app, "removed": run, **asdict(cleaned)})
        return
    for line in _describe(cleaned, gone, days, run=run):
        click.echo(line)


def _describe(cleaned: Cleaned, gone: tuple[str, ...], days: int, *, run: bool) -> Iterator[str]:
    does = "removed" if run else "would be removed"
    for table, blocks in cleaned.blocks.items():
        yield f"{table}: {blocks['old']:,} blocks whose journal records were deleted {does}"
        if blocks["new"]:
            young = f"they were settled less than {days} days ago"
            yield f"  {blocks['new']:,} blocks are kept: {young}"
        if blocks["unsettled"]:
            yield (
                f"  {blocks['unsettled']:,} blocks are kept: they are not settled, see `loader "
                "parked ls`"
            )
    yield f"positions: {cleaned.rows['positions']:,} old rows {does}, the newest kept"
    if gone:
        yield (
            f"deleted journals: {cleaned.rows['gone']:,} rows {does}; {cleaned.unsettled:,} of "
            "their blocks were never loaded, and are lost"
        )
    for other in cleaned.others:
        if other not in gone:
            yield (
                f"all entries of journal {other}, which is not the present topic, are kept; "
                f"--gone {other} removes them"
            )
    if not run:
        yield "nothing was changed; add --run to remove the entries"
