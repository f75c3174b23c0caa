"""relay.program.waiting: how long a server that is away is waited for."""

from __future__ import annotations

import itertools
import threading

import pytest

from relay.errors import Refused, Unavailable, WrongCredentials
from relay.program import waiting
from relay.program.waiting import (
    RENEWAL_PAUSE_SECONDS,
    RENEWAL_SECONDS,
    CredentialsWait,
    Lateness,
    Retry,
    ServerWait,
    StoppedWaiting,
    backoff,
    pauses,
)


class Clock(threading.Event):
    """A stop that never comes; waiting for it takes no time but the clock's."""

    def __init__(self, stops_at: float = float("inf")) -> None:
        super().__init__()
        self.now, self.stops_at = 0.0, stops_at

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return self.now >= self.stops_at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(waiting.time, "monotonic", lambda: made.now)
    return made


def away_until(clock: Clock, comes_at: float) -> str:
    """A server that is there from a moment on."""
    if clock.now < comes_at:
        raise Unavailable("away", "wait")
    return "there"


@pytest.mark.parametrize("limit", [0.0, 100.0])
def test_a_server_that_comes_back_is_used(clock: Clock, limit: float) -> None:
    """Within the limit, and without one after any time."""
    assert ServerWait(clock)(lambda: away_until(clock, 60.0), limit) == "there"
    if not limit:
        assert ServerWait(clock)(lambda: away_until(clock, 1e4), limit) == "there"


def test_the_limit_ends_the_waiting(clock: Clock) -> None:
    """With the server's last error; not before the limit, nor a pause later than it must be."""
    with pytest.raises(Unavailable, match="away"):
        ServerWait(clock)(lambda: away_until(clock, 1e6), 20.0)
    assert 20.0 <= clock.now <= 20.0 + waiting.LONGEST_PAUSE_SECONDS


def test_a_stop_ends_the_waiting(clock: Clock) -> None:
    """Without a limit too."""
    clock.stops_at = 30.0
    with pytest.raises(StoppedWaiting):
        ServerWait(clock)(lambda: away_until(clock, 1e6))


def test_a_no_is_not_waited_for(clock: Clock) -> None:
    """Only a server that is away is."""

    def refuse() -> None:
        raise Refused("no", "grant")

    with pytest.raises(Refused):
        ServerWait(clock)(refuse)
    assert clock.now == 0.0


def test_pauses_double_up_to_the_longest() -> None:
    """However many there were: a float has an end, and a server may be away for a year."""
    assert list(itertools.islice(pauses(0.5, 3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert list(itertools.islice(pauses(0.5), 4)) == [0.5, 1.0, 2.0, 4.0]
    assert backoff(0.5, 15.0, 10**9) == 15.0


def tries(wait: CredentialsWait) -> int:
    """How many it allows."""
    for count in itertools.count():
        try:
            wait(WrongCredentials("the brokers refused the password"))
        except WrongCredentials:
            return count
    raise AssertionError


def test_credentials_that_were_good_are_tried_until_their_file_had_its_time(clock: Clock) -> None:
    """And once they are good again, another time begins."""
    wait = CredentialsWait(clock, renewed=True)
    wait.good()
    most = 1 + RENEWAL_SECONDS // RENEWAL_PAUSE_SECONDS
    assert tries(wait) == most
    assert tries(wait) == 0
    wait.good()
    assert tries(wait) == most


def test_credentials_that_never_were_good_and_those_of_no_file_are_a_mistake(clock: Clock) -> None:
    assert tries(CredentialsWait(clock, renewed=True)) == 0
    fixed = CredentialsWait(clock, renewed=False)
    fixed.good()
    assert tries(fixed) == 0


def test_a_stop_ends_the_wait_for_other_credentials(clock: Clock) -> None:
    clock.stops_at = RENEWAL_PAUSE_SECONDS
    wait = CredentialsWait(clock, renewed=True)
    wait.good()
    with pytest.raises(StoppedWaiting):
        tries(wait)


def test_who_does_not_wait_asks_again_after_a_pause(clock: Clock) -> None:
    """Longer from failure to failure, up to a bound; an answer begins anew."""
    retry = Retry(lambda: clock.now)
    given = []
    for _ in range(8):
        assert retry.due
        given.append(retry.failed())
        assert not retry.due
        clock.now += given[-1]
    assert given == list(
        itertools.islice(pauses(waiting.FIRST_PAUSE_SECONDS, waiting.LONGEST_PAUSE_SECONDS), 8)
    )
    retry.failed()
    retry.answered()
    assert retry.due
    assert retry.failed() == waiting.FIRST_PAUSE_SECONDS


@pytest.mark.parametrize("pause", [1.0, 63.0, 300.0])
def test_what_is_missing_is_late_however_seldom_it_is_asked_about(
    clock: Clock, pause: float
) -> None:
    """Red before: with pauses longer than the time itself each question was the first."""
    lateness = Lateness(60.0)
    late = False
    while not late:
        assert clock.now < 60.0 + pause
        late = lateness.late("topic")
        assert late is (clock.now >= 60.0)
        clock.now += pause
    assert not lateness.late("other")


def test_what_was_not_asked_about_for_long_begins_anew(clock: Clock) -> None:
    lateness = Lateness(60.0)
    assert not lateness.late("topic")
    clock.now += 601.0
    assert not lateness.late("topic")
    clock.now += 60.0
    assert lateness.late("topic")
