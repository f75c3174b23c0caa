"""Rewinds of real histories, killed at every step and run again: each message is there once."""

from __future__ import annotations

import contextlib
import random

import pytest

from relay.blocks.dead_letter import RecordPlace
from relay.errors import ConfigError, ContractBroken
from relay.names import BlockId
from relay.operate.dead.replay_plan import ReplayMark
from relay.operate.rewind import rewind as steps
from relay.operate.rewind.removal import CountedRows, RerunTable, RewindConsent, without_id
from relay.operate.rewind.rewind import RewindRequest
from relay.operate.rewind.seals import Seals
from relay.operate.verify.audit import Audit
from relay.records_pb2 import Accept, Commit, Mark, Rewind
from tests.rewind.world import AUTHOR, Crash, World
from tests.verify import histories

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 12))]


def made(seed: int) -> World:
    """An app that ran for a while, with some of its blocks loaded."""
    world = World(seed)
    world.relay(30)
    world.load(random.Random(seed).randrange(40))
    return world


def wanted(world: World, seed: int, keep: frozenset[str] = frozenset()) -> RewindRequest:
    """Somewhere in what was committed; every second time one table."""
    rng = random.Random(seed)
    table = rng.choice(("d.a", "d.d")) if seed % 2 else None
    return RewindRequest({0: rng.randrange(world.floor)}, table, RewindConsent(keep))


def rewound(world: World, what: RewindRequest | None) -> steps.RewindResult:
    return steps.rewind(world, what, "_block", lambda: AUTHOR)


def mark(offset: int, table: str, of_letter: str | None = None) -> ReplayMark:
    """Of a letter of this source offset in partition 0, sent again for this table."""
    places = RecordPlace(0, 1), RecordPlace(0, offset), RecordPlace(0, 900)
    return ReplayMark(*places, table, 1, of_letter)


