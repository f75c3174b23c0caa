"""The verdicts: each judge is a pure function of facts that were read separately, and gives
the anomalies it found, in words; none means that the facts are as promised.

It knows nothing of the product's code: ranges of numbers, rows, offsets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.chaos import rows
from tests.chaos.facts import table_of
from tests.chaos.lost import excused
from tests.chaos.rows import TABLES
from tests.chaos.truth import ABORTED, COMMITTED
from tests.model.judge import chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from relay.records_pb2 import Block, Commit
    from tests.chaos.ends import Head, Stable
    from tests.chaos.facts import Facts, Seen
    from tests.chaos.rows import Numbers, Range, Rows

_SHOWN = 5
_NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class Verdict:
    """Anomalies by judge, and the figures they were judged on."""

    anomalies: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not any(self.anomalies.values())


def whole(facts: Facts) -> Verdict:
    """Every judge of a campaign that stands still."""
    return Verdict(
        {
            "source": source(facts),
            "rows": contents(facts),
            "views": views(facts),
            "retention": retention(facts),
            "dead letters": dead_letters(facts),
            "order": order(facts),
            "places": places(facts),
            "aborted": aborted(facts),
            "chain": [a for p, commits in facts.journal.items() for a in floors(p, commits)],
        },
        {
            "rows": sum(s.rows.count for s in facts.source if s.meant != rows.BAD),
            "rows_in_clickhouse": sum(len(t.numbers) for t in facts.tables.values()),
            "rows_aborted": facts.truth.rows(ABORTED),
            "messages": len(facts.source),
            "dead_letters": len(facts.dead),
            "dead_without_table": len(_refused(facts, facts.source)),
            "rows_behind_views": sum(len(v.numbers) for v in facts.views.values()),
            "blocks": sum(len(c.blocks) for cs in facts.journal.values() for c in cs),
            "blocks_in_shared_chunks": sum(
                b.HasField("share") for cs in facts.journal.values() for c in cs for b in c.blocks
            ),
            "relay_transactions": sum(map(len, facts.journal.values())),
            "parked_rows": sum(facts.parked.values()),
        },
    )


def source(facts: Facts) -> list[str]:
    """The source holds what its producers were told: else nothing behind it can be judged."""
    seen = Counter(message.rows for message in facts.source)
    told = {ranges: outcome for ranges, _, outcome in facts.truth.told}
    found = [f"{r} is in the source {n} times" for r, n in seen.items() if n > 1]
    found += [f"{r} is in the source, and was never sent" for r in seen.keys() - told.keys()]
    for ranges, outcome in told.items():
        if outcome == COMMITTED and not seen[ranges]:
            found.append(f"{ranges} was committed to the source and is not there")
        if outcome == ABORTED and seen[ranges]:
            found.append(f"{ranges} was aborted and is visible in the source")
    return found


def contents(facts: Facts) -> list[str]:
    """ClickHouse holds each committed row once, with its contents, and no other.

    Or has held it: a row that went with a dropped table is there, and one too many if it is in the
    new one as well. A row that a TTL may delete is there once or not at all.
    """
    expected = _expected(facts)
    found: list[str] = []
    for index, table in enumerate(TABLES):
        held = facts.tables.get(index, rows.joined([]))
        stays = (lambda want: want[~rows.expired(want)]) if table.expires else (lambda want: want)
        found += _held(table.name, index, expected, held, facts.parked.get(index, 0), stays)
    return found


def views(facts: Facts) -> list[str]:
    """A view behind a table has written each of its rows once, whatever became of them there."""
    expected = _expected(facts)
    found: list[str] = []
    for index, table in enumerate(TABLES):
        if table.viewed:
            held = facts.views.get(index, rows.joined([]))
            forgiven = facts.parked.get(index, 0)
            found += _held(f"behind {table.name}", index, expected, held, forgiven)
    return found


def _held(
    name: str,
    index: int,
    expected: dict[tuple[int, int], Numbers],
    held: Rows,
    parked: int,
    stays: Callable[[Numbers], Numbers] = lambda want: want,
) -> list[str]:
    """What of the rows expected of a table is not as it should be where these are held.

    Args:
        name: for people.
        index: of the table.
        expected: numbers by table and partition.
        held: what is there.
        parked: rows of blocks that wait for a person: so many may be there or not.
        stays: those of some numbers that nothing deletes.
    """
    found = []
    if wrong := rows.altered(index, held):
        found.append(f"{name}: {wrong} rows do not hold what was sent")
    lost, told = 0, []
    for partition in sorted(
        _partitions(expected, index) | set(np.unique(held.partitions).tolist())
    ):
        want = expected.get((index, partition), _NONE)
        have = held.of(partition)
        lost += len(np.setdiff1d(stays(want), have))
        told += [(f"{name} from partition {partition}", d) for d in compare(want, have, stays)]
    forgiven = lost <= parked
    return found + [f"{where}: {d}" for where, d in told if not (forgiven and "lost" in d)]


def retention(facts: Facts) -> list[str]:
    """Of block topics and journal nothing is gone but what the campaign deleted.

    What it deleted may come back: a broker that is killed forgets where a log began (it notes that
    once a minute).
    """
    return [
        f"{topic}[{partition}] begins at {first}, and what was before {before} was deleted"
        for (topic, partition), (first, before) in sorted(facts.starts.items())
        if first > before
    ]


def dead_letters(facts: Facts) -> list[str]:
    """Each message that cannot become rows is one dead letter, whole; nothing else is one.

    A message of a table that was not there may be one: then its rows are nowhere else.
    """
    want = Counter(
        (m.partition, m.offset, rows.bad_message(m.rows))
        for m in facts.source
        if m.meant == rows.BAD
    )
    want += Counter(
        (m.partition, m.offset, rows.message(m.rows)) for m in _refused(facts, facts.source)
    )
    have = Counter(facts.dead)
    found = [f"lost: no dead letter for {place}" for place in (want - have).elements()]
    return found + [f"too many: dead letter {place}" for place in (have - want).elements()]


def _refused(facts: Facts, source: Iterable[Seen]) -> list[Seen]:
    """Well formed messages that are dead letters because their table was not there."""
    places = {(partition, offset) for partition, offset, _ in facts.dead}
    return [
        m
        for m in source
        if m.meant != rows.BAD
        and (m.partition, m.offset) in places
        and excused(facts.absences, m.rows.table, m.sent_at_ms)
    ]


def order(facts: Facts) -> list[str]:
    """Judge that each row is in its table's block topic once, whatever the partition, and that a
    partition has those of each source partition in the source's order."""
    expected = _expected(facts)
    found = []
    for index, table in enumerate(TABLES):
        held = _in_blocks(facts, index)
        together = rows.joined(list(held.values()))
        if wrong := rows.altered(index, together):
            found.append(f"blocks of {table.name}: {wrong} rows do not hold what was sent")
        seen = set(np.unique(together.partitions).tolist())
        for partition in sorted(_partitions(expected, index) | seen):
            name = f"blocks of {table.name} from partition {partition}"
            want = expected.get((index, partition), _NONE)
            found += [f"{name}: {d}" for d in compare(want, together.of(partition))]
            found += [
                f"{name}: not in the source's order in partition {place}"
                for place, there in sorted(held.items())
                if not _in_order(want, there.of(partition))
            ]
    return found


