"""What a person recorded raises nothing; what was forged, or went wrong, does."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from relay.operate.rewind import accept as accept_steps
from relay.operate.rewind.records import RewindAuthor
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge import ledger_history, operator_records
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.operator_records import (
    SealedStarts,
    Superseded,
    replaced,
)
from relay.records_pb2 import Block, Commit
from tests.rewind.world import World
from tests.verify import histories
from tests.verify.histories import History
from tests.verify.rewinds import judged, rewound, with_rewinds


def changed(journal: History, change: Callable[[Commit], None], field: str) -> History:
    """The first record that is a person's, changed; the others as they are."""
    copies = [(offset, Commit.FromString(c.SerializeToString())) for offset, c in journal]
    for _, commit in copies:
        if commit.HasField(field):
            change(commit)
            return copies
    raise AssertionError(f"no record has {field}")


def test_clean_histories_with_rewinds_raise_nothing() -> None:
    for seed in range(40):
        assert judged(rewound(seed, None if seed % 3 else "d.a").journal) == []


@pytest.mark.parametrize("seed", range(12))
def test_several_rewinds_one_after_the_other_raise_nothing(seed: int) -> None:
    journal = with_rewinds(seed)
    assert any(commit.HasField("rewind") for _, commit in journal)
    assert judged(journal) == []


def test_retained_in_part_they_raise_nothing() -> None:
    journal = rewound(2).journal
    for start in range(len(journal)):
        assert judged(journal[start:]) == []


def _middle_of_a_block(commit: Commit) -> None:
    commit.rewind.starts[0].offset += 1
    commit.floor = commit.position = commit.reference = min(
        commit.previous_floor, commit.rewind.starts[0].offset
    )
    for mark in commit.marks:
        if mark.table == commit.rewind.starts[0].table:
            mark.offset += 1


def _no_mark(commit: Commit) -> None:
    del commit.marks[:]
    commit.flush_point = True


def _another_mark(commit: Commit) -> None:
    commit.marks[-1].offset -= 1


def _floor_too_low(commit: Commit) -> None:
    commit.floor = commit.position = commit.reference = commit.floor - 1


def _floor_too_high(commit: Commit) -> None:
    commit.floor = commit.position = commit.reference = commit.floor + 1


def _same_epoch(commit: Commit) -> None:
    commit.epoch -= 1


def _foreign_topic(commit: Commit) -> None:
    commit.source_topic_id = "another"


def _no_rewind(commit: Commit) -> None:
    commit.ClearField("rewind")


def _beyond_what_is_done(commit: Commit) -> None:
    commit.rewind.starts[0].offset = 10**6


def _with_a_block(commit: Commit) -> None:
    commit.blocks.append(
        Block(
            id=f"{commit.app}:d.a:0:{commit.epoch}:{commit.floor}",
            table="d.a",
            topic="t",
            rows=1,
            messages=1,
            chunks=1,
            first_offset=10**9,
            next_offset=10**9 + 1,
            first_source_offset=commit.floor,
            next_source_offset=commit.floor + 1,
        )
    )


def _counted(commit: Commit) -> None:
    commit.count = 3


@pytest.mark.parametrize(
    ("forge", "kind"),
    [
        (_middle_of_a_block, AnomalyKind.OVERLAP),
        (_no_mark, AnomalyKind.OVERLAP),
        (_another_mark, AnomalyKind.OVERLAP),
        (_floor_too_low, AnomalyKind.BACKWARD),
        (_floor_too_high, AnomalyKind.GAP),
        (_same_epoch, AnomalyKind.BACKWARD),
        (_foreign_topic, AnomalyKind.FOREIGN),
        (_no_rewind, AnomalyKind.BACKWARD),
        (_beyond_what_is_done, AnomalyKind.GAP),
        (_with_a_block, AnomalyKind.TORN),
        (_counted, AnomalyKind.TORN),
    ],
)
def test_a_forged_rewind_is_named(forge: Callable[[Commit], None], kind: AnomalyKind) -> None:
    journal = rewound().journal
    at = next(c.n for _, c in journal if c.HasField("rewind"))

    found = judged(changed(journal, forge, "rewind"))

    assert kind in {one.kind for one in found if one.n == at}


def test_blocks_before_the_rewind_has_ended_are_named() -> None:
    journal = rewound().journal
    end = next(i for i, (_, c) in enumerate(journal) if c.rewound)
    without = [(o, Commit.FromString(c.SerializeToString())) for o, c in journal]
    without[end][1].rewound = False

    assert [one.kind for one in judged(without)][:1] == [AnomalyKind.TORN]


def test_the_end_of_no_rewind_is_named() -> None:
    journal = [(o, Commit.FromString(c.SerializeToString())) for o, c in rewound().journal]
    journal[5][1].rewound = True

    assert any("ends no rewind" in one.text for one in judged(journal))


def test_an_unfinished_rewind_is_said() -> None:
    journal = rewound().journal
    begun = next(i for i, (_, c) in enumerate(journal) if c.HasField("rewind"))
    audit = Audit(histories.APP, histories.SOURCE, 1.0)
    for offset, commit in journal[: begun + 1]:
        audit.record(0, offset, commit)

    assert audit.unfinished() == [0]
    assert "rewound from" in audit.acknowledged[0]
    assert audit.totals.by_person == {("rewind", 0): 1}


