"""Messages go from the source log between a rewind's record and the removal of their rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from relay.cli.output import rewind as output
from relay.errors import ConfigError, ContractBroken
from relay.operate.rewind import accept as accept_steps
from relay.operate.rewind.records import RewindAuthor
from relay.operate.rewind.removal import RewindConsent
from relay.operate.rewind.rewind import RewindRequest
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.operator_records import Superseded
from relay.operate.verify.source_messages import SourceJudge
from tests.rewind.test_run import SEEDS, is_exact, rewound
from tests.rewind.world import Crash, World
from tests.verify.rewinds import judged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.records_pb2 import Block, Commit

ALL = RewindRequest({0: 0}, None, RewindConsent())
ONE = RewindRequest({0: 0}, "d.a", RewindConsent())


def made(seed: int, loaded: int = 10**9) -> World:
    """An app that ran for a while, with so many of its blocks loaded."""
    world = World(seed)
    world.relay(30)
    world.load(loaded)
    return world


def begun(seed: int, what: RewindRequest = ALL, crash_at: int = 6, loaded: int = 10**9) -> World:
    """Killed behind the rewind's record."""
    world = made(seed, loaded)
    world.crash_at = crash_at
    with pytest.raises(Crash):
        rewound(world, what)
    assert world.journal[-1][1].HasField("rewind")
    return world


def before_removal(seed: int, what: RewindRequest) -> range:
    """The steps behind the record at which nothing has been removed yet."""
    world = made(seed)
    rewound(world, what)
    first = world.steps.index("after the transaction")
    return range(first, next(i for i, s in enumerate(world.steps) if s.endswith("is settled")) + 1)


def starting_before(world: World, offset: int, table: str | None = None) -> dict[str, Block]:
    """Blocks of the first epoch that begin there, of one table or all."""
    blocks = {b.id: b for b in world.blocks() if b.id.split(":")[3] == "0"}
    of = {i: b for i, b in blocks.items() if table in {None, b.table}}
    return {i: b for i, b in of.items() if b.first_source_offset < offset}


def is_judged_clean(world: World) -> None:
    """By whoever reads the source again, and by whoever compares blocks and rows."""
    commits = [commit for _, commit in world.journal]
    judge = SourceJudge(commits, world.log_start)
    for offset, table in world.messages:
        if judge.first <= offset < judge.next:
            judge.message(offset, table)
    assert list(judge.judge()) == []
    superseded = Superseded(commits)
    assert not superseded.removed & set(world.rows)
    assert {b.id for c in superseded.live for b in c.blocks} == set(world.rows)