def places(facts: Facts) -> list[str]:
    """Judge that a source partition's blocks, in the journal's order, are its rows in the source's.

    So the order is judged also where the rows lie in several partitions of a block topic, and none
    of them lies where the journal does not say.
    """
    expected = _expected(facts)
    told: dict[tuple[int, int], list[Numbers]] = defaultdict(list)
    found = []
    for partition, commits in sorted(facts.journal.items()):
        for block in (b for commit in commits for b in commit.blocks):
            index, own = table_of(block), _own_rows(facts, block)
            name = f"block {block.id} of {TABLES[index].name} from partition {partition}"
            if own is None:
                found.append(f"{name}: its {block.rows} rows are not where the journal says")
                continue
            partitions, numbers = own
            if (partitions != partition).any():
                found.append(f"{name}: rows of another partition")
            told[index, partition].append(numbers)
    for index, partition in sorted(expected.keys() | told.keys()):
        want = expected.get((index, partition), _NONE)
        have = np.concatenate([_NONE, *told.get((index, partition), ())])
        if not np.array_equal(want, have):
            name = f"{TABLES[index].name} from partition {partition} as the journal says"
            differences = compare(want, have) or ["not in the source's order"]
            found += [f"{name}: {d}" for d in differences]
    return found


def _own_rows(facts: Facts, block: Block) -> tuple[Numbers, Numbers] | None:
    """Return source partition and number of each of a block's rows, from where the journal says.

    None: there are not as many.
    """
    shared = block.HasField("share")
    partition = block.share.partition if shared else block.partition
    chunks = facts.blocks.get((table_of(block), partition))
    if chunks is None:
        return None
    begin, end = np.searchsorted(chunks.offsets, (block.first_offset, block.next_offset)).tolist()
    first = begin + block.share.first_row  # 0 where it shares none
    last = first + block.rows
    if last > end or (last < end and not shared):
        return None
    return chunks.rows.partitions[first:last], chunks.rows.numbers[first:last]