def is_exact(world: World) -> None:
    """After relay and loader have done the rest, and by the verifier's word."""
    world.settle()
    world.load()
    assert world.contents() == world.everything()
    audit = Audit(histories.APP, histories.SOURCE, 1.0)
    for offset, commit in world.journal:
        audit.record(0, offset, commit)
    assert audit.anomalies == []
    assert not audit.unfinished()
    assert len(audit.acknowledged) == sum(c.HasField("rewind") for _, c in world.journal)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rewind_replaces_what_became_of_the_messages(seed: int) -> None:
    world = made(seed)
    what = wanted(world, seed)
    before = {block.id for block in world.blocks()}

    done = rewound(world, what)

    assert not done.resumed
    world.relay(10)
    world.load()
    new = [b for b in world.blocks() if b.id not in before]
    assert all(block.id.split(":")[3] == "1" for block in new)
    is_exact(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_any_step_and_run_again_it_comes_to_the_same_end(seed: int) -> None:
    whole = made(seed)
    rewound(whole, wanted(whole, seed))
    for crash_at in range(len(whole.steps)):
        world = made(seed)
        what = wanted(world, seed)
        world.crash_at = crash_at
        with pytest.raises(Crash):
            rewound(world, what)
        world.load(3)  # a loader does not stop for it
        begun = world.journal[-1][1].HasField("rewind")
        assert ("rewind" in world.stops()) == begun
        ended = world.journal[-1][1].rewound
        if not begun:
            world.relay(2)  # a supervisor starts the relay again
        done = rewound(world, None if begun and crash_at % 2 else what)
        assert done.resumed == begun
        records = [c for _, c in world.journal if c.HasField("rewind")]
        assert len(records) == (2 if ended else 1)
        is_exact(world)


def test_killed_again_and_again() -> None:
    world = made(3)
    what = wanted(world, 3)
    for lives in range(200):
        world.crash_at = len(world.steps) + random.Random(lives).randrange(1, 9 + lives)
        try:
            rewound(world, what)
        except Crash:
            world.load(1)
        else:
            break
    else:
        pytest.fail("never came through")

    is_exact(world)


def test_rewound_again_and_again_with_relays_between() -> None:
    world = made(5)
    for seed in range(20):
        rewound(world, wanted(world, seed))
        world.relay(6)
        world.load(random.Random(seed).randrange(30))

    is_exact(world)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_negative_control_a_rewind_that_does_not_settle_doubles_rows(seed: int) -> None:
    world = made(seed)
    world.load()
    world.supersede = lambda _: 0  # type: ignore[method-assign]
    assert rewound(world, RewindRequest({0: 0}, None, RewindConsent())).blocks
    world.settle()
    world.load()

    assert world.contents() != world.everything()


def test_negative_control_a_loader_that_knows_no_discarded_blocks_doubles_rows() -> None:
    world = made(1)
    rewound(world, RewindRequest({0: 0}, None, RewindConsent()))
    world.ledger = {name: state for name, state in world.ledger.items() if state == "loaded"}
    world.settle()
    world.load()

    assert world.contents() != world.everything()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cut", [False, True])
def test_of_an_older_ledger_all_rewinds_are_repeated(seed: int, *, cut: bool) -> None:
    """Backups between several rewinds are restored; killed at every step, and run again."""
    world = made(seed)
    backups = [world.backup()]
    for at in (0, seed, 100 + seed):
        rewound(world, wanted(world, at))
        backups.append(world.backup())
        world.relay(6)
        world.load(random.Random(at).randrange(30))
        backups.append(world.backup())
    assert not world.lacks()
    with pytest.raises(ConfigError, match="no unfinished rewind"):
        rewound(world, None)
    for backup in backups:
        world.restore(backup)
        if world.lacks():
            world.crash_at = len(world.steps) + random.Random(seed).randrange(20) if cut else -1
            with contextlib.suppress(Crash):
                assert rewound(world, None).repeated
            if world.lacks():  # as long as it does, loaders stop
                assert rewound(world, None).repeated
        assert not world.lacks()
        is_exact(world)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_negative_control_without_the_repetition_rows_are_doubled(seed: int) -> None:
    world = made(seed)
    world.load()
    backup = world.backup()
    rewound(world, RewindRequest({0: 0}, None, RewindConsent()))
    world.settle()
    world.load()
    world.restore(backup)
    world.load()
    assert world.lacks()
    assert world.contents() != world.everything()


def test_an_unfinished_rewind_and_an_older_one_are_dealt_with_together() -> None:
    world = made(3)
    world.load()
    backup = world.backup()
    rewound(world, wanted(world, 3))
    world.relay(6)
    world.crash_at = len(world.steps) + 5
    with pytest.raises(Crash):
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))
    assert world.journal[-1][1].HasField("rewind")
    world.restore(backup)
    assert world.lacks()
    done = rewound(world, None)
    assert (done.resumed, len(done.repeated), len(done.partitions)) == (True, 1, 1)
    assert not world.lacks()
    is_exact(world)


