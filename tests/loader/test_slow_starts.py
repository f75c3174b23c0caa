"""A busy machine, on which the process of Spark's data source is too slow to start."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from loader.spark.query_start import run_again
from relay.errors import Unavailable

TOO_SLOW = "[STREAM_FAILED] Query terminated: Python worker failed to connect back."
START_SECONDS = 11.0


class Told:
    """What was said, how often a new beginning was counted, and the time."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.restarts = 0
        self.clock = 0.0

    def say(self, text: str, **_: object) -> None:
        self.said.append(text)

    def restarted(self) -> None:
        self.restarts += 1

    def now(self) -> float:
        return self.clock

    def too_slow(self, times: int, then: Exception | None = None) -> Callable[[], None]:
        """A query of which so many starts are too slow; then it runs to its end, or fails."""
        left = iter(range(times))

        def run() -> None:
            if next(left, None) is not None:
                self.clock += START_SECONDS
                raise StreamingQueryException(TOO_SLOW)
            if then is not None:
                raise then

        return run


def test_it_begins_again_until_it_is_quick_enough() -> None:
    """Seen at a load of 50 on two processors: it ended after ten tries, with status 70."""
    told = Told()
    run_again(told.too_slow(40), 0, told.say, told.restarted, told.now)
    assert told.restarts == len(told.said) == 40
    assert "(try 40), starting again: give the loader more of a processor" in told.said[-1]


def test_a_limit_ends_it_with_cause_and_next_step() -> None:
    told = Told()
    with pytest.raises(Unavailable) as ended:
        run_again(told.too_slow(40), 60, told.say, told.restarted, told.now)
    assert told.restarts == 5
    assert "(try 6)" in ended.value.message
    assert ended.value.next_step.startswith("Give the loader more of a processor")


def test_one_that_ran_for_long_has_all_its_time_again() -> None:
    told = Told()
    start = told.too_slow(5)

    def run() -> None:
        told.clock += 3_600.0 if told.restarts == 3 else 0.0
        start()

    run_again(run, 60, told.say, told.restarted, told.now)
    assert [said.count("(try 1)") for said in told.said] == [1, 0, 0, 1, 0]


@pytest.mark.parametrize("other", [StreamingQueryException("else"), Unavailable("a broker", "x")])
def test_what_else_ends_a_query_ends_it(other: Exception) -> None:
    told = Told()
    with pytest.raises(type(other)) as ended:
        run_again(told.too_slow(2, other), 0, told.say, told.restarted, told.now)
    assert ended.value is other
    assert told.restarts == 2
