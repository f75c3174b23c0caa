"""What becomes of a relay that ended while others go on."""

from __future__ import annotations

import itertools
import signal

import pytest

from relay.errors import RelayError
from relay.program.supervision import (
    FENCES,
    LONGEST_PAUSE_SECONDS,
    STEADY_SECONDS,
    Past,
    after,
    worst,
)

AGAIN = [1, 4, 7, 70, -signal.SIGKILL, -signal.SIGSEGV]
ENDED = [0, 2, 3, 5, 6]


def test_every_status_has_a_verdict() -> None:
    """Each one of relay.errors, so that a new one is thought of."""
    assert {error.exit_code for error in RelayError.__subclasses__()} <= {*AGAIN, *ENDED}


@pytest.mark.parametrize("status", AGAIN)
def test_what_passes_by_itself_is_started_again(status: int) -> None:
    assert after(status, 0.1, Past()).pause == 1.0


@pytest.mark.parametrize("status", ENDED)
@pytest.mark.parametrize("ran", [0.0, STEADY_SECONDS])
def test_what_waits_for_a_person_stays_ended(status: int, ran: float) -> None:
    """Also the one that somebody asked to end."""
    assert after(status, ran, Past(3, 0)).pause is None


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_steady_run() -> None:
    past, pauses = Past(), []
    for _ in range(100):
        pause, past = after(4, 0.0, past)
        assert pause is not None
        pauses.append(pause)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert set(pauses[6:]) == {LONGEST_PAUSE_SECONDS}
    assert after(4, STEADY_SECONDS, past).pause == 1.0


def test_two_with_one_identity_do_not_end_each_other_for_ever() -> None:
    past = Past()
    for _ in range(FENCES):
        pause, past = after(7, 1.0, past)
        assert pause is not None
    assert after(7, 1.0, past).pause is None
    # Negative control: as often, but each after a steady run.
    past = Past()
    for _ in range(3 * FENCES):
        pause, past = after(7, STEADY_SECONDS, past)
        assert pause == 1.0


def test_the_worst_status_stands_for_all() -> None:
    """What most wants a person comes first, whatever the order; all well is 0."""
    order = [6, 5, 2, 3, 70, 7, 1, 4, -9, 0]
    for first, second in itertools.combinations(order, 2):
        assert worst([first, second]) == worst([second, first]) == first
    assert worst([]) == 0