def test_a_rewind_that_goes_on_is_no_reason_to_stop() -> None:
    world = made(3)
    rewound_to_the_end = RewindRequest({0: 0}, None, RewindConsent())
    steps_before = len(world.steps)
    for crash_at in range(200):
        world = made(3)
        world.crash_at = steps_before + crash_at
        try:
            rewound(world, rewound_to_the_end)
        except Crash:
            assert not world.lacks()
        else:
            return
    pytest.fail("never came through")


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_whose_records_are_deleted_go_by_their_epoch(seed: int) -> None:
    """Retention deleted all but the last two records before the rewind."""
    world = made(seed)
    world.load()
    backup = world.backup()
    rewound(world, RewindRequest({0: world.floor // 3}, None, RewindConsent()))
    (old,) = world.look({0: 0})[0].seals.rewinds
    world.settle()
    at = next(n for n, (_, commit) in enumerate(world.journal) if commit.HasField("rewind"))
    world.journal = world.journal[at - 2 :]
    world.restore(backup)
    done = rewound(world, None)
    (again,) = done.repeated
    assert (old.whole, again.whole) == (True, False)
    assert set(again.first_epochs.values()) == {0}
    assert len(again.blocks) < len(old.blocks)
    assert not {block.id for block in old.blocks} & set(world.rows)
    assert set(world.rows) == set(backup.rows) - {block.id for block in old.blocks}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cut", [0, 2])
def test_rows_that_a_rewind_kept_are_those_of_its_table_only(seed: int, cut: int) -> None:
    """Then another table is rewound, the journal cut so many records before, and a backup of
    before both restored."""
    world = made(seed)
    world.load()
    backup = world.backup()
    rewound(world, RewindRequest({0: 0}, "d.a", RewindConsent(keep=frozenset({"d.a"}))))
    at = next(n for n, (_, commit) in enumerate(world.journal) if commit.HasField("rewind"))
    world.settle()
    rewound(world, RewindRequest({0: 0}, "d.d", RewindConsent()))
    kept, _ = world.look({0: 0})[0].seals.rewinds
    old = {name for name in backup.rows if BlockId.parse(name).table == "d.d"}
    assert kept.blocks
    assert old
    world.journal = world.journal[at - cut :]
    world.restore(backup)
    rewound(world, None)
    assert not old & set(world.rows)
    assert {block.id for block in kept.blocks} <= set(world.rows)


def marks(*offsets: int) -> list[Mark]:
    """Of the tables d.t, d.u."""
    return [Mark(table=t, offset=o) for t, o in zip(("d.t", "d.u"), offsets, strict=True)]


def test_the_epochs_that_a_rewind_may_know() -> None:
    commits = [
        Commit(n=7, epoch=3, floor=50),
        Commit(n=8, epoch=4, floor=10, rewind=Rewind(starts=[Mark(table="d.t", offset=10)])),
        Commit(n=9, epoch=4, floor=10, rewound=True),
        Commit(n=10, epoch=5, floor=10, rewind=Rewind(starts=marks(10, 10), kept=["d.t"])),
        Commit(n=11, epoch=6, floor=10, rewind=Rewind(starts=marks(60, 70))),
        Commit(n=12, epoch=7, floor=5, accept=Accept(kinds=["topic"])),
        Commit(n=13, epoch=8, floor=5, rewind=Rewind(starts=[Mark(table="d.t", offset=5)])),
    ]
    seals = Seals(0)
    for offset, commit in enumerate(commits):
        seals.add(offset, commit)
    assert [(one.first_epochs, one.whole, one.begins) for one in seals.rewinds] == [
        ({"d.t": 3}, False, 10),
        ({"d.t": 3, "d.u": 3}, False, 10),
        ({"d.t": 5, "d.u": 3}, True, 60),
        ({"d.t": 7}, True, 5),
    ]
    assert [one.offset for one in seals.ended()] == [1, 3, 4]
    assert seals.begun() == seals.rewinds[-1]


def test_kept_rows_stay_and_are_named_in_the_journal() -> None:
    world = made(2)
    world.load()
    rows = rows_of(world)
    world.target = RerunTable(there=True, engine="MergeTree", stamped=False)
    tables = frozenset(t for t in histories.TABLES if t)

    rewound(world, RewindRequest({0: 0}, None, RewindConsent(keep=tables)))

    assert rows_of(world) == rows
    (record,) = [c for _, c in world.journal if c.HasField("rewind")]
    assert set(record.rewind.kept) == {s.table for s in record.rewind.starts} - {""}


def rows_of(world: World) -> dict[str, int]:
    return dict(world.rows)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (RerunTable(there=True, engine="MergeTree"), "--keep-rows d."),
        (RerunTable(there=True, engine="ReplacingMergeTree", stamped=True), "merges rows"),
        (RerunTable(there=True, engine="Memory", stamped=True), "cannot be deleted"),
        (
            RerunTable(there=True, engine="MergeTree", stamped=True, policies=("mine",)),
            "mine hides rows from this user",
        ),
        (
            RerunTable(there=True, engine="MergeTree", stamped=True, views=("d.v",)),
            "--despite-views",
        ),
        (
            RerunTable(there=True, engine="MergeTree", stamped=True, expires=True),
            "column _block has a TTL.*REMOVE TTL",
        ),
        (
            RerunTable(there=True, engine="MergeTree", stamped=True, grant="GRANT X ON d TO u"),
            "may not delete its rows.*GRANT X ON d TO u; --keep-rows d",
        ),
    ],
)
def test_what_cannot_be_removed_is_refused_before_anything_happens(
    target: RerunTable, said: str
) -> None:
    world = made(2)
    world.load()
    world.target = target
    before = len(world.journal)

    with pytest.raises(ConfigError, match=said):
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))

    assert len(world.journal) == before


