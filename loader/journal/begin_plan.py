"""Decides where in the journal a loader begins, and what its tables have to be asked; pure.

Receives what the ledger, the journal and Spark's checkpoint say, gives one StartPlan or the reason
to stop. The ledger lives where the rows live, so it alone counts where it has a position:

    checkpoint   ledger's position   then
    behind it    there               begin at the ledger's, which may have been set back, or not
    at it        there               begin at the ledger's
    beyond it    there               ClickHouse was set back: say so, begin at the ledger's
    there        none                the ledger was lost: stop, unless a person says so
    none         none                first start: begin with the journal's first record
    none         there               as behind it

Where a checkpoint's file is cut off nobody knows where it stands. Where the ledger has a position,
the checkpoint is moved aside and counts as none; where the ledger has none: stop.

Where the journal ends before the ledger's position, it lost its last records: stop. Where its first
one is behind the position, retention deleted what nobody read: stop, unless a person says so. But
right behind each record that was settled lies the marker of its transaction, and retention deletes
markers, too: where that alone is gone, nothing is lost.

Where entries may be missing, a block without one may have been inserted:
loader.clickhouse.forgotten_blocks asks.

A rewind settles the blocks that it supersedes, removes their rows and notes that in the ledger. A
ledger without the note is older than the rewind, as its tables may be: their rows of superseded
blocks would stay beside those of the new ones. While a rewind goes on, the journal has no record
behind its own: then the loader loads, and what it loads is removed at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from loader.core.plan import PERHAPS, SURELY
from loader.core.positions import COLUMN, Noted, Unsure, Why, only_a_marker
from loader.journal.checkpoint import CheckpointPositions
from relay import names
from relay.clickhouse.quoting import literal
from relay.errors import ContractBroken, ErrorPage
from relay.program.plural import several

GO_ON = (
    "If the ledger was lost or emptied, start once with `loader run CONFIG --once --ledger-lost`: "
    "it begins with the journal's first record and asks each table which blocks it has before it "
    "inserts. If the ledger was restored, or is in another database, set loader.database and "
    "start again."
)


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What ledger, journal and checkpoint say before a start.

    Attributes:
        app: the app's name.
        ledger: the ledger's name.
        journal: topic id of the journal as it is now.
        noted: by the ledger.
        bounds: first offset and end of each journal partition.
        checkpoint: what Spark's says; None where there is none.
        where: the checkpoint is.
        lost: a person says that the ledger was lost.
    """

    app: str
    ledger: str
    journal: str
    noted: Noted
    bounds: Mapping[int, tuple[int, int]]
    checkpoint: CheckpointPositions | None
    where: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Where a loader begins, and what it records first.

    Attributes:
        positions: of the ledger, with those to be noted.
        unsure: by partition, with what is to be noted.
        new: positions to be noted first.
        ends: of what is unsure, to be noted first, by partition.
        why: they are.
        aside: the checkpoint says something else, and has to be moved aside.
        warnings: for people.
        began: by partition: a position behind this one was saved when a record was settled.
        cut_off: for people: a file of the checkpoint is; empty: none is.
    """

    positions: Mapping[int, int]
    unsure: Mapping[int, Unsure]
    new: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    why: Why = "unsure"
    aside: bool = False
    warnings: tuple[str, ...] = ()
    began: Mapping[int, int] = field(default_factory=dict)
    cut_off: str = ""


def decide(facts: StartFacts) -> StartPlan:
    """Decide where to begin.

    Raises:
        ContractBroken: two of them disagree, and only a person knows why.
    """
    mine = facts.noted.of(facts.journal)
    if not facts.lost:
        check_journal(facts.app, facts.journal, facts.noted)
    spark, aside = _checkpoint(facts, mine)
    back = {p: offset for p, offset in spark.items() if p in mine and offset > mine[p]}
    began = facts.noted.began_of(facts.journal)
    topic = names.journal_topic(facts.app)
    check_end(topic, mine, facts.bounds)
    if not facts.lost:
        _lost(facts, mine, spark)
        check_unread(topic, mine, facts.bounds, began)
    # Of the log's start some records may have been deleted: markers alone, or what cannot be loaded
    # any more, as the person knows.
    new = {p: low for p, (low, _) in facts.bounds.items() if mine.get(p, -1) < low}
    positions = {**mine, **new}
    why: Why = "lost" if facts.lost else "back" if back else "unsure"
    unsure = facts.noted.unsure_of(facts.journal)
    ends = {}
    for p, (_, high) in facts.bounds.items():
        before = unsure.get(p, Unsure(0))
        end = high if why != "unsure" or p not in mine or aside else _come(facts, p, mine[p], high)
        if why != "unsure" or end > max(positions[p], before.end):
            ends[p], unsure[p] = end, before.and_before(end, why)
    return StartPlan(
        positions,
        unsure,
        new,
        ends,
        why,
        aside or bool(back) or (facts.lost and facts.checkpoint is not None),
        (_went_back(facts, mine, back),) if back else (),
        {**began, **new},
        _cut_off(facts),
    )


def end_unsure(plan: StartPlan, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Return by partition up to where the ledger may lack entries of blocks behind its position.

    An earlier start may have noted so, before which the ledger was set back since. `bounds`: as of
    StartFacts.
    """
    ends = {p: min(high, plan.unsure.get(p, Unsure(0)).end) for p, (_, high) in bounds.items()}
    return {p: max(plan.positions[p], end) for p, end in ends.items()}


