"""Clean the ledger: read what Kafka and ClickHouse say, remove what the plan names.

Receives settings and a person's words, gives what goes or went. It may run beside a loader, and
be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from loader.clickhouse.ledger import Ledger
from loader.core.positions import Noted, gone_row
from loader.journal.reader import JournalPolling, RecordRows
from loader.journal.startup import topic_id
from loader.operate import clean_plan
from loader.operate.clean_plan import Conditions, Retained
from relay import names
from relay.config.settings import Settings
from relay.errors import ConfigError
from relay.records_pb2 import Commit

_AT_ONCE = 10_000
"""Journal records in memory: there may be millions."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What the cleaner removes, or has removed.

    Attributes:
        journal: topic id of the app's journal now.
        others: topic ids of deleted journals that the ledger has positions of.
        blocks: by table, of blocks whose journal records are gone: how many go ("old"), are too
            new, or wait for a person or a loader ("unsettled").
        rows: of the ledger that go, by kind: blocks, positions, gone.
        unsettled: blocks of the journals named as gone that were not loaded.
    """

    journal: str
    others: Sequence[str]
    blocks: Mapping[str, Mapping[str, int]]
    rows: Mapping[str, int]
    unsettled: int


def clean(
    settings: Settings, ledger: Ledger, gone: Sequence[str], seconds: int, *, run: bool
) -> Cleaned:
    """Find what may be removed; with `run`, remove it.

    Args:
        settings: of the app.
        ledger: its table exists.
        gone: topic ids of deleted journals, as the person names them.
        seconds: blocks that were settled later than so long ago stay.
        run: remove it.

    Raises:
        ConfigError: a journal is named that is not gone.
        Unavailable, Refused, ContractBroken: as Kafka and ClickHouse answer.
    """
    topic = names.journal_topic(settings.app)
    journal, noted = topic_id(settings, topic), ledger.noted()
    others = noted.others(journal)
    _check(journal, others, gone, noted)
    retained = _retained(settings, topic, noted.of(journal))
    conditions = clean_plan.conditions(journal, noted, retained, gone)
    cutoff = noted.now - seconds
    cleaned = _count(ledger, journal, others, conditions, cutoff)
    if run:
        but = [
            [str(block) for (block,) in ledger.ask(clean_plan.kept(before, cutoff))]
            for before in conditions.before
        ]
        ledger.note(gone_row(one) for one in gone)
        ledger.remove(list(clean_plan.removals(settings.app, conditions, but, cutoff)))
    return cleaned


def _check(journal: str, others: Sequence[str], gone: Sequence[str], noted: Noted) -> None:
    if wrong := [one for one in gone if one not in others]:
        known = ", ".join(others) or "none but its own"
        raise ConfigError(
            f"{wrong[0]} is not a deleted journal: the topic is {journal}, the ledger has "
            f"positions of {known}",
            "Name a journal that the error message of `loader run` named.",
        )
    if gone and set(gone) != set(others) and not noted.of(journal):
        raise ConfigError(
            f"the ledger has positions of {', '.join(others)}, and nothing says which entries "
            "belong to which journal",
            "Name all of them with --gone.",
        )


def _retained(settings: Settings, topic: str, positions: Mapping[int, int]) -> Retained:
    """Read what the journal holds."""
    retained = Retained()

    def given(partition: int, offset: int, record: bytes) -> RecordRows:
        commit = Commit.FromString(record)
        retained.add(partition, commit.epoch, (block.id for block in commit.blocks))
        return RecordRows([(partition, offset, b"")], 1)

    with closing(JournalPolling(settings.kafka, topic, given)) as polling:
        bounds = {p: polling.watermarks(p) for p in polling.partitions()}
        ends = {p: high for p, (_, high) in bounds.items()}
        position = {p: low for p, (low, _) in bounds.items()}
        while rows := polling.up_to(position, ends, _AT_ONCE):
            position |= {p: offset + 1 for p, offset, _ in rows}
    # Elsewhere records were deleted that nobody has loaded.
    retained.partitions |= {p for p, (low, _) in bounds.items() if positions.get(p, -1) >= low}
    return retained


def _count(
    ledger: Ledger, journal: str, others: Sequence[str], conditions: Conditions, cutoff: int
) -> Cleaned:
    gone = conditions.gone
    counted = [
        row
        for before in conditions.before
        for row in ledger.ask(clean_plan.question(before, cutoff))
    ]
    blocks = clean_plan.described(counted)
    rows = {
        "blocks": sum(int(n) for _, final, old, _, n in counted if final and old),
        "positions": _count_rows(ledger, conditions.positions),
        "gone": _count_rows(ledger, [gone] if gone else []),
    }
    unsettled = int(ledger.ask(clean_plan.unsettled(gone))[0][0]) if gone else 0
    return Cleaned(journal, others, blocks, rows, unsettled)


def _count_rows(ledger: Ledger, conditions: Sequence[str]) -> int:
    select = "SELECT count() FROM LEDGER WHERE app = {app:String} AND "
    return sum(int(ledger.ask(f"{select}({condition})")[0][0]) for condition in conditions)
