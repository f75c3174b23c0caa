"""Prints the screen of `relay status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.markup import escape
from rich.table import Table

from relay.operate.view.journal_state import WINDOW_SECONDS
from relay.operate.view.status import PartitionRow, Screen, StatusTableRow, at_rest
from relay.program.plural import several
from relay.program.text_table import Column, laid_out

_NOT_KNOWN = "?"
_SHOWN = 10  # parked blocks and kinds of dead letters; --json has more


_PARTITION = (
    Column("partition"),
    Column("member", right=False),
    Column("floor", optional=4),
    Column("position", optional=1),
    Column("end", optional=2),
    Column("lag"),
    Column("floor to position", optional=3),
    Column("held ≥", optional=5),
    Column("n", optional=6),
    Column("epoch", optional=7),
    Column("last record"),
)
_TABLE = (
    Column("table", right=False),
    Column("to queryable"),
    Column("sealed, not loaded"),
    Column("claimed"),
    Column("parked"),
    Column("discarded"),
    Column("dead blocks"),
    Column("loaded"),
    Column("dead letters"),
    Column("rows/min"),
)


def screen_parts(screen: Screen, width: int = 160, *, every: bool = False) -> Iterator[Table | str]:
    """Yield the parts of the screen; `every`: with tables at rest and all of partitions."""
    yield from _top(screen)
    if screen.partitions:
        rows = [list(_partition(row)) for row in screen.partitions]
        yield from laid_out(_PARTITION, rows, width, whole=every)
        if any(row.held_seconds is not None for row in screen.partitions):
            yield (
                "[dim]held ≥: minimum age of the partition's oldest buffer, from the journal; "
                "exact age and bytes of buffers are not published[/dim]"
            )
    yield from _tables(screen, width, every=every)
    yield from _parked(screen)
    yield from _dead(screen)
    yield from _bottom(screen)


def _top(screen: Screen) -> Iterator[str]:
    facts = screen.facts
    yield f"[bold]{escape(facts.app)}[/bold]  {clock(facts.now_ms)} UTC  source {facts.source}"
    if not facts.journal:
        yield "no journal yet: no relay has run"
    members = facts.group.members
    yield f"group {facts.group.state}, {several(len(members), 'member')}"
    for member in members:
        partitions = ", ".join(map(str, member.partitions)) or "none"
        yield f"  {escape(member.name)}  {member.host}  partitions {partitions}"
    for trouble in screen.troubles:
        yield f"[red]{escape(trouble.text)}[/red]"
    if facts.ledger.problem:
        yield f"[red]ClickHouse:[/red] {escape(facts.ledger.problem)}"
    elif not facts.ledger.there and not facts.ledger.lost:
        lost = "in loader.database: no loader has run yet, or it was lost (relay docs backup)"
        yield f"no ledger {lost if facts.journal else 'yet: no loader has run'}"


def _partition(row: PartitionRow) -> Iterator[str]:
    yield str(row.partition)
    yield row.member or "none"
    for number in (row.floor, row.position, row.end):
        yield _number(number)
    old = "" if not row.lag or row.lag_seconds is None else f" ({seconds(row.lag_seconds)})"
    yield f"{_number(row.lag)}{old}"
    yield _number(row.held)
    yield "" if row.held_seconds is None else seconds(row.held_seconds)
    yield _number(row.n)
    yield _number(row.epoch)
    yield _NOT_KNOWN if row.quiet_seconds is None else f"{seconds(row.quiet_seconds)} ago"


def _tables(screen: Screen, width: int, *, every: bool) -> Iterator[Table | str]:
    """Those that something is about; of the others how many there are."""
    rest = [row for row in screen.tables if not every and at_rest(row)]
    busy = [row for row in screen.tables if every or not at_rest(row)]
    if busy:
        yield from laid_out(_TABLE, [list(_table(row)) for row in busy], width)
    if rest:
        blocks = sum(row.loaded_blocks or 0 for row in rest)
        rows = sum(row.loaded_rows or 0 for row in rest)
        loaded = f"{several(blocks, 'block')} ({several(rows, 'row')}) loaded"
        hint = "--all shows them, --table NAME shows one"
        yield f"{several(len(rest), 'table')} at rest, {loaded}: {hint}"


def _table(row: StatusTableRow) -> Iterator[str]:
    yield row.table or "(none)"
    yield _NOT_KNOWN if row.lag_seconds is None else seconds(row.lag_seconds)
    yield _blocks(row.waiting_blocks, row.waiting_rows)
    yield _number(row.claimed_blocks)
    yield _blocks(row.parked_blocks, row.parked_rows)
    yield _number(row.discarded_blocks)
    yield _number(row.dead_blocks)
    yield _blocks(row.loaded_blocks, row.loaded_rows)
    yield _number(row.dead_letters)
    yield _number(row.rows_lately)


def _parked(screen: Screen) -> Iterator[str]:
    parked = screen.facts.ledger.parked
    for block in parked[:_SHOWN]:
        why = escape(block.reason)  # whole: which row and value it is stands at its end
        yield f"[yellow]parked[/yellow] {escape(block.id)}  {block.rows:,} rows  {why}"
    more = sum(row.parked_blocks or 0 for row in screen.tables) - len(parked[:_SHOWN])
    if more > 0:
        yield f"and {more:,} more: loader parked ls"


def _dead(screen: Screen) -> Iterator[str]:
    if screen.dead:
        since = (
            f"dead letters since {clock(screen.seen_from_ms)} UTC, in the journal records that "
            "were read"
        )
        exact = all(row.exact for row in screen.dead)
        yield since if exact else f"{since}; `relay dead ls --summary` counts each reason"
    for row in screen.dead[:_SHOWN]:
        why = escape(row.reason_text)
        yield f"  {row.messages:,}  {escape(row.table) or '(no table)'}  {why}"
    if len(screen.dead) > _SHOWN:
        yield f"and {len(screen.dead) - _SHOWN:,} more kinds: relay dead ls --summary"


def _bottom(screen: Screen) -> Iterator[str]:
    lately, facts = screen.lately, screen.facts
    yield (
        f"last minute: {several(lately.messages, 'message')}, {several(lately.rows, 'row')} "
        f"({lately.rows / WINDOW_SECONDS:,.1f}/s), {several(lately.blocks, 'block')}, "
        f"{several(lately.dead_letters, 'dead letter')}"
    )
    yield from _acknowledged(facts.acknowledged)
    if not facts.anomalies:
        yield f"no anomaly in {several(facts.audited, 'journal record')}"
        return
    yield f"[red]anomalies: {len(facts.anomalies):,}[/red] in {facts.audited:,} journal records"
    yield f"the last anomaly: {escape(str(facts.anomalies[-1]))}"


def _acknowledged(texts: Sequence[str]) -> Iterator[str]:
    """No anomaly, and never hidden; the latest first."""
    if texts:
        yield (
            f"[yellow]acknowledged by a person: {len(texts):,}[/yellow], in the journal records "
            "that were read"
        )
    for text in texts[: -_SHOWN - 1 : -1]:
        yield f"  {escape(text)}"
    if len(texts) > _SHOWN:
        yield f"and {len(texts) - _SHOWN:,} earlier ones: relay verify --once"


def seconds(number: float) -> str:
    """Return a span in the unit that a person would use."""
    for limit, size, unit in ((100, 1, "s"), (6_000, 60, "min"), (360_000, 3600, "h")):
        if number < limit:
            return f"{number / size:.1f} {unit}" if unit == "s" else f"{number / size:.0f} {unit}"
    return f"{number / 86_400:.0f} d"


def clock(ms: int) -> str:
    """Return the time in UTC, to the millisecond; the bare number where it is no such time."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds")[:-6]
    except (ValueError, OverflowError, OSError):  # producers may write any timestamp
        return f"{ms} ms"


def _number(number: int | None) -> str:
    return _NOT_KNOWN if number is None else f"{number:,}"


def _blocks(blocks: int | None, rows: int | None) -> str:
    if blocks is None or rows is None:
        return _NOT_KNOWN
    return f"{blocks:,} ({several(rows, 'row')})"
