"""`relay status`: what was read, as the rows of one screen. Pure.

What nobody publishes is None, never guessed.
"""

# pure

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from relay.operate.view.facts import StatusFacts
from relay.operate.view.journal_state import JournalState, Lately, Listed, PartitionState
from relay.operate.view.missing_programs import (
    Trouble,
    UnsettledBlocks,
    find_held_back,
    find_missing_programs,
    find_silent_partitions,
)
from relay.records_pb2 import Block
from relay.schema.dead_reason import DeadKind


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A source partition; offsets are the source topic's.

    Attributes:
        lag: offsets from the position to the end, 0 where only transactions' markers are left;
            None where either is not known.
        lag_seconds: age of the oldest message among them; 0: there is none; None: not known.
        held: offsets from floor to position: what a restart reads again.
        held_seconds: a buffer that begins at the floor is at least so old; None: there is none.
        quiet_seconds: since the last journal record.
        hidden: offsets beyond the end, behind a transaction that is open; in no lag.
        hidden_seconds: age of the first message among them; None: there is none, or not known.
    """

    partition: int
    member: str
    end: int | None = None
    n: int | None = None
    epoch: int | None = None
    floor: int | None = None
    position: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    held: int | None = None
    held_seconds: float | None = None
    quiet_seconds: float | None = None
    hidden: int = 0
    hidden_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StatusTableRow:
    """A table.

    Attributes:
        lag_seconds: age of the oldest source message in a block that is sealed and not loaded
            (nor parked nor discarded); 0 where there is none; None where ClickHouse is away.
        waiting_blocks, waiting_rows: of those blocks.
        dead_letters: messages, in the records that were read.
        dead_blocks: of messages that a loader left out of others, and that are dead letters.
        rows_lately: sealed in the last minute.
    """

    table: str
    dead_letters: int
    rows_lately: int
    lag_seconds: float | None = None
    waiting_blocks: int | None = None
    waiting_rows: int | None = None
    claimed_blocks: int | None = None
    loaded_blocks: int | None = None
    loaded_rows: int | None = None
    parked_blocks: int | None = None
    parked_rows: int | None = None
    discarded_blocks: int | None = None
    dead_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class DeadRow:
    """Dead letters of one table, in the records that were read, by what the journal says of them.

    Attributes:
        kind: of the reason, as relay.schema.dead_reason has it.
        reason: of one of them.
        exact: whether all are of this kind; else it is that of the first in each seal, for the
            journal keeps no other.
    """

    table: str
    kind: str
    reason: str
    messages: int
    exact: bool

    @property
    def reason_text(self) -> str:
        """The kind, as far as it is true, and a reason."""
        kind = "" if self.kind == DeadKind.UNKNOWN else f"{self.kind}: "
        return f"{'' if self.exact else 'first reason: '}{kind}{self.reason}"


@dataclass(frozen=True, slots=True)
class Screen:
    """All of it.

    Attributes:
        seen_from_ms: the time of the oldest journal record read, 0 for none.
        troubles: what is wrong though no record is; empty where nothing is.
    """

    facts: StatusFacts
    partitions: tuple[PartitionRow, ...]
    tables: tuple[StatusTableRow, ...]
    dead: tuple[DeadRow, ...]
    lately: Lately
    seen_from_ms: int
    troubles: tuple[Trouble, ...] = ()


def assemble(seen: JournalState, facts: StatusFacts) -> Screen:
    """Return the screen of now."""
    lately = seen.lately(facts.now_ms)
    dead = (
        DeadRow(key[0], key[1].value, seen.reasons[key], n, seen.exact[key])
        for key, n in seen.dead.most_common()
    )
    partitions = tuple(_partitions(seen.heads, facts))
    return Screen(
        facts=facts,
        partitions=partitions,
        tables=tuple(_tables(seen, facts, lately)),
        dead=tuple(dead),
        lately=lately,
        seen_from_ms=seen.first_ms,
        troubles=tuple(_troubles(seen, facts, partitions)),
    )


def _troubles(
    seen: JournalState, facts: StatusFacts, partitions: Iterable[PartitionRow]
) -> Iterator[Trouble]:
    owners = {row.partition: row.member for row in partitions}
    lags = [row.lag for row in partitions]
    unread = None if None in lags else sum(lag or 0 for lag in lags)
    sealed = [listed.block.sealed_at_ms for listed in waiting_of(seen, facts)]
    waiting = UnsettledBlocks(
        None if facts.ledger.problem else len(sealed),
        min(sealed, default=0),
        facts.ledger.settled_ms,
        facts.ledger.lost if facts.journal else "",
    )
    yield from find_missing_programs(facts.now_ms, facts.group, owners, unread, waiting)
    yield from find_held_back(facts.now_ms, facts.hidden)
    yield from find_silent_partitions(facts.silent)


def waiting_of(seen: JournalState, facts: StatusFacts) -> list[Listed]:
    """Return blocks that are sealed and that no loader has settled."""
    states, unsettled = facts.ledger.states, {"", "prepared"}
    return [entry for entry in seen.open.values() if states.get(entry.block.id, "") in unsettled]


def _partitions(heads: Mapping[int, PartitionState], facts: StatusFacts) -> Iterable[PartitionRow]:
    owners = {p: member.name for member in facts.group.members for p in member.partitions}
    for partition in sorted({*heads, *facts.ends, *owners}):
        head, end = heads.get(partition), facts.ends.get(partition)
        row = PartitionRow(partition, owners.get(partition, ""), end)
        if hidden := facts.hidden.get(partition):
            age = _age(facts.now_ms, hidden.since_ms)
            row = replace(row, hidden=hidden.offsets, hidden_seconds=age)
        if head is None:
            yield row
            continue
        held = head.position - head.floor
        # The journal was read after the source's end was asked for.
        lag, unread_ms = None, facts.unread_ms.get(partition)
        if unread_ms == 0:
            lag = 0
        elif end is not None:
            lag = max(end - head.position, 0)
        lag_seconds = 0.0 if lag == 0 else None if lag is None else _age(facts.now_ms, unread_ms)
        yield replace(
            row,
            n=head.n,
            epoch=head.epoch,
            floor=head.floor,
            position=head.position,
            lag=lag,
            lag_seconds=lag_seconds,
            held=held,
            held_seconds=_age(facts.now_ms, head.held_since_ms) if held else None,
            quiet_seconds=_age(facts.now_ms, head.written_at_ms),
        )


def _tables(seen: JournalState, facts: StatusFacts, lately: Lately) -> Iterable[StatusTableRow]:
    ledger = facts.ledger
    dead: Counter[str] = Counter()
    for (table, _), messages in seen.dead.items():
        dead[table] += messages
    blocks = Counter({(table, state): n for table, state, n, _ in ledger.counts})
    rows = Counter({(table, state): n for table, state, _, n in ledger.counts})
    waiting: dict[str, list[Listed]] = {}
    for listed in waiting_of(seen, facts):
        waiting.setdefault(listed.block.table, []).append(listed)
    for table in sorted({*seen.tables, *dead, *waiting, *(counts[0] for counts in ledger.counts)}):
        fresh = lately.rows_by_table.get(table, 0)
        if ledger.problem:
            yield StatusTableRow(table, dead[table], fresh)
            continue
        blocks_open = [listed.block for listed in waiting.get(table, [])]
        oldest = min(map(_first_ms, blocks_open), default=facts.now_ms)
        yield StatusTableRow(
            table=table,
            dead_letters=dead[table],
            rows_lately=fresh,
            lag_seconds=_age(facts.now_ms, oldest),
            waiting_blocks=len(blocks_open),
            waiting_rows=sum(block.rows for block in blocks_open),
            claimed_blocks=sum(ledger.states.get(b.id) == "prepared" for b in blocks_open),
            loaded_blocks=blocks[table, "loaded"],
            loaded_rows=rows[table, "loaded"],
            parked_blocks=blocks[table, "parked"] + blocks[table, "aside"],
            parked_rows=rows[table, "parked"] + rows[table, "aside"],
            discarded_blocks=blocks[table, "discarded"],
            dead_blocks=blocks[table, "dead"],
        )


def at_rest(row: StatusTableRow) -> bool:
    """Return whether nothing waits, nothing went wrong lately and nothing comes."""
    waits = (row.waiting_blocks, row.parked_blocks)
    return waits == (0, 0) and not (row.dead_letters or row.dead_blocks or row.rows_lately)


def of_tables(screen: Screen, tables: Collection[str]) -> Screen:
    """Return what of it is about these tables, and what is about none."""
    ledger = screen.facts.ledger
    parked = tuple(block for block in ledger.parked if block.table in tables)
    return replace(
        screen,
        facts=replace(screen.facts, ledger=replace(ledger, parked=parked)),
        tables=tuple(row for row in screen.tables if row.table in tables),
        dead=tuple(row for row in screen.dead if row.table in tables),
    )


def _first_ms(block: Block) -> int:
    """When the oldest message was written, or else when its buffer was closed."""
    return block.first_timestamp_ms if block.first_timestamp_ms > 0 else block.sealed_at_ms


def _age(now_ms: int, then_ms: int | None) -> float | None:
    """Seconds; clocks may differ, so never below 0."""
    return None if then_ms is None else max(now_ms - then_ms, 0) / 1000


def as_json(screen: Screen) -> dict[str, Any]:
    """Return it as JSON has it; times are Unix milliseconds, what is not known is null."""
    facts = screen.facts
    last = facts.anomalies[-1] if facts.anomalies else None
    return {
        "app": facts.app,
        "at_ms": facts.now_ms,
        "journal": facts.journal,
        "group": asdict(facts.group),
        "troubles": [asdict(trouble) for trouble in screen.troubles],
        "partitions": [asdict(row) for row in screen.partitions],
        # Only the relay's memory holds them; what the journal tells is held_seconds above.
        "buffers": None,
        "clickhouse": facts.ledger.problem or "ok",
        "ledger": facts.ledger.there,
        "tables": [asdict(row) for row in screen.tables],
        "parked": [asdict(block) for block in facts.ledger.parked],
        "last_minute": asdict(screen.lately),
        "dead_letters": [asdict(row) for row in screen.dead],
        "seen_from_ms": screen.seen_from_ms or None,
        "audited_records": facts.audited,
        "anomalies": len(facts.anomalies),
        "last_anomaly": None if last is None else last.as_json(),
        "acknowledged": list(facts.acknowledged),
    }
