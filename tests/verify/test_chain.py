"""The verifier finds every single fault of a journal and none in a clean one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.verify.anomaly import Anomaly
from relay.verify.chain import Head, check
from relay.verify.record import Place
from tests.verify.histories import APP, SOURCE, History, clean
from tests.verify.mutations import MUTATIONS

COMMITS = 400
SEEDS = range(12)
HISTORIES = {seed: clean(seed, COMMITS) for seed in SEEDS}


def audit(history: History) -> list[Anomaly]:
    head: Head | None = None
    found: list[Anomaly] = []
    for offset, commit in history:
        head, anomalies = check(Place(APP, SOURCE, 0), head, offset, commit)
        found += anomalies
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_alarm(seed: int) -> None:
    """Restarts, dead letters, marks, holes and every reason to seal: all of it is clean."""
    history = HISTORIES[seed]
    assert sum(commit.flush_point for _, commit in history) >= 3
    assert any(commit.marks for _, commit in history)
    assert audit(history) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_alarm_where_retention_cut_the_beginning(seed: int) -> None:
    assert audit(HISTORIES[seed][COMMITS // 3 :]) == []


@given(st.sampled_from(sorted(MUTATIONS)), st.sampled_from(SEEDS), st.integers(0, 2**32))
@settings(max_examples=400, deadline=None)
def test_every_single_mutation_is_found_and_named(name: str, seed: int, choice: int) -> None:
    """With a flush point behind it; before that, a count may still come right."""
    history = HISTORIES[seed]
    last = max(i for i, (_, commit) in enumerate(history) if commit.flush_point)
    mutated = MUTATIONS[name](random.Random(choice), history[: last + 1])
    if mutated is None:
        return
    changed, kinds = mutated
    found = audit(changed)
    assert found, name
    assert found[0].kind in kinds, (name, found[0])
