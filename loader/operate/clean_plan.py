"""Decides which ledger entries may be removed; pure.

Receives what ledger and journal say, gives conditions in SQL about the ledger's rows. Removed are

* entries of blocks that are loaded, discarded or dead, that lie before the ledger's position, whose
  journal records retention has deleted, and that nothing has been said of for a while: no loader
  meets such a block again, but one that was paused since (loader.spark.known_blocks says why it
  does nothing);
* positions, but for the newest of each journal partition, and what starts noted likewise: how far
  they looked at dead letters, and up to where the ledger may lack entries;
* everything of a journal that was deleted, once a person has named it.

All else stays: entries of blocks that the journal still holds, or that wait for a person.

An app may have thousands of tables and partitions, and thousands of blocks that wait. So there are
several conditions, each short enough for a statement, and no two of them about the same row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from loader.core.positions import Noted, newest
from relay.clickhouse.http_pool import in_lists
from relay.clickhouse.quoting import literal
from relay.names import FIRST_EPOCHS, SUPERSEDED, BlockId, first_epoch

_TEXT = 50_000
"""Bytes of a list in a statement. A server parses 256 KiB (max_query_size), and on a cluster Keeper
takes 1 MiB for a mutation. One has the keys of some tables twice, and ids of blocks that stay."""
_NUMBERS = 50
"""Bytes that a key takes at most beside its table: partition, epoch, offset and punctuation."""
_END = "toInt64(9223372036854775807)"
_REWINDS = 1 << 20
"""Far more than a journal sees."""
_PARTITION, _EPOCH, _FIRST = (f"toInt64OrZero(splitByChar(':', block)[{n}])" for n in (3, 4, 5))
_FINAL = "state IN ('loaded', 'discarded', 'dead')"
_IS_BLOCK = "table != '' AND state != 'position'"


@dataclass(slots=True)
class Retained:
    """What the journal still holds.

    Attributes:
        epochs: of the first record, by partition; a partition without records is not in it.
        oldest: epoch and first source offset of the oldest block, by table and partition.
        partitions: read to their ends, of which all before is settled.
    """

    epochs: dict[int, int] = field(default_factory=dict)
    oldest: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    partitions: set[int] = field(default_factory=set)

    def add(self, partition: int, epoch: int, blocks: Iterable[str]) -> None:
        """Add the next record of a partition, with the ids of its blocks.

        Raises:
            ValueError: one is not a block id.
        """
        self.epochs.setdefault(partition, epoch)
        for block in blocks:
            name = BlockId.parse(block)
            place, at = (name.table, partition), (name.epoch, name.first_offset)
            self.oldest[place] = min(at, self.oldest.get(place, at))


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions in SQL about the ledger's rows of one app.

    Attributes:
        before: blocks whose journal records are gone, each of some tables.
        positions: that are not the newest, and what starts noted.
        gone: of deleted journals; empty: none.
    """

    before: Sequence[str]
    positions: Sequence[str]
    gone: str


def conditions(journal: str, noted: Noted, retained: Retained, gone: Sequence[str]) -> Conditions:
    """Return what may be removed.

    `journal` is the topic id of the app's journal now, and `gone` are those of deleted journals, as
    the person named them.
    """
    older = (
        f"(block = {literal(block)} AND attempt < {attempt})"
        for block, attempt in sorted(newest(noted).items())
    )
    return Conditions(
        list(_before(journal, retained)),
        [" OR ".join(some) for some in in_lists(older, len, _TEXT)],
        _gone(journal, noted, retained, gone),
    )


def _before(journal: str, retained: Retained) -> Iterator[str]:
    """Yield conditions that together are about all tables, known to the journal or not."""
    if not retained.partitions:
        return
    partitions = ", ".join(map(str, sorted(retained.partitions)))
    mine = " OR ".join(_families(journal, retained))
    condition = f"{_IS_BLOCK} AND {_PARTITION} IN ({partitions})"
    if mine:
        condition += f" AND ({mine})"
    tables = [list(keys) for _, keys in groupby(sorted(retained.oldest), lambda key: key[0])]
    stretches = list(in_lists(tables, _length, _TEXT))
    begins = ["", *(literal(tables[0][0][0]) for tables in stretches[1:])]
    for begin, end, some in zip(begins, [*begins[1:], ""], stretches or [[]], strict=True):
        yield "".join(
            (
                condition,
                f" AND table >= {begin}" if begin else "",
                f" AND table < {end}" if end else "",
                _older({key: retained.oldest[key] for keys in some for key in keys}),
            )
        )


def _length(keys: Sequence[tuple[str, int]]) -> int:
    return sum(len(literal(table).encode()) + _NUMBERS for table, _ in keys)


def _older(oldest: Mapping[tuple[str, int], tuple[int, int]]) -> str:
    """Return the condition that blocks are older than the journal's oldest of table and partition.

    They are sealed in the order of epoch and offset. `transform` looks a key up in a hash table,
    for each of the ledger's rows.
    """
    if not oldest:
        return ""
    keys = ", ".join(literal(f"{table}:{partition}") for table, partition in oldest)
    epochs, firsts = (
        f"transform(concat(table, ':', toString({_PARTITION})), [{keys}], "
        f"CAST([{', '.join(map(str, numbers))}], 'Array(Int64)'), {_END})"
        for numbers in zip(*oldest.values(), strict=True)
    )
    return f" AND ({_EPOCH}, {_FIRST}) < ({epochs}, {firsts})"


