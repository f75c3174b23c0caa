"""The messages that a table refuses: found whatever they are, and few trials for few of them."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.core.bad_messages import MOST, TableRefusal, TooMany, Unsteady, confirm, refused
from loader.core.left_out import stretches
from relay.blocks.message_rows import MessageRows


class Table:
    """Refuses the rows of some messages; its errors name the row, or none, or lie."""

    def __init__(self, messages: MessageRows, bad: set[int], names: str = "row") -> None:
        self.messages, self.bad, self.names = messages, bad, names
        self.trials = 0

    def trial(self, indexes: np.ndarray) -> TableRefusal | None:
        assert len(indexes)
        self.trials += 1
        blamed = [at for at in indexes.tolist() if at in self.bad]
        if not blamed:
            return None
        position = int(np.searchsorted(indexes, blamed[0]))
        row = int(self.messages.rows[indexes[:position]].sum())
        named = {"row": row, "none": None, "lie": row + 1, "beyond": 10**9}[self.names]
        return TableRefusal(f"message {blamed[0]} is bad", named)


def listed(rows: list[int]) -> MessageRows:
    return MessageRows(np.arange(len(rows)) * 3 + 5, np.array(rows, np.int64))


@given(
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=60),
    st.sampled_from(["row", "none", "lie", "beyond"]),
)
def test_just_the_bad_ones_are_found_with_their_own_reasons(
    of: list[tuple[int, bool]], names: str
) -> None:
    bad = {at for at, (_, is_bad) in enumerate(of) if is_bad}
    table = Table(listed([rows for rows, _ in of]), bad, names)
    found = refused(table.trial, table.messages)
    assert found == {at: f"message {at} is bad" for at in bad}


@pytest.mark.parametrize("bad", [1, 10, 1000])
def test_an_error_that_names_its_row_costs_two_trials(bad: int) -> None:
    messages = listed([1] * 10_000)
    at = {int(one) for one in np.linspace(17, 9_990, bad)}
    table = Table(messages, at)
    assert refused(table.trial, messages).keys() == at
    assert table.trials <= 2 * bad + 2


@pytest.mark.parametrize("bad", [1, 10, 1000])
def test_one_that_names_none_costs_about_two_for_each_halving(bad: int) -> None:
    messages = listed([1] * 10_000)
    at = {int(one) for one in np.linspace(17, 9_990, bad)}
    table = Table(messages, at, "none")
    assert refused(table.trial, messages).keys() == at
    assert table.trials <= 2 + 2 * bad * (math.log2(10_000 / bad) + 2)


@pytest.mark.parametrize(
    ("offsets", "read"),
    [
        ([7], [(7, 8)]),
        ([7, 8, 9], [(7, 10)]),
        ([0, 2_000, 2_001], [(0, 2_002)]),
        ([0, 2_001, 9_000], [(0, 1), (2_001, 2_002), (9_000, 9_001)]),
    ],
)
def test_messages_that_lie_near_are_read_in_one_go(
    offsets: list[int], read: list[tuple[int, int]]
) -> None:
    assert stretches(offsets) == read


@pytest.mark.parametrize("names", ["row", "none"])
def test_a_table_that_fits_nothing_is_not_searched_to_the_end(names: str) -> None:
    messages = listed([1] * (4 * MOST))
    table = Table(messages, set(range(4 * MOST)), names)
    with pytest.raises(TooMany):
        refused(table.trial, messages)
    assert table.trials <= 4 * MOST + 20


@pytest.mark.parametrize(
    ("bad", "steady"),
    [({3, 4}, True), ({3}, False), (set(), False), ({3, 4, 5}, False)],
    ids=["the same", "one is taken now", "all are taken now", "another is refused now"],
)
def test_what_a_passing_trouble_may_have_decided_is_tried_again(
    bad: set[int], *, steady: bool
) -> None:
    table = Table(listed([1] * 10), bad)
    with contextlib.nullcontext() if steady else pytest.raises(Unsteady):
        confirm(table.trial, {4: "", 3: ""}, 10)


def test_where_all_are_refused_there_are_no_others_to_confirm() -> None:
    confirm(Table(listed([1, 2]), {0, 1}).trial, {0: "", 1: ""}, 2)
