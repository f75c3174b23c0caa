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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loader.core.positions import Noted, newest
from relay.clickhouse.quoting import literal
from relay.names import FIRST_EPOCHS, SUPERSEDED, BlockId, first_epoch

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
    """About the ledger's rows of one app, in SQL; empty: none.

    Attributes:
        before: blocks whose journal records are gone.
        positions: that are not the newest, and what starts noted.
        gone: of deleted journals.
    """

    before: str
    positions: str
    gone: str


def conditions(journal: str, noted: Noted, retained: Retained, gone: Sequence[str]) -> Conditions:
    """Return what may be removed.

    Args:
        journal: topic id of the app's journal now.
        noted: by the ledger.
        retained: by the journal.
        gone: topic ids of deleted journals, as the person named them.
    """
    return Conditions(
        _before(journal, retained),
        " OR ".join(
            f"(block = {literal(block)} AND attempt < {attempt})"
            for block, attempt in sorted(newest(noted).items())
        ),
        _gone(journal, noted, retained, gone),
    )


def _before(journal: str, retained: Retained) -> str:
    """Blocks of a table and a partition are sealed in the order of epoch and offset."""
    if not retained.partitions:
        return ""
    keys, epochs, firsts = [], [], []
    for (table, partition), (epoch, first) in sorted(retained.oldest.items()):
        keys.append(literal(f"{table}:{partition}"))
        epochs.append(str(epoch))
        firsts.append(str(first))
    partitions = ", ".join(map(str, sorted(retained.partitions)))
    mine = " OR ".join(_families(journal, retained))
    condition = f"{_IS_BLOCK} AND {_PARTITION} IN ({partitions})"
    if mine:
        condition += f" AND ({mine})"
    if keys:
        at = f"indexOf([{', '.join(keys)}], concat(table, ':', toString({_PARTITION})))"
        condition += (
            f" AND ({at} = 0 OR ({_EPOCH}, {_FIRST}) < "
            f"([{', '.join(epochs)}][{at}], [{', '.join(firsts)}][{at}]))"
        )
    return condition


def _families(journal: str, retained: Retained) -> Iterable[str]:
    """Which epochs are this journal's, by partition.

    Those of versions before the first epoch was derived from the topic id count from 0.
    """
    begin = first_epoch(journal)
    for old in (True, False):
        some = [p for p, epoch in sorted(retained.epochs.items()) if (epoch < FIRST_EPOCHS) == old]
        if some:
            low, high = (0, FIRST_EPOCHS) if old else (begin, begin + _REWINDS)
            listed = ", ".join(map(str, some))
            yield f"({_PARTITION} IN ({listed}) AND {_EPOCH} >= {low} AND {_EPOCH} < {high})"


def _gone(journal: str, noted: Noted, retained: Retained, gone: Sequence[str]) -> str:
    if not gone:
        return ""
    rows = " OR ".join(
        f"startsWith(block, {literal(f'{one}{end}')})"
        for one in gone
        for end in (":", "#began:", "#unsure:", "#back:", "#lost:", SUPERSEDED)
    )
    condition = f"(state = 'position' AND ({rows}))"
    if not noted.of(journal):  # then no loader has touched a block of this one
        return f"{condition} OR ({_IS_BLOCK})"
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


def removal(app: str, found: Conditions, but: Sequence[str], cutoff: int) -> str:
    """Return the condition of the mutation that removes the rows; empty: there is nothing.

    A claim is written at most a day after the look at the ledger that it is based on
    (loader.spark.known_blocks). So of a block that was settled before the cutoff, which is two days
    ago at least, no claim comes any more.
    """
    parts = []
    if found.before:
        left = f" AND block NOT IN ({', '.join(map(literal, but))})" if but else ""
        parts.append(f"({found.before} AND at < {_time(cutoff)}{left})")
    if found.positions:
        parts.append(f"(table = '' AND state = 'position' AND ({found.positions}))")
    if found.gone:
        parts.append(f"({found.gone})")
    return f"app = {literal(app)} AND ({' OR '.join(parts)})" if parts else ""


def _time(seconds: int) -> str:
    return f"toDateTime64({seconds:d}, 3)"


def described(rows: Iterable[Sequence[object]]) -> Mapping[str, dict[str, int]]:
    """Return counts of blocks by table: that go, that are too new, that are not settled."""
    found: dict[str, dict[str, int]] = {}
    for table, final, old, blocks, _ in rows:
        kind = ("old" if old else "new") if final else "unsettled"
        counts = found.setdefault(str(table), {"old": 0, "new": 0, "unsettled": 0})
        counts[kind] += int(str(blocks))
    return found