def test_blocks_inserted_without_their_id_are_refused() -> None:
    world = made(2)
    world.load()
    first = next(world.blocks()).id
    world.target = RerunTable(True, "MergeTree", stamped=True, unstamped=frozenset({first}))

    with pytest.raises(ConfigError, match=first):
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))


def losing_ids() -> World:
    """A world where some rows of a loaded block carry no id any more."""
    world = made(2)
    world.load()
    block = next(world.blocks())
    world.rows[block.id] -= 1
    return world


def test_rows_that_lost_their_id_are_refused_before_anything_happens() -> None:
    """A TTL of the column, CLEAR COLUMN, a copied table: a rewind would double them."""
    world = losing_ids()
    world.without_id = 1
    before = len(world.journal)

    with pytest.raises(ConfigError, match="1 row cannot be found by the block id, and 1 row of"):
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))
    assert len(world.journal) == before

    keep = frozenset(t for t in histories.TABLES if t)
    assert rewound(world, RewindRequest({0: 0}, None, RewindConsent(keep))).partitions


@pytest.mark.parametrize("despite", [False, True])
def test_rows_that_are_deleted_hold_up_no_rewind(*, despite: bool) -> None:
    """Each row that is left has its id; or a person says that those without are others'."""
    world = losing_ids()
    world.without_id = 5 * despite
    consent = RewindConsent(despite_missing=despite)
    assert rewound(world, RewindRequest({0: 0}, None, consent)).partitions


@pytest.mark.long  # 49 s
def test_a_rewind_that_was_begun_is_finished_whatever_is_missing() -> None:
    """Its own DELETE may have run, in a table where rows of others carry no id."""
    at, last = 0, -1
    while at != last:
        world = made(2)
        world.load()
        world.without_id, world.crash_at = 7, at
        with contextlib.suppress(Crash):
            rewound(world, RewindRequest({0: 0}, None, RewindConsent()))
            last = at
        world.crash_at = -1
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))
        is_exact(world)
        at += at != last


def test_only_what_the_ledger_calls_loaded_can_be_missing() -> None:
    rows = {"a": 10, "b": 5}
    assert list(without_id("d.t", CountedRows(rows, {"a": 10, "b": 9}, 3), "_block")) == []
    assert list(without_id("d.t", CountedRows(rows, {"a": 20}, 0), "_block")) == []
    (said,) = without_id("d.t", CountedRows(rows, {"a": 20}, 3), "_block")
    assert "of 15 rows that the ledger calls loaded 5 rows cannot be found" in said
    assert "3 rows of the table carry none in _block" in said


def test_replayed_dead_letters_are_refused_unless_told() -> None:
    world = made(4)
    dead = next(d for _, c in world.journal for d in c.dead)
    world.replayed = [mark(dead.first_source_offset, "as.another")]

    with pytest.raises(ConfigError, match="--despite-replays"):
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))

    assert rewound(
        world, RewindRequest({0: 0}, None, RewindConsent(despite_replays=True))
    ).partitions


def test_where_marks_of_replays_were_deleted_a_person_decides() -> None:
    """What is to be re-run may have been replayed; a rewind of nothing asks nobody.

    The replays of which marks are left are named as well: whoever goes on has seen them.
    """
    world = made(4)
    dead = next(d for _, c in world.journal for d in c.dead)
    world.replayed = [mark(dead.first_source_offset, "as.another")]
    world.marks_deleted = "marks of replays were deleted"
    with pytest.raises(ConfigError, match="marks of replays were deleted") as refused:
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))
    assert f"from source offset {dead.first_source_offset} on" in refused.value.message
    assert not rewound(world, RewindRequest({0: 0}, "no.table", RewindConsent())).partitions

    told = RewindConsent(despite_replays=True)
    assert rewound(world, RewindRequest({0: 0}, None, told)).partitions