def forgot(claims: Collection[str], why: Why) -> bool:
    """Return whether the ledger's entry of a waiting block may be older than its rows.

    A person or a loader may have settled it since. Unless ClickHouse is known to have been set
    back, the claims that it has are enough to find that out.
    """
    if PERHAPS in claims or SURELY in claims:
        return False
    return why == "back" or not claims


def check_journal(app: str, journal: str, noted: Noted) -> None:
    """Stop where the ledger has positions of other journals alone.

    Raises:
        ContractBroken: the journal was created again, and nobody has acknowledged that.
    """
    others = [other for other in noted.others(journal) if other not in noted.gone]
    if others and not noted.of(journal):
        raise ContractBroken(
            f"the ledger's positions of app {app} belong to journal {', '.join(others)}, but the "
            f"topic is now {journal}: it was deleted and created again",
            "Blocks of the old journal that were not loaded are lost. To acknowledge that, run "
            f"`loader ledger clean CONFIG {' '.join(f'--gone {other}' for other in others)} "
            "--run`; without --run it shows what would be removed. If kafka.bootstrap names other "
            "brokers than before, correct that.",
            page=ErrorPage.LEDGER,
        )


def check_unread(
    topic: str,
    mine: Mapping[int, int],
    bounds: Mapping[int, tuple[int, int]],
    began: Mapping[int, int],
) -> None:
    """Stop where records from the ledger's position on are deleted.

    `bounds`: as of StartFacts; `began`: as of StartPlan.

    Raises:
        ContractBroken: nobody has loaded the blocks that they may have had.
    """
    gaps = {
        p: (mine[p], low)
        for p, (low, _) in bounds.items()
        if mine.get(p, low) < low and not only_a_marker(mine[p], low, began.get(p, 0))
    }
    if gaps:
        raise deleted_unread(topic, gaps)


def check_end(topic: str, mine: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]) -> None:
    """Stop where the journal ends before the ledger's position.

    A position is saved behind a record that is committed, and is read before the journal's end,
    which never goes back, whoever leads the partition (KIP-207). `bounds`: as of StartFacts.

    Raises:
        ContractBroken: what is written up to the position would never be loaded.
    """
    if beyond := {p: mine[p] for p, (_, high) in bounds.items() if mine.get(p, 0) > high}:
        raise lost_end(topic, beyond, bounds)