def _in_blocks(facts: Facts, index: int) -> dict[int, Rows]:
    """Return the rows of a table by partition of its block topic."""
    return {place: held.rows for (table, place), held in facts.blocks.items() if table == index}


def _in_order(want: Numbers, have: Numbers) -> bool:
    """Tell whether those that are wanted are in the order of the wanted ones."""
    return np.array_equal(want[np.isin(want, have)], have[np.isin(have, want)])


def aborted(facts: Facts) -> list[str]:
    """No row of an aborted transaction of the source is in a block or in ClickHouse."""
    gone: dict[tuple[int, int], list[Range]] = defaultdict(list)
    for ranges, _, outcome in facts.truth.told:
        if outcome == ABORTED:
            gone[ranges.table, ranges.partition].append(ranges)
    found = []
    for (index, partition), ranges in gone.items():
        numbers = _numbers(ranges)
        blocks = _in_blocks(facts, index).values()
        there = {
            "blocks": np.concatenate([_NONE, *(held.of(partition) for held in blocks)]),
            "ClickHouse": facts.tables.get(index, rows.joined([])).of(partition),
        }
        for where, held in there.items():
            if (count := int(np.isin(held, numbers).sum())) > 0:
                name = TABLES[index].name
                found.append(f"{count} aborted rows of {name} from {partition} are in {where}")
    return found


def floors(partition: int, commits: Sequence[Commit]) -> list[str]:
    """The chain of floors is whole, and flush points count what blocks and dead letters hold."""
    records: list[Any] = [
        SimpleNamespace(
            **{name: getattr(commit, name) for name in _CHAINED},
            results=[
                *(SimpleNamespace(dead_messages=0, block=block) for block in commit.blocks),
                *(SimpleNamespace(dead_messages=d.messages, block=None) for d in commit.dead),
            ],
        )
        for commit in commits
    ]
    return list(chain(partition, records))


_CHAINED = (
    *("n", "previous_floor", "floor", "position", "marks", "reference", "count"),
    "flush_point",
)


def torn(heads: Iterable[Head]) -> list[str]:
    """The committed offset of a partition is the floor of the journal's head, and names it."""
    return [
        f"partition {h.partition}: committed (floor, n, journal offset) is {h.committed}, "
        f"the journal's head {h.journal}"
        for h in heads
        if h.committed != h.journal
    ]


def hanging(stables: Iterable[Stable]) -> list[str]:
    """No transaction is open: every last stable offset is the high watermark."""
    return [
        f"{s.topic}[{s.partition}]: last stable offset {s.stable}, high watermark {s.high}"
        for s in stables
        if s.stable != s.high
    ]


def compare(
    want: Numbers, have: Numbers, stays: Callable[[Numbers], Numbers] = lambda want: want
) -> list[str]:
    """What of `want` is missing in `have` though it stays, doubled, or not wanted."""
    unique, times = np.unique(have, return_counts=True)
    found = []
    for what, numbers in (
        ("lost", np.setdiff1d(stays(want), unique)),
        ("doubled", unique[times > 1]),
        ("never committed", np.setdiff1d(unique, want)),
    ):
        if len(numbers):
            shown = ", ".join(map(str, numbers[:_SHOWN].tolist()))
            found.append(f"{len(numbers)} rows {what}, the first: {shown}")
    return found


def _expected(facts: Facts) -> dict[tuple[int, int], Numbers]:
    """By table and partition, the numbers of the visible rows, in the source's order."""
    refused = {(m.partition, m.offset) for m in _refused(facts, facts.source)}
    ranges: dict[tuple[int, int], list[Range]] = defaultdict(list)
    for message in facts.source:
        if message.meant != rows.BAD and (message.partition, message.offset) not in refused:
            ranges[message.rows.table, message.partition].append(message.rows)
    return {place: _numbers(parts) for place, parts in ranges.items()}


def _numbers(ranges: Sequence[Range]) -> Numbers:
    return np.concatenate([np.arange(r.first, r.first + r.count) for r in ranges])


def _partitions(expected: Iterable[tuple[int, int]], table: int) -> set[int]:
    return {partition for index, partition in expected if index == table}
