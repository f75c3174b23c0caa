"""relay.schema.beside: nobody waits longer for a server that says nothing than for others."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from relay.config.settings import ClickHouse
from relay.errors import ClickHouseAway
from relay.program.waiting import LONGEST_PAUSE_SECONDS
from relay.schema import beside as beside_module
from relay.schema.asked_apart import DatabasesApart
from relay.schema.beside import _MOST_FAILED, KEPT_SECONDS, Beside, SlowestAnswer
from relay.schema.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 0.5
SHORT = 0.02
DATABASES = [f"m{number:02}" for number in range(16)]


class SlowServer:
    """Answers each question once it is let; counts them."""

    def __init__(self) -> None:
        self.let, self.asked = threading.Event(), 0
        self.error: Exception | None = None

    def answer(self) -> int:
        self.asked += 1
        assert self.let.wait(30)
        if self.error is not None:
            raise self.error
        return self.asked


@pytest.fixture
def server() -> Iterator[SlowServer]:
    made = SlowServer()
    yield made
    made.let.set()


def late(beside: Beside, server: SlowServer) -> float:
    """Seconds after which the question was given up."""
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer for"):
        beside(server.answer)
    return time.monotonic() - begun


def ended(beside: Beside) -> None:
    """The question that was left with the server has its answer, or its error."""
    (left,) = beside._left.values()
    assert left.ended.wait(30)


def test_what_answers_in_time_is_as_if_asked_directly(server: SlowServer) -> None:
    server.let.set()
    beside = Beside(30.0)
    assert [beside(server.answer) for _ in range(3)] == [1, 2, 3]
    server.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        beside(server.answer)
    server.error = None
    assert beside(server.answer) == 5


def test_one_question_at_a_time_stays_with_a_silent_server(server: SlowServer) -> None:
    """The others are refused at once: they would only wait behind it."""
    beside = Beside(PATIENCE)
    assert late(beside, server) >= PATIENCE
    assert sum(late(beside, server) for _ in range(100)) < 100 * PATIENCE / 2
    assert server.asked == 1


def test_what_is_silent_keeps_nothing_else(server: SlowServer) -> None:
    """As ClickHouse is about a database that a silent server lists. Red before: until that one's
    question had ended, after half a minute, every other was refused."""
    beside = Beside(PATIENCE)
    late(beside, server)
    assert beside(lambda: 7, ("shop",)) == 7
    with pytest.raises(TimeoutError, match="no answer for"):
        beside(server.answer)
    assert server.asked == 1


def test_few_questions_without_an_answer_are_remembered(server: SlowServer) -> None:
    """Whatever producers name while the server is silent."""
    beside = Beside(0.0)
    server.error = OSError("timed out")
    for about in range(2 * _MOST_FAILED):
        with pytest.raises(TimeoutError):
            beside(server.answer, about)
    left = tuple(beside._left.values())
    server.let.set()
    assert all(one.ended.wait(30) for one in left)
    server.error = None
    beside._patience = lambda **_: 30.0  # type: ignore[method-assign]
    beside(server.answer)
    assert len(beside._left) == _MOST_FAILED


def test_a_slow_answer_is_late_once(server: SlowServer) -> None:
    """Then it has the time that it takes; its first answer is not used, as it may be old."""
    beside = Beside(PATIENCE)
    late(beside, server)
    threading.Timer(2 * PATIENCE, server.let.set).start()
    ended(beside)
    server.let.clear()
    threading.Timer(2 * PATIENCE, server.let.set).start()
    assert beside(server.answer) == 2


def test_a_server_that_gave_no_answer_is_waited_for_less(server: SlowServer) -> None:
    """Until it gives one."""
    beside = Beside(2.0)
    server.error = OSError("timed out")
    late(beside, server)
    server.let.set()
    ended(beside)
    server.let.clear()
    assert late(beside, server) < 2.0
    server.error = None
    server.let.set()
    ended(beside)
    assert beside(server.answer) == 3
    server.let.clear()
    assert late(beside, server) >= 2.0


def test_the_catalogue_of_a_socket_that_never_answers() -> None:
    """As of a server behind a firewall that drops packets: it is away, with its address."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        catalogue, begun = Catalogue(ClickHouse(url=url), Beside(PATIENCE)), time.monotonic()
        for _ in range(10):
            with pytest.raises(ClickHouseAway, match=f"{url}.* no answer for"):
                catalogue.read(["d.t"])
        assert time.monotonic() - begun < 10 * PATIENCE


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What gave no answer last time is waited for much less than what did."""
    monkeypatch.setattr(beside_module, "AGAIN_SECONDS", SHORT)


class Asked:
    """Tables of many databases, as the relay asks about them again and again.

    Attributes:
        seconds: that it waited, each time.
        away: databases that ClickHouse could not look into, the last time.
    """

    def __init__(self, ask: Callable[[set[str]], Any]) -> None:
        self._now, self._ask = 0.0, ask
        self._apart = DatabasesApart(lambda: self._now)
        self.seconds: list[float] = []
        self.away: set[str] = set()

    def again(self) -> bool:
        """Return whether it was said which databases are away."""
        self._now += LONGEST_PAUSE_SECONDS
        begun = time.monotonic()
        try:
            away = self._apart.ask([f"{one}.t" for one in DATABASES], self._ask)
        except ClickHouseAway:
            return False
        finally:
            self.seconds.append(time.monotonic() - begun)
        self.away = {table.partition(".")[0] for table in away}
        return True


@pytest.mark.usefixtures("short")
def test_a_server_that_never_answers_is_waited_for_once() -> None:
    """However many databases it has. Red before: half of them were another question, which was
    waited for as if nobody had been silent; so 2 s for each of 31 questions."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asked = Asked(Catalogue(ClickHouse(url=url), Beside(PATIENCE)).read)
        for _ in range(40):
            asked.again()
    assert asked.seconds[0] >= PATIENCE
    assert sum(asked.seconds) < 40 * PATIENCE / 2


