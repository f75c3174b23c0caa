"""Brokers that are away for longer than a member's session, with a transaction open."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from relay.dev import broker
from tests.broker.own_broker import bootstrap, own_broker  # noqa: F401 - one is a fixture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.pipeline import Pipeline

OUTAGE_SECONDS = 12.0
"""Of sessions that last six."""
REQUEST_OUTAGE_SECONDS = 70.0
"""Longer than two requests about a group may take."""
ROWS = 4000


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of a broker that the tests kill and start again."""
    with own_broker(tmp_path_factory.mktemp("outage")) as directory:
        yield directory


def outage(own: Path, seconds: float) -> None:
    """SIGKILL the broker, and start it again so much later."""
    broker.kill(own, 0)
    time.sleep(seconds)  # the outage itself
    broker.start(own, 0)


@pytest.mark.long  # 62 s: the outage
def test_relays_outlive_it_under_their_own_members(own: Path, pipeline: Pipeline) -> None:
    """NEWCOMER A2: the broker still knows the member by the id that it had before, and its own
    late heartbeat is refused as another's. Nobody else used the member, and nobody ends."""
    config = pipeline.config(wait_for_servers_seconds=0.0)
    relays = [pipeline.start(member, config) for member in "ab"]
    first = 0
    for _ in range(2):
        for partition in range(2):
            pipeline.send(range(first, first + ROWS), partition)
            first += ROWS
        before = first - 2 * ROWS
        pipeline.until(lambda least=before: pipeline.rows().total() > least, "the first of them")
        outage(own, OUTAGE_SECONDS)
        pipeline.until(lambda all_=first: pipeline.rows().total() >= all_, "all rows")
        assert [one.poll() for one in relays] == [None, None], "".join(map(pipeline.log, relays))
    pipeline.exactly_once()


@pytest.mark.long
def test_of_two_under_one_member_one_is_left(own: Path, pipeline: Pipeline) -> None:
    """A twin that was started while the brokers were away, and one whose session ended then: they
    do not fence each other for ever."""
    config = pipeline.config(wait_for_servers_seconds=0.0)
    first = pipeline.start("a", config)
    pipeline.send(range(ROWS))
    pipeline.until(lambda: pipeline.rows().total() > 0, "the first of them")
    broker.kill(own, 0)
    second = pipeline.start("a", config)
    time.sleep(OUTAGE_SECONDS)  # the outage itself
    broker.start(own, 0)

    def ended() -> list[int]:
        return [one.returncode for one in (first, second) if one.poll() is not None]

    for partition in range(2):  # a fenced producer hears of it when it has something to commit
        start = ROWS * (partition + 1)
        pipeline.send(range(start, start + ROWS), partition)
    pipeline.until(lambda: len(ended()) == 1, "the end of one of them")
    pipeline.until(lambda: pipeline.rows().total() >= 3 * ROWS, "all rows")
    assert ended() == [7]
    pipeline.exactly_once()


@pytest.mark.long
def test_who_watches_outlives_it(own: Path, pipeline: Pipeline) -> None:
    """NEWCOMER A1: librdkafka aborted `verify --follow` and `status --watch` as the brokers came
    back, 10 of 10. They run on, and show what is so afterwards."""
    config = pipeline.config(wait_for_servers_seconds=0.0)
    pipeline.start("a", config)
    pipeline.send(range(ROWS))
    pipeline.until(lambda: pipeline.rows().total() == ROWS, "the first rows")
    followed = pipeline.watch("verify", config, "--follow", "--json")
    watched = pipeline.watch("status", config, "--watch", "2", "--json")
    pipeline.until(lambda: '"journal"' in pipeline.log(watched), "a status")
    outage(own, REQUEST_OUTAGE_SECONDS)
    pipeline.send(range(ROWS, 2 * ROWS), partition=1)

    def floors() -> int:
        last = [line for line in pipeline.log(watched).splitlines() if line.startswith("{")][-1]
        return sum(row["floor"] for row in json.loads(last)["partitions"])

    pipeline.until(lambda: floors() == 2 * ROWS, "a status of afterwards")
    assert [one.poll() for one in (followed, watched)] == [None, None]
    for one in (followed, watched):
        one.send_signal(signal.SIGTERM)
    assert [one.wait(30) for one in (followed, watched)] == [0, 0], pipeline.log(followed)
