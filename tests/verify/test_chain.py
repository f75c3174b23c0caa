"""The verifier finds every single fault of a journal and none in a clean one.

`python -m pytest tests/verify --hypothesis-profile=long` takes histories of 10 000 commits for
the faults, and 10 000 histories for false alarms: about a quarter of an hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.operate.verify.judge.chain import check
from relay.operate.verify.judge.record import ChainHead, JournalPlace
from relay.records_pb2 import Commit
from tests.profiles import is_long
from tests.verify.histories import APP, SOURCE, History, clean
from tests.verify.laps import laps
from tests.verify.mutations import MUTATIONS
from tests.verify.rewinds import judged, with_rewinds

LONG = is_long()
COMMITS = 10_000 if LONG else 400
SEEDS = range(12)
CLEAN_HISTORIES = 10_000 if LONG else 0
CLEAN_COMMITS = (50, 400)
MUTATED = 2_000 if LONG else 20
"""Examples for each kind of mutation."""
PLACE = JournalPlace(APP, SOURCE, 0)


def audit(history: History, head: ChainHead | None = None) -> Iterator[Anomaly]:
    for offset, commit in history:
        head, anomalies = check(PLACE, head, offset, commit)
        yield from anomalies


@cache
def heads(seed: int) -> tuple[History, list[ChainHead | None]]:
    """A clean history up to its last flush point, and the verifier's head before each record."""
    history = clean(seed, COMMITS)
    last = max(i for i, (_, commit) in enumerate(history) if commit.flush_point)
    before: list[ChainHead | None] = [None]
    for offset, commit in history[: last + 1]:
        before.append(check(PLACE, before[-1], offset, commit)[0])
    return history[: last + 1], before


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_alarm(seed: int) -> None:
    """Restarts, dead letters, marks, holes and every reason to seal: all of it is clean."""
    history = clean(seed, COMMITS)
    assert sum(commit.flush_point for _, commit in history) >= 3
    assert any(commit.marks for _, commit in history)
    assert list(audit(history)) == []


def with_shares(history: History) -> History:
    """The same, with every second block in a chunk of partition 7, which others share."""
    ends: dict[tuple[str, int], int] = {}
    found = []
    for offset, commit in history:
        changed = Commit.FromString(commit.SerializeToString())
        for at, block in enumerate(changed.blocks, commit.n):
            partition = 7 if at % 2 else block.partition
            if at % 2:
                block.share.partition, block.share.first, block.share.first_row = 7, "a:7", at
                block.chunks = 1
            place = block.topic, partition
            block.first_offset = ends.get(place, 0)
            ends[place] = block.next_offset = block.first_offset + block.chunks
        found.append((offset, changed))
    return found


def test_blocks_follow_each_other_in_each_partition_where_their_chunks_are() -> None:
    history = with_shares(clean(3, COMMITS))
    shared = [b for _, commit in history for b in commit.blocks if b.HasField("share")]
    assert len(shared) > 10
    assert list(audit(history)) == []
    again = next(block for block in shared[1:] if block.topic == shared[0].topic)
    again.first_offset = shared[0].first_offset
    (found,) = audit(history)
    assert found.kind is AnomalyKind.OVERLAP
    assert again.id in found.text


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_alarm_where_retention_cut_the_beginning(seed: int) -> None:
    assert list(audit(clean(seed, COMMITS)[COMMITS // 3 :])) == []


@pytest.mark.skipif(not LONG, reason="--hypothesis-profile=long")
@pytest.mark.parametrize("start", range(0, CLEAN_HISTORIES, 1_000))
@pytest.mark.timeout(1_200)
def test_no_false_alarm_in_many_histories(start: int) -> None:
    """Every fourth with rewinds."""
    for seed in range(start, start + 1_000):
        commits = random.Random(seed).randint(*CLEAN_COMMITS)
        history = clean(1_000_000 + seed, commits) if seed % 4 else with_rewinds(seed)
        assert judged(history) == [], seed


def test_laps_of_a_history_are_a_history() -> None:
    """What tests.verify.scale writes is clean, and whole: a record left out is found."""
    history = clean(5, COMMITS)
    longer = list(enumerate(laps(history, 3 * len(history))))
    assert longer[-1][1].n == 3 * len(history)
    assert longer[-1][1].floor > history[-1][1].floor
    assert list(audit(longer)) == []
    at = 2 * len(history)
    assert list(audit(longer[:at] + longer[at + 1 :]))


@pytest.mark.parametrize("name", sorted(MUTATIONS))
@pytest.mark.timeout(1_200 if LONG else 300)
@given(st.sampled_from(SEEDS), st.integers(0, 2**32))
@settings(max_examples=MUTATED)
def test_every_single_mutation_is_found_and_named(name: str, seed: int, choice: int) -> None:
    """With a flush point behind it; before that, a count may still come right."""
    history, before = heads(seed)
    tries = (MUTATIONS[name](random.Random(f"{choice} {again}"), history) for again in range(99))
    changed, kinds = next(mutated for mutated in tries if mutated is not None)
    pairs = zip(history, changed, strict=False)
    at = next((i for i, (one, other) in enumerate(pairs) if one is not other), len(changed))
    found = next(audit(changed[at:], before[at]), None)
    assert found is not None, name
    assert found.kind in kinds, (name, found)