@pytest.mark.parametrize("as_another", [False, True])
def test_a_replayed_letter_of_a_loader_is_refused_too(*, as_another: bool) -> None:
    """The journal knows its message as one of a block of the letter's table."""
    world = made(4)
    block = next(b for _, c in world.journal for b in c.blocks if not c.dead)
    sent = ("as.another", block.table) if as_another else (block.table,)
    world.replayed = [mark(block.first_source_offset, *sent)]

    with pytest.raises(ConfigError, match="--despite-replays"):
        rewound(world, RewindRequest({0: 0}, block.table, RewindConsent()))


@pytest.mark.parametrize("of_letter", [None, "of.another"])
def test_what_another_tables_letters_became_holds_up_no_rewind(of_letter: str | None) -> None:
    """Its message lies between those of a block, and is not read again."""
    world = made(4)
    block = next(b for _, c in world.journal for b in c.blocks if not c.dead)
    table = block.table if of_letter else "as.another"
    world.replayed = [mark(block.first_source_offset, table, of_letter)]

    assert rewound(world, RewindRequest({0: 0}, block.table, RewindConsent())).partitions


@pytest.mark.parametrize("of_letter", ["of.another", "", None])
def test_dead_letters_of_its_own_are_no_other_tables(of_letter: str | None) -> None:
    """A stretch's letters are all of its table; of an old mark nobody knows whose it was."""
    world = made(4)
    own = next(d for _, c in world.journal for d in c.dead)
    offset, what = own.first_source_offset, RewindRequest({0: 0}, own.table, RewindConsent())
    world.replayed = [mark(offset, "of.another", of_letter)]
    if of_letter is None:
        with pytest.raises(ConfigError, match="--despite-replays"):
            rewound(world, what)
    else:
        assert rewound(world, what).partitions


def test_a_replayed_letter_of_its_own_table_is_refused() -> None:
    world = made(4)
    own = next(d for _, c in world.journal for d in c.dead)
    world.replayed = [mark(own.first_source_offset, "as.another", own.table)]
    with pytest.raises(ConfigError, match="--despite-replays"):
        rewound(world, RewindRequest({0: 0}, own.table, RewindConsent()))


def test_a_rewind_says_which_letters_were_there() -> None:
    world = made(4)
    world.letters = 17
    rewound(world, RewindRequest({0: 0}, None, RewindConsent()))

    (rewind,) = [c.rewind for _, c in world.journal if c.HasField("rewind")]
    assert (rewind.next_letter, rewind.dead_topic_id) == (17, "dead topic")


def test_messages_that_are_gone_are_refused() -> None:
    world = made(6)
    world.log_start = world.floor // 2

    with pytest.raises(ConfigError, match="were deleted"):
        rewound(world, RewindRequest({0: world.log_start - 1}, None, RewindConsent()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_whose_first_messages_are_gone_stays(seed: int) -> None:
    world = made(seed)
    world.log_start = world.floor // 2

    rewound(world, RewindRequest({0: world.log_start}, None, RewindConsent()))

    record = next(c for _, c in world.journal if c.HasField("rewind"))
    assert all(start.offset >= world.log_start for start in record.rewind.starts)
    is_exact(world)


def test_a_journal_cut_by_retention_says_how_far_back_it_goes() -> None:
    world = made(7)
    world.journal = world.journal[10:]
    (place,) = world.look({0: 0}).values()

    with pytest.raises(ConfigError, match=f"from {place.seals.base} on"):
        rewound(world, RewindRequest({0: place.seals.base - 1}, None, RewindConsent()))

    rewound(world, RewindRequest({0: place.seals.base}, None, RewindConsent()))


def test_beyond_what_was_read_there_is_nothing_to_do() -> None:
    world = made(8)
    before = len(world.journal)

    done = rewound(world, RewindRequest({0: 10**9}, None, RewindConsent()))

    assert not done.partitions
    assert len(world.journal) == before


def test_where_two_truths_differ_the_truth_comes_first() -> None:
    world = made(9)
    world.named = (3, "")

    with pytest.raises(ContractBroken, match="do not agree"):
        rewound(world, RewindRequest({0: 0}, None, RewindConsent()))


def test_nothing_to_finish_is_said() -> None:
    with pytest.raises(ConfigError, match="no unfinished rewind"):
        rewound(made(0), None)