def _families(journal: str, retained: Retained) -> Iterable[str]:
    """Yield which epochs are this journal's, by partition.

    Those of versions before the first epoch was derived from the topic id count from 0.
    """
    for old in (True, False):
        some = [p for p, epoch in sorted(retained.epochs.items()) if (epoch < FIRST_EPOCHS) == old]
        if some:
            epochs = _within(0, FIRST_EPOCHS) if old else _derived(journal)
            yield f"({_PARTITION} IN ({', '.join(map(str, some))}) AND {epochs})"


def _derived(journal: str) -> str:
    """Return the condition that an epoch is one of those that this journal's topic id gives."""
    begin = first_epoch(journal)
    return _within(begin, begin + _REWINDS)


def _within(low: int, high: int) -> str:
    return f"{_EPOCH} >= {low} AND {_EPOCH} < {high}"


def _gone(journal: str, noted: Noted, retained: Retained, gone: Sequence[str]) -> str:
    if not gone:
        return ""
    rows = " OR ".join(
        f"startsWith(block, {literal(f'{one}{end}')})"
        for one in gone
        for end in (":", "#began:", "#unsure:", "#back:", "#lost:", SUPERSEDED)
    )
    condition = f"(state = 'position' AND ({rows}))"
    if not noted.of(journal):
        # No loader has loaded a block of this one, but a rewind or a person may have settled some.
        return f"{condition} OR ({_IS_BLOCK} AND NOT ({_derived(journal)}))"
    mine = " OR ".join(_families(journal, retained))
    known = ", ".join(map(str, sorted(retained.epochs)))
    if mine:
        condition += f" OR ({_IS_BLOCK} AND {_PARTITION} IN ({known}) AND NOT ({mine}))"
    return condition


def question(before: str, cutoff: int) -> str:
    """Return a question for blocks that a condition is about.

    It gives table, whether they are settled, whether before the cutoff, how many there are, and
    how many rows of the ledger they have.
    """
    return (
        "SELECT table, final, old, count(), sum(n) FROM ("  # noqa: S608 - literals
        f"SELECT table, block, count() AS n, countIf({_FINAL}) > 0 AS final, "
        f"maxIf(at, {_FINAL}) < {_time(cutoff)} AS old "
        f"FROM LEDGER WHERE app = {{app:String}} AND {before} GROUP BY table, block"
        ") GROUP BY table, final, old ORDER BY table, final, old"
    )


def kept(before: str, cutoff: int) -> str:
    """Return a question for the ids of those among them that may not go.

    These wait for somebody, or were claimed long after they were settled: without the row that
    settles it, that claim would count.
    """
    at = _time(cutoff)
    return (
        f"SELECT block FROM LEDGER WHERE app = {{app:String}} AND {before} GROUP BY block "  # noqa: S608 - literals
        f"HAVING countIf({_FINAL}) = 0 OR (max(at) >= {at} AND minIf(at, {_FINAL}) < {at})"
    )


def unsettled(gone: str) -> str:
    """Return a question for the number of blocks of deleted journals that were never loaded."""
    return (
        "SELECT count() FROM (SELECT block FROM LEDGER WHERE app = {app:String} "  # noqa: S608 - literals
        f"AND ({gone}) AND {_IS_BLOCK} GROUP BY block HAVING countIf({_FINAL}) = 0)"
    )


def removals(
    app: str, found: Conditions, but: Sequence[Sequence[str]], cutoff: int
) -> Iterator[str]:
    """Yield the conditions of the mutations that remove the rows.

    A claim is written at most a day after the look at the ledger that it is based on
    (loader.spark.known_blocks). So of a block that was settled before the cutoff, which is two days
    ago at least, no claim comes any more. `but` are ids of blocks that stay all the same, for each
    of `found.before`; entries of a later time than the cutoff, in Unix seconds, stay.
    """
    parts = [
        f"({before} AND at < {_time(cutoff)}{left})"
        for before, ids in zip(found.before, but, strict=True)
        for left in _without(ids)
    ]
    parts += [f"(table = '' AND state = 'position' AND ({one}))" for one in found.positions]
    if found.gone:
        parts.append(f"({found.gone})")
    for some in in_lists(parts, lambda part: len(part.encode()), 2 * _TEXT):
        yield f"app = {literal(app)} AND ({' OR '.join(some)})"


def _without(ids: Sequence[str]) -> Iterator[str]:
    """Yield conditions that a block is none of these, each for a stretch of sorted blocks."""
    stretches = list(in_lists(sorted(ids), lambda one: len(literal(one).encode()) + 2, _TEXT))
    if not stretches:
        yield ""
    for at, some in enumerate(stretches):
        begin = f" AND block >= {literal(some[0])}" if at else ""
        end = f" AND block < {literal(stretches[at + 1][0])}" if stretches[at + 1 :] else ""
        yield f"{begin}{end} AND block NOT IN ({', '.join(map(literal, some))})"


def _time(seconds: int) -> str:
    return f"toDateTime64({seconds:d}, 3)"


def described(rows: Iterable[Sequence[object]]) -> Mapping[str, dict[str, int]]:
    """Return counts of blocks by table: that go, that are too new, that are not settled."""
    by_table: dict[str, dict[str, int]] = {}
    for table, final, old, blocks, _ in rows:
        kind = ("old" if old else "new") if final else "unsettled"
        counts = by_table.setdefault(str(table), {"old": 0, "new": 0, "unsettled": 0})
        counts[kind] += int(str(blocks))
    return by_table