@pytest.mark.usefixtures("short")
def test_a_server_that_fails_late_keeps_nobody_for_each_database(server: SlowServer) -> None:
    """Each question has ended before the next try. Red before: each database was waited for."""
    beside = Beside(PATIENCE)
    server.error = OSError("timed out")

    def ask(some: set[str]) -> None:
        try:
            beside(server.answer, tuple(sorted(some)))
        except TimeoutError as late:
            raise ClickHouseAway("no answer", "wait") from late

    asked, questions = Asked(ask), list[int]()
    for _ in range(40):
        asked.again()
        questions.append(server.asked)
        server.let.set()
        assert all(one.ended.wait(30) for one in tuple(beside._left.values()))
        server.let.clear()
    assert asked.away == {*DATABASES}
    assert questions[-1] - questions[-9] < 8 * len(DATABASES) / 2, "each is waited for"


@pytest.mark.usefixtures("short")
def test_the_silent_one_of_many_is_found_on_a_server_that_is_not_quick(server: SlowServer) -> None:
    """Though the others' answers take longer than what is silent is waited for; once it is known,
    each time they are answered."""
    beside = Beside(3 * PATIENCE)

    def ask(some: set[str]) -> None:
        silent = "m07.t" in some
        try:
            beside(server.answer if silent else lambda: time.sleep(2 * SHORT), tuple(sorted(some)))
        except TimeoutError as late:
            raise ClickHouseAway("no answer", "wait") from late

    asked = Asked(ask)
    while not asked.again():
        assert len(asked.seconds) < 30
        time.sleep(3 * SHORT)
    assert asked.away == {"m07"}
    server.error = OSError("timed out")
    for _ in range(5):
        server.let.set()
        assert all(one.ended.wait(30) for one in tuple(beside._left.values()))
        server.let.clear()
        assert asked.again()
        assert asked.away == {"m07"}


class TimedQuestion:
    """A question as Beside puts it, in a time of its own: what it calls says how long it takes."""

    now = 0.0
    error = answer = None

    def __init__(self, ask: Callable[[], float]) -> None:
        self.seconds, self.begun, self.ended = ask(), TimedQuestion.now, self

    def wait(self, seconds: float) -> bool:
        TimedQuestion.now += min(seconds, self.seconds)
        return self.is_set()

    def is_set(self) -> bool:
        return TimedQuestion.now >= self.begun + self.seconds

    def silence(self) -> str:
        return "no answer"


@pytest.mark.parametrize("takes", [0.05, 0.4, 0.6])
def test_who_answers_as_slowly_as_ever_is_not_taken_for_the_silent_one(
    monkeypatch: pytest.MonkeyPatch, takes: float
) -> None:
    """Red before, with 0.4 s: a, then b was away, as it was waited for 0.25 s beside a silent x."""
    monkeypatch.setattr(beside_module, "_Question", TimedQuestion)
    beside, silent = Beside(), set[str]()

    def ask(some: set[str]) -> None:
        try:
            beside(lambda: inf if silent & some else takes, tuple(sorted(some)))
        except TimeoutError as late:
            raise ClickHouseAway("no answer", "wait") from late

    apart, away = DatabasesApart(lambda: TimedQuestion.now), set[str]()
    asked = ["a.t", "b.t", "x.t"]
    assert apart.ask(asked, ask) == {}
    silent.add("x.t")
    for _ in range(10):
        TimedQuestion.now += LONGEST_PAUSE_SECONDS
        with suppress(ClickHouseAway):
            away |= apart.ask(asked, ask).keys()
        assert apart._away.keys() <= {"x"}
    assert away == {"x.t"}


def test_short_questions_take_no_time_from_a_slow_one(server: SlowServer) -> None:
    """Red before: each answer in no time halved the patience, so the slow one was late for ever.

    The catalogue asks so: digests in pieces, then columns.
    """
    beside = Beside(PATIENCE)
    late(beside, server)
    threading.Timer(2 * PATIENCE, server.let.set).start()
    ended(beside)
    assert [beside(server.answer) for _ in range(10)] == [*range(2, 12)]
    server.let.clear()
    threading.Timer(2 * PATIENCE, server.let.set).start()
    assert beside(server.answer) == 12


def learned(*answers: tuple[float, float]) -> float:
    """The slowest after these: at which second each came, and how long it took."""
    now = 0.0
    slowest = SlowestAnswer(lambda: now)
    for now, seconds in answers:  # noqa: B007 - the clock reads it
        slowest.learn(seconds)
    return slowest.seconds


def test_a_slow_answer_counts_for_its_time() -> None:
    """However many short ones come; then the server may be a quick one again."""
    end = KEPT_SECONDS
    assert learned((0, 3.5), *((second, 0.05) for second in range(1, 500))) == 3.5
    assert learned((0, 3.5), (end, 0.3), (end + 1, 0.3)) == 0.3
    assert learned((0, 3.5), (end + 1, 0.3), (end + 2, 4.0), (end + 3, 0.1)) == 4.0


def test_answers_that_are_about_as_slow_keep_it() -> None:
    """Else it were late once in that time, as the next short answer took its place."""
    each = KEPT_SECONDS - 1
    assert learned((0, 3.5), (each, 3.4), (2 * each, 3.3), (2 * each + 1, 0.1)) == 3.5
