"""What a pause is, and whether it is seen."""

from __future__ import annotations

import pytest

from tests.bench.rebalance import Moves, figures


def moves(*floors: tuple[float, list[int]]) -> Moves:
    made = Moves()
    for now, of_each in floors:
        made.look(now, of_each)
    return made


def test_a_pause_is_the_longest_of_any_partition() -> None:
    """It may begin before what happened, and end behind it; what was before that is no part."""
    seen = moves(
        *((0.0, [0, 0]), (5.0, [1, 1]), (6.0, [2, 2])),
        *((7.0, [3, 2]), (9.0, [4, 3]), (9.5, [5, 3]), (10.0, [6, 4]), (20.0, [7, 5])),
    )
    assert seen.pause(6.5, 9.8, 1) == 3.0  # the second partition's, from 6 to 9
    assert seen.pause(9.2, 9.9, 1) == 1.0
    assert seen.pause(9.2, 9.9, 2) == 10.0
    assert seen.pause(9.2, 10.5, 1) == 10.0


def test_nobody_calls_it_a_pause_before_every_floor_moved_again() -> None:
    seen = moves((0.0, [0, 0]), (1.0, [1, 1]), (2.0, [2, 1]))
    with pytest.raises(ValueError, match="has to move before and after"):
        seen.pause(0.5, 1.5, 1)
    assert seen.all_moved(0.5, 1)
    assert not seen.all_moved(0.5, 2)
    assert not seen.all_moved(1.0, 1)


def test_pauses_are_medians_over_the_rounds() -> None:
    (figure,) = figures({"a relay comes": [1.0, 9.0, 2.0]})
    assert (figure.name, figure.value) == ("longest pause, a relay comes", 2.0)