@pytest.mark.parametrize("what", [ALL, ONE], ids=["all", "one"])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_stay_whose_messages_retention_took_while_a_rewind_was_left(
    seed: int, what: RewindRequest
) -> None:
    for crash_at in before_removal(seed, what):
        world = begun(seed, what, crash_at)
        floor = world.journal[-1][1].previous_floor
        start = floor // 2
        world.lose_beginning(start)
        kept = starting_before(world, start, what.table)
        rows = world.rows.copy()

        done = rewound(world, None)

        assert {name: world.rows[name] for name in kept} == {name: rows[name] for name in kept}
        (one,) = done.shortened
        assert {block.id for block in one.kept} == kept.keys() != set()
        assert done.partitions == {0: world.floor}
        assert start <= world.floor <= floor
        assert world.stops() == ""
        is_exact(world)
        is_judged_clean(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_stay_whose_messages_retention_took_behind_the_record(seed: int) -> None:
    """Nobody was killed: the offset was that of the segment that was deleted next."""
    world = made(seed)
    write, start = world.write, world.floor // 3

    def written(records: Sequence[Commit]) -> None:
        write(records)
        world.lose_beginning(start)

    world.write = written  # type: ignore[method-assign]
    kept = starting_before(world, start)
    done = rewound(world, ALL)

    assert not done.resumed
    assert kept.keys() <= set(world.rows)
    assert world.stops() == ""
    is_exact(world)
    is_judged_clean(world)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]
)
@pytest.mark.parametrize("loaded", [10**9, 20])
def test_killed_while_rows_were_removed_what_is_left_stays(seed: int, loaded: int) -> None:
    """And what is removed is made anew of those of its messages that are left."""
    whole = made(seed, loaded)
    rewound(whole, ALL)
    ends = [i for i, name in enumerate(whole.steps) if name == "after the transaction"]
    for crash_at in range(ends[0], ends[1]):
        world = begun(seed, ALL, crash_at, loaded)
        start = world.journal[-1][1].previous_floor // 2
        world.lose_beginning(start)
        kept = starting_before(world, start)
        left = {name: n for name, n in world.rows.items() if name in kept}
        rewound(world, None)
        assert left.items() <= world.rows.items()
        if world.floor < start:  # of what is removed the first messages are gone
            assert "were never read and are gone" in world.stops()
            accepted(world, None)
        assert world.stops() == ""
        world.settle()
        world.load()
        assert world.contents() == world.everything()
        assert judged(world.journal) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_table_that_was_emptied_all_that_is_left_is_read_again(seed: int) -> None:
    world = begun(seed)
    world.rows.clear()
    world.lose_beginning(world.journal[-1][1].previous_floor // 2)
    assert not rewound(world, None).shortened
    accepted(world, None)
    world.settle()
    world.load()
    assert world.contents() == world.everything()


@pytest.mark.parametrize("seed", SEEDS)
def test_rewound_further_back_and_on_once_more(seed: int) -> None:
    """A rewind after one that left blocks replaces these as well, as long as they can be read."""
    world = begun(seed)
    world.lose_beginning(start := world.journal[-1][1].previous_floor // 2)
    rewound(world, None)
    world.relay(10)
    world.load()
    oldest = min(o for o, _ in world.messages)
    rewound(world, RewindRequest({0: oldest}, None, RewindConsent()))
    is_exact(world)
    is_judged_clean(world)
    assert starting_before(world, start).keys() <= set(world.rows)


def topic_made_anew(world: World) -> None:
    world.topic_id = "another"
    world.messages = []
    world._source, world._end = [], 0


def end_lost(world: World) -> None:
    world.lose_end(world.journal[-1][1].previous_floor - 5, new=0)


def accepted(world: World, begin: int | None) -> None:
    begins = {} if begin is None else {0: begin}
    accept_steps.accept(world, begins, None, lambda: RewindAuthor("accept", 1, "it was so"))


@pytest.mark.parametrize(
    ("lost", "said", "begin"),
    [(topic_made_anew, "created again", False), (end_lost, "lies beyond|lost records", True)],
)
@pytest.mark.parametrize("seed", SEEDS[:6])
def test_of_another_log_all_rows_stay_and_the_way_on_is_accept(
    seed: int, lost: Callable[[World], None], said: str, *, begin: bool
) -> None:
    world = begun(seed)
    record, (_, before) = world.journal[-1][1], world.journal[-2]
    assert record.previous_floor == before.floor
    rows = world.rows.copy()
    lost(world)

    done = rewound(world, None)

    assert world.rows == rows
    assert [one.rewind.blocks for one in done.shortened] == [()]
    head = world.journal[-1][1]
    assert (head.floor, list(head.marks)) == (before.floor, list(before.marks))
    assert any(text in world.stops() for text in said.split("|"))
    accepted(world, world._end if begin else None)
    assert world.stops() == ""
    world.relay(10)
    assert judged(world.journal) == []


def test_of_another_topic_nothing_is_removed() -> None:
    world = begun(1)
    rows, topic = world.rows.copy(), (world.topic, world.topic_id)
    world.topic, world.topic_id = "other", "other id"
    with pytest.raises(ConfigError, match="is of topic 'source'"):
        rewound(world, None)
    assert world.rows == rows

    world.topic, world.topic_id = topic
    assert not rewound(world, None).shortened
    is_exact(world)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_a_cut_journal_keeps_all_that_it_does_not_know(seed: int) -> None:
    """With the record before the rewind it says where relays stood; without it nothing does."""
    world = begun(seed)
    world.lose_beginning(world.journal[-1][1].previous_floor // 2)
    rows, journal = world.rows.copy(), world.journal
    world.journal = journal[-1:]
    with pytest.raises(ContractBroken, match="no longer says where relays stood"):
        rewound(world, None)
    assert world.rows == rows

    world.journal = journal[-2:]
    before = world.journal[0][1]
    assert rewound(world, None).shortened
    assert world.rows == rows
    assert world.floor == before.floor
    assert world.stops() == ""
    world.settle()
    world.load()
    assert Counter(world.rows) >= rows
    assert judged(world.journal) == []


def test_what_it_replaced_is_unknown_where_the_rewinds_record_is_the_oldest() -> None:
    world = made(2)
    rewound(world, ONE)
    at = next(n for n, (_, commit) in enumerate(world.journal) if commit.HasField("rewind"))
    world.journal = world.journal[at:]
    (found,) = world.look({0: 0})[0].seals.rewinds
    assert (found.whole, found.blocks) == (False, ())


def shortened(seed: int = 1, what: RewindRequest = ALL) -> World:
    """Half of what was wanted has gone; relays went on."""
    world = begun(seed, what)
    world.lose_beginning(world.journal[-1][1].previous_floor // 2)
    assert rewound(world, None).shortened
    world.relay(20)
    return world


@pytest.mark.parametrize("what", [ALL, ONE], ids=["all", "one"])
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_verifier_names_nothing_also_of_a_part_of_the_journal(
    seed: int, what: RewindRequest
) -> None:
    journal = shortened(seed, what).journal
    for start in range(len(journal)):
        assert judged(journal[start:]) == []


def _floor_higher(end: Commit) -> None:
    end.floor = end.position = end.reference = end.floor + 1


def _floor_beyond(end: Commit) -> None:
    end.floor = end.position = end.reference = 10**6
    del end.marks[:]
    end.flush_point = True


def _floor_lower(end: Commit) -> None:
    end.floor = end.position = end.reference = end.previous_floor - 1


def _mark_higher(end: Commit) -> None:
    end.marks[0].offset += 1


def _mark_beyond(end: Commit) -> None:
    end.marks[0].offset = 10**6


def _counted(end: Commit) -> None:
    end.count = 3


def _another_topic(end: Commit) -> None:
    end.source_topic_id = "another"


@pytest.mark.parametrize(
    ("forge", "kind"),
    [
        (_floor_higher, AnomalyKind.OVERLAP),
        (_floor_beyond, AnomalyKind.GAP),
        (_floor_lower, AnomalyKind.BACKWARD),
        (_mark_higher, AnomalyKind.OVERLAP),
        (_mark_beyond, AnomalyKind.GAP),
        (_counted, AnomalyKind.TORN),
        (_another_topic, AnomalyKind.FOREIGN),
    ],
)
def test_a_forged_end_is_named(forge: Callable[[Commit], None], kind: AnomalyKind) -> None:
    journal = shortened().journal
    end = next(commit for _, commit in journal if commit.rewound)
    assert end.floor > end.previous_floor
    forge(end)
    assert kind in {one.kind for one in judged(journal) if one.n == end.n}


def test_what_stays_is_said() -> None:
    world = begun(1)
    world.lose_beginning(start := world.journal[-1][1].previous_floor // 2)
    kept = starting_before(world, start)
    done = rewound(world, None)

    text = "\n".join(str(line) for line in output.describe_result(done, as_json=False))
    (row,) = output.describe_result(done, as_json=True)

    assert f"the source log starts at {start} by now, so {len(kept)} blocks of" in text
    assert isinstance(row, dict)
    assert [set(one["stay"]) for one in row["shortened"]] == [set(kept)]