def accepted(kind: str) -> World:
    world, begins = World(3), dict[int, int]()
    world.relay(30)
    if kind == "retention":
        world.log_start = world.floor + 2
        world._end = max(world._end, world.log_start)
        world.messages = [m for m in world.messages if m[0] >= world.log_start]
    elif kind == "topic":
        world.topic_id, world.named = "another", None
        world.messages, world._end = [], 0
    elif kind == "truncated":
        begins = {0: world.floor - 5}
        world.lose_end(world.floor - 5, new=30)
    elif kind == "epoch":
        head = world.journal[-1][1]
        begins = {0: max([head.floor, *(mark.offset for mark in head.marks)])}
        world.lost_end = -1
    else:
        world.named = (1, None)
    author = RewindAuthor("accept", 1, "so it was")
    accept_steps.accept(world, begins, None, lambda: author)
    world.relay(20)
    return world


def _no_accept(commit: Commit) -> None:
    commit.ClearField("accept")


def _another_kind(commit: Commit) -> None:
    commit.accept.kinds[:] = ["offsets"]


def _no_kind(commit: Commit) -> None:
    commit.accept.kinds[:] = []


def _another_floor(commit: Commit) -> None:
    commit.floor = commit.position = commit.floor + 1


def _a_mark(commit: Commit) -> None:
    commit.marks.add(table="d.a", offset=commit.previous_floor)


def _back_where_it_was(commit: Commit) -> None:
    commit.floor = commit.position = commit.reference = commit.previous_floor


@pytest.mark.parametrize("kind", ["retention", "topic", "truncated", "epoch", "offsets"])
def test_an_accepted_state_stays_visible_and_is_no_anomaly(kind: str) -> None:
    world = accepted(kind)
    audit = Audit(histories.APP, histories.SOURCE, 1.0)
    for offset, commit in world.journal:
        audit.record(0, offset, commit)

    assert audit.anomalies == []
    (text,) = audit.acknowledged
    assert text.startswith("partition 0, n=")
    assert "1970-01-01 00:00:00 UTC: accepted " in text
    assert kind in text
    assert text.endswith("why: so it was")
    assert audit.totals.by_person == {(kind, 0): 1}


@pytest.mark.parametrize(
    ("kind", "forge"),
    [
        ("retention", _no_accept),
        ("retention", _another_kind),
        ("retention", _no_kind),
        ("topic", _no_accept),
        ("topic", _another_kind),
        ("truncated", _no_accept),
        ("truncated", _another_kind),
        ("truncated", _a_mark),
        ("truncated", _back_where_it_was),
        ("epoch", _no_accept),
        ("epoch", _another_floor),
        ("epoch", _a_mark),
        ("offsets", _no_accept),
        ("offsets", _no_kind),
        ("offsets", _another_floor),
        ("offsets", _same_epoch),
    ],
)
def test_a_forged_accept_is_named(kind: str, forge: Callable[[Commit], None]) -> None:
    assert judged(changed(accepted(kind).journal, forge, "accept"))


def sealed(partition: int, table: str, first: int) -> Commit:
    commit = Commit(partition=partition)
    commit.blocks.add(table=table, first_source_offset=first, next_source_offset=first + 10)
    return commit


def of_rewind(partition: int, starts: dict[str, int]) -> Commit:
    commit = Commit(partition=partition, floor=min(starts.values()))
    for table, offset in starts.items():
        commit.rewind.starts.add(table=table, offset=offset)
    return commit


def kept_bytes(starts: SealedStarts) -> int:
    return sum(sys.getsizeof(one) for of in starts._of.values() for one in of.places())


def test_what_a_verifier_keeps_of_blocks_is_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 bytes for each block of each table and partition filled 1 GB in two days."""
    monkeypatch.setattr(operator_records, "KEPT_PLACES", 100_000)
    starts, most = SealedStarts(), 0
    for block in range(1_000_000):
        list(starts.add(block % 20, sealed(block % 20, f"d.t{block % 7}", block * 10)))
        if block % 10_000 == 9_999:
            most = max(most, kept_bytes(starts))
    assert most < 1_000_000
    partition, table, place = block % 20, f"d.t{block % 7}", block * 10
    assert list(starts.add(partition, of_rewind(partition, {table: place}))) == []
    found = starts.add(partition, of_rewind(partition, {table: place - 1_401}))
    assert any("where no block of it begins" in one.text for one in found), "these are known"


def test_a_quiet_table_keeps_its_places_beside_busy_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_records, "KEPT_PLACES", 1_000)
    starts = SealedStarts()
    for first in (10, 30, 50):
        list(starts.add(3, sealed(3, "d.quiet", first)))
    for block in range(10_000):
        list(starts.add(block % 3, sealed(block % 3, "d.busy", block * 10)))
    assert kept_bytes(starts) < 10_000
    (wrong,) = starts.add(3, of_rewind(3, {"d.quiet": 31}))
    assert "d.quiet rewound to 31" in wrong.text


def test_a_rewind_beyond_what_is_kept_is_not_judged_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_records, "KEPT_PLACES", 100)
    starts = SealedStarts()
    for block in range(1_000):
        list(starts.add(0, sealed(0, "d.a", block * 10)))
    assert list(starts.add(0, of_rewind(0, {"d.a": 10}))) == []


def test_superseded_blocks_have_no_rows_and_are_settled() -> None:
    world = rewound()
    world.load()
    superseded = Superseded([commit for _, commit in world.journal])
    blocks = {b.id: b for b in world.blocks() if b.id in superseded.removed}
    assert blocks
    ledger = {name: ledger_history.History(state) for name, state in world.ledger.items()}

    assert list(replaced(blocks, superseded, world.rows, ledger)) == []

    first = next(iter(blocks))
    still = {**world.rows, first: 1}
    assert [f.kind for f in replaced(blocks, superseded, still, ledger)] == [AnomalyKind.OVERLAP]
    forgotten = {name: one for name, one in ledger.items() if name != first}
    found = list(replaced(blocks, superseded, world.rows, forgotten))
    assert [f.kind for f in found] == [AnomalyKind.OVERLAP]
    assert "may still be loaded" in found[0].text