def lost_end(
    topic: str, stands: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> ContractBroken:
    """Return what to say of a journal that does not reach to where a loader stands.

    `stands`: the loader's position, by partition; `bounds`: as of StartFacts.
    """
    shown = "; ".join(
        f"partition {p} holds offsets {bounds[p][0]} to {bounds[p][1]}, but the loader stands at "
        f"{position}"
        for p, position in sorted(stands.items())
    )
    return ContractBroken(
        f"{topic}: {shown}. The topic lost its last records, was restored from an older copy, or "
        "was deleted and created again",
        "Find out which; deleted blocks can only be loaded by running the source again.",
        page=ErrorPage.GAP,
    )


def deleted_unread(topic: str, gaps: Mapping[int, tuple[int, int]]) -> ContractBroken:
    """Return what to say of a journal's records that were deleted before a loader read them.

    `gaps`: by partition, where the loader stands and the first offset that is left.
    """
    shown = "; ".join(
        f"partition {p} begins at offset {low}, but the loader stands at {position}"
        for p, (position, low) in sorted(gaps.items())
    )
    return ContractBroken(
        f"{topic}: {shown}. The records between were deleted before they were loaded: no loader "
        "ran for longer than the topic's retention, the retention was shortened, or ClickHouse "
        "was restored from a backup that is older than it",
        "To go on with the records that are left, start once with `loader run CONFIG --once "
        "--ledger-lost`: it asks each table which blocks it has before it inserts, and parks those "
        "of which nothing can be known. Blocks of the deleted records stay unloaded (there were "
        "none if no messages came meanwhile): their rows only come by running the source again.",
        page=ErrorPage.GAP,
    )


def check_rewinds(
    ledger: str, journal: str, noted: Noted, ended: Iterable[tuple[int, int]]
) -> None:
    """Stop where the ledger does not have the note of a rewind that has ended.

    `noted`: by the ledger, read behind the journal: the note comes before the rewind's end;
    `ended`: rewinds from the record before the position on: (partition, offset).

    Raises:
        ContractBroken: it is older than such a rewind, or lost.
    """
    unnoted = [at for at in ended if names.superseded_row(journal, *at) not in noted.superseded]
    if unnoted:
        places = ", ".join(f"{p}:{offset}" for p, offset in unnoted)
        raise ContractBroken(
            f"{several(len(unnoted), 'rewind')} in the journal (partition:offset {places}), but "
            f"the ledger {ledger} has no note that the old blocks were settled and their rows "
            "removed: it was lost, or restored from a backup that is older than the rewind, or an "
            "earlier version made the rewind. Old rows may be in the tables again, and new blocks "
            "would double them",
            "Run `relay rewind CONFIG --run`, which removes what the rewind replaced and notes it. "
            "Then start the loader again as now.",
            page=ErrorPage.RESTORED_REWIND,
        )


def check_column(ledger: str, app: str, column: str, noted: Noted) -> None:
    """Stop where the loader would look for blocks in another column than it filled before.

    `ledger`: its name; `column`: loader.block_column.

    Raises:
        ContractBroken: it would.
    """
    if before := ", ".join(sorted(noted.columns - {column})):
        raise ContractBroken(
            f"loader.block_column is {column}, but loaders of app {app} filled {before} until now "
            f"(ledger {ledger}): blocks whose rows have their id there would look as if they were "
            "not inserted, and could be inserted a second time",
            f'Set loader.block_column = "{before}" again. Only if that column was renamed in every '
            "table that has it, or none has one, let the ledger forget the earlier name: "
            f"ALTER TABLE {ledger} DELETE WHERE app = {literal(app)} AND table = '' AND "
            f"state = 'position' AND startsWith(block, '{COLUMN}') SETTINGS mutations_sync = 2",
        )


def _checkpoint(facts: StartFacts, mine: Mapping[int, int]) -> tuple[Mapping[int, int], bool]:
    """Return the checkpoint's offsets, and whether it counts as none.

    It does where a file of it is cut off, and where a person knows that its journal is gone.
    """
    checkpoint = facts.checkpoint
    if checkpoint is None:
        return {}, False
    if checkpoint.cut_off:
        if not mine and not facts.lost:
            raise ContractBroken(
                f"{_cut_off(facts)}, and the ledger {facts.ledger} has no position of app "
                f"{facts.app} in its journal: nothing says how far a loader came",
                "If no loader of this app has run with this ClickHouse, move the directory "
                f"{facts.where} away: the loader begins with the journal's first record. {GO_ON}",
                page=ErrorPage.LEDGER,
            )
        return {}, True
    if checkpoint.journal == facts.journal:
        return checkpoint.offsets, False
    if checkpoint.journal in facts.noted.gone or facts.lost:
        return {}, True
    raise ContractBroken(
        f"the checkpoint belongs to journal {checkpoint.journal or '(it names none)'}, but the "
        f"topic is now {facts.journal}: it was deleted and created again, or {facts.where} belongs "
        "to another app",
        "If the checkpoint belongs to another app, set loader.checkpoint to another directory. If "
        "the topic was created again, move the checkpoint away: blocks of the old journal that "
        "were not loaded are lost.",
        page=ErrorPage.LEDGER,
    )


def _cut_off(facts: StartFacts) -> str:
    """Return which file of the checkpoint is cut off, for people; empty: none is."""
    if facts.checkpoint is None or not facts.checkpoint.cut_off:
        return ""
    return (
        f"{facts.where.rstrip('/')}/{facts.checkpoint.cut_off} of Spark's checkpoint is empty or "
        "cut off, as a power failure or a full disk leaves it"
    )


def _come(facts: StartFacts, partition: int, position: int, high: int) -> int:
    """Return how far a loader may have come: the end of its last batch; else any offset.

    A checkpoint behind the ledger's position is not that of the loader that came there.
    """
    planned = {} if facts.checkpoint is None else facts.checkpoint.planned
    return planned[partition] if planned.get(partition, -1) >= position else high


def _lost(facts: StartFacts, mine: Mapping[int, int], spark: Mapping[int, int]) -> None:
    """Stop if a checkpoint, or a journal without its beginning, shows a lost ledger."""
    for p, (low, _) in sorted(facts.bounds.items()):
        if p in mine:
            continue
        if spark.get(p, 0) > low:
            raise ContractBroken(
                f"the ledger {facts.ledger} has no position of app {facts.app} in partition {p} "
                f"of its journal, but the checkpoint {facts.where} stands at {spark[p]}: the "
                "ledger was lost, or it is another one",
                GO_ON,
                page=ErrorPage.LEDGER,
            )
        if low > spark.get(p, 0):
            raise ContractBroken(
                f"the journal's partition {p} begins at offset {low}, and no loader loaded the "
                f"records before it: the ledger {facts.ledger} has no position there, and "
                "retention deleted the records",
                f"Deleted blocks can only be loaded by running the source again. {GO_ON}",
                page=ErrorPage.LEDGER,
            )


def _went_back(facts: StartFacts, mine: Mapping[int, int], back: Mapping[int, int]) -> str:
    where = "; ".join(f"partition {p}: {mine[p]}, checkpoint {back[p]}" for p in sorted(back))
    return (
        f"ClickHouse went back. The ledger {facts.ledger} is behind Spark's checkpoint ({where}): "
        "it was restored from a backup, or this is another server. The loader begins where the "
        "ledger stands, and asks each table by its block-id column which of the following blocks "
        "it has already (`relay docs backup`)"
    )
