"""`loader status`: shows how far the loader is, and which blocks wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from loader.cli.options import config_argument, settings_of
from loader.journal.startup import ledger_of
from loader.operate import status as operate_status
from loader.operate.status import LoaderFacts, LoaderStatus, LoaderTableRow, PositionRow
from relay import names
from relay.config.settings import Settings
from relay.kafka.topics import READ, Topics
from relay.program.config_argument import ConfiguredCommand
from relay.program.console import console_of, print_parts
from relay.program.json_output import print_json
from relay.program.text_table import Column, laid_out

WIDTH = 140  # columns, where there is no terminal to ask


@click.command(cls=ConfiguredCommand)
@config_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(config_file: Path, *, as_json: bool) -> None:
    """Show each table's blocks by state, the oldest waiting block, and progress in the journal.

    \b
    sealed     no loader has begun to load it
    claimed    a loader is loading it, or stopped in the middle
    loaded     its rows are in the table
    aside      the table or a limit refuses it for now; the loader retries it at least every
               two minutes
    parked     a person has to decide (`loader parked`)
    discarded  a person gave it up
    dead       its messages were left out of another block, and are dead letters

    The command starts no Spark, changes nothing, and may run beside a loader.

    \b
    loader status relay.toml
    loader status relay.toml --json | jq '.tables[] | select(.oldest_seconds > 60)'
    """
    loader_status = operate_status.assemble(_facts(settings_of(config_file)))
    if as_json:
        print_json(operate_status.as_json(loader_status))
        return
    console = console_of(WIDTH)
    print_parts(console, _shown(loader_status, console.width))


def _facts(settings: Settings) -> LoaderFacts:
    ledger = ledger_of(settings)
    there = ledger.exists()
    counts = ledger.counts() if there else []
    waiting = ledger.waiting() if there else []
    parked = [entry for entry in waiting if not entry.aside]
    aside = [entry for entry in waiting if entry.aside]
    now_ms = time.time_ns() // 1_000_000
    topic = names.journal_topic(settings.app)
    has_journal = Topics(settings).describe(topic, (READ,)) is not None
    facts = LoaderFacts(now_ms, has_journal, there, counts=counts, parked=parked, aside=aside)
    if not has_journal:
        return facts
    # Spark's Python, which `loader parked` mostly does without.
    from loader.journal.sealed_blocks import sealed  # noqa: PLC0415

    journal = sealed(settings, ledger if there else None)
    return replace(
        facts,
        sealed=journal.blocks,
        entries=ledger.entries(journal.blocks) if there else {},
        positions=journal.settled,
        ends=journal.ends,
        checkpoint=_checkpoint(Path(settings.loader.checkpoint), journal.begun.journal),
    )


def _checkpoint(directory: Path, journal: str) -> dict[int, int] | None:
    """Return where the last batch that Spark committed ended; None where it is not on this disk."""
    try:
        batches = [int(one.name) for one in (directory / "commits").iterdir() if one.name.isdigit()]
        text = (directory / "offsets" / str(max(batches, default=-1))).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return operate_status.checkpointed(text, journal)


def _shown(loader_status: LoaderStatus, width: int) -> Iterator[Table | str]:
    if not loader_status.facts.journal:
        yield "no journal yet: no relay has run"
    if not loader_status.facts.ledger:
        yield operate_status.without_ledger(loader_status.facts)
    if loader_status.tables:
        columns, cells = zip(*_TABLE, strict=True)
        rows = [[cell(row) for cell in cells] for row in loader_status.tables]
        yield from laid_out(columns, rows, width)
    if loader_status.positions:
        yield _positions(loader_status.positions)
    waiting = [*loader_status.facts.parked, *loader_status.facts.aside]
    for entry in waiting[:10]:
        state = f"set aside, {operate_status.tried(entry)}," if entry.aside else "parked"
        yield f"{state} {escape(entry.block.id)}  {entry.block.rows:,} rows  {escape(entry.reason)}"
    if len(waiting) > 10:
        yield f"and {len(waiting) - 10:,} more: loader parked ls"


def _blocks(blocks: int, rows: int) -> str:
    return f"{blocks:,} ({rows:,} rows)"


_TABLE: tuple[tuple[Column, Callable[[LoaderTableRow], str]], ...] = (
    (Column("table", right=False), lambda row: row.table),
    (Column("sealed"), lambda row: _blocks(row.sealed_blocks, row.sealed_rows)),
    (Column("claimed"), lambda row: f"{row.claimed_blocks:,}"),
    (Column("loaded"), lambda row: _blocks(row.loaded_blocks, row.loaded_rows)),
    (Column("aside"), lambda row: f"{row.aside_blocks:,}"),
    (Column("parked"), lambda row: _blocks(row.parked_blocks, row.parked_rows)),
    (Column("discarded"), lambda row: f"{row.discarded_blocks:,}"),
    (Column("dead", optional=1), lambda row: f"{row.dead_blocks:,}"),
    (Column("oldest waiting", right=False), lambda row: row.oldest),
    (
        Column("for"),
        lambda row: "" if row.oldest_seconds is None else f"{row.oldest_seconds:,.1f} s",
    ),
)


def _positions(rows: tuple[PositionRow, ...]) -> Table:
    table = Table("journal partition", "settled up to", "checkpoint", "end")
    for column in table.columns:
        column.justify = "right"
    for row in rows:
        offsets = (row.ledger, row.checkpoint, row.end)
        table.add_row(str(row.partition), *("none" if n is None else f"{n:,}" for n in offsets))
    return table
