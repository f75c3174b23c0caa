"""A relay that is behind reads its source partitions in turns: each row once, none left unread."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from relay.config import kafka_clients, settings_file
from relay.core import events as ev
from relay.intake.message_batch import TableHeaders
from relay.intake.source import SourceMember
from relay.operate.metrics.observer import RelayObserver
from relay.process.loop import until_ended
from tests.broker.pipeline import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relay.config.settings import Settings
    from relay.core.effects import Effect
    from relay.core.state import RelayState
    from relay.intake.message_batch import Batch
    from tests.broker.pipeline import Pipeline

EVERY = frozenset(range(8))
BACKLOG = 30_000
"""Rows of each partition, a message each: three times what one poll may give."""
FETCHED = 2_000
"""As many where one fetch brings all."""


@pytest.fixture(autouse=True)
def _more_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the pipeline makes its topic."""
    monkeypatch.setattr("tests.broker.pipeline.PARTITIONS", len(EVERY))


def settings(pipeline: Pipeline, member: str) -> Settings:
    """Memory for two full buffers, which are small, and a group that is quick."""
    chosen = {
        "relay.member": member,
        "relay.max_buffer_bytes": 50_000,
        "relay.session_timeout_seconds": 3.0,
        "relay.transaction_timeout_seconds": 2.5,
        "block.max_bytes": 25_000,
        "block.max_age_seconds": 0.02,
    }
    return settings_file.load(pipeline.config(), chosen)


class Watched(RelayObserver):
    """A relay's turns; one that is `slow` takes a second for each of their polls until partitions
    are taken from it.

    Attributes:
        begun: by partition, the positions at which its turns began.
        paused: what was paused when the group took it away.
    """

    def __init__(self, *, slow: bool) -> None:
        self.now: RelayState | None = None
        self.paused = frozenset[int]()
        self.begun: dict[int, list[int]] = defaultdict(list)
        self.hurry = threading.Event()
        if not slow:
            self.hurry.set()

    def stepped(
        self, before: RelayState, event: ev.Event, after: RelayState, effects: Sequence[Effect]
    ) -> None:
        del effects
        self.now = after
        was, now = (frozenset(s.turns.reading if s.turns else ()) for s in (before, after))
        for partition in now - was:
            self.begun[partition].append(after.partitions[partition].position)
        if isinstance(event, ev.Revoked):
            self.paused |= event.partitions - before.reading
            self.hurry.set()
        elif isinstance(event, ev.Polled):
            assert event.offsets.keys() <= before.reading, "polled while it was paused"
            if after.turns is not None:
                self.hurry.wait(1)

    def owned(self) -> frozenset[int]:
        return frozenset(self.now.partitions if self.now else ())

    def position(self, partition: int) -> int:
        return self.now.partitions[partition].position if self.now else -1

    def drained(self) -> bool:
        """Whether the backlog was polled, and turns are over."""
        partitions = self.now.partitions.values() if self.now and not self.now.turns else ()
        return {partition.position for partition in partitions} == {BACKLOG}


@contextmanager
def relay(pipeline: Pipeline, member: str, *, slow: bool = False) -> Iterator[Watched]:
    """Runs in a thread."""
    watched, stop = Watched(slow=slow), threading.Event()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(until_ended, settings(pipeline, member), stop, watched)
        try:
            yield watched
        finally:
            watched.hurry.set()
            stop.set()
            running.result(WAIT_SECONDS)


def send_to_each(pipeline: Pipeline, count: int) -> None:
    for partition in sorted(EVERY):
        first = len(pipeline.sent)
        pipeline.send(range(first, first + count), partition)


def test_a_backlog_is_read_in_turns(pipeline: Pipeline) -> None:
    """Each partition has its turn, some more than one; turns end with the backlog."""
    send_to_each(pipeline, BACKLOG)
    with relay(pipeline, "a") as watched:
        pipeline.until(watched.drained, "the end of the backlog and of turns")
        pipeline.exactly_once()
        send_to_each(pipeline, 10)
        pipeline.exactly_once()
    assert watched.begun.keys() == EVERY
    again = {p for p, begun in watched.begun.items() if len({*begun} - {BACKLOG}) > 1}
    assert again, "none was left before its end and taken again"


@pytest.mark.long  # 24 s; tests/core/test_turns.py decides it
def test_a_partition_with_nothing_left_waits_for_nobodys_backlog(pipeline: Pipeline) -> None:
    """A row that comes while the others take turns is polled before they are done."""
    quiet = max(EVERY)
    for partition in sorted(EVERY - {quiet}):
        first = len(pipeline.sent)
        pipeline.send(range(first, first + BACKLOG), partition)
    pipeline.send([len(pipeline.sent)], quiet)
    with relay(pipeline, "a", slow=True) as watched:
        pipeline.until(lambda: bool(watched.begun) and watched.position(quiet) == 1, "turns")
        pipeline.send([len(pipeline.sent)], quiet)
        pipeline.until(lambda: watched.position(quiet) == 2, "the row")
        assert watched.now is not None
        assert watched.now.turns is not None, "turns were over before"
        watched.hurry.set()
        pipeline.exactly_once()


@pytest.mark.long  # 19 s
def test_a_rebalance_in_the_midst_of_turns(pipeline: Pipeline) -> None:
    """Half of the partitions go to another member and come back: none stays paused."""
    send_to_each(pipeline, BACKLOG)
    with relay(pipeline, "a", slow=True) as first:
        pipeline.until(lambda: bool(first.begun), "turns")
        with relay(pipeline, "b") as second:
            pipeline.until(lambda: bool(second.owned()), "partitions for the other member")
            assert first.paused, "nothing was paused when the group took it away"
            send_to_each(pipeline, 10)
            pipeline.exactly_once()
        pipeline.until(lambda: first.owned() == EVERY, "all partitions are back")
        send_to_each(pipeline, 10)
        pipeline.exactly_once()


class Reader(SourceMember):
    """Without a relay; each message must be the next one of its partition."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, self._given, self._gone, TableHeaders())
        self.next = dict.fromkeys(EVERY, 0)
        self.owned = frozenset[int]()
        self.join()

    def _given(self, partitions: frozenset[int]) -> dict[int, int]:
        self.owned = partitions
        return {partition: self.next[partition] for partition in partitions}

    def _gone(self, _: frozenset[int]) -> None:
        self.owned = frozenset()

    def seek(self, partition: int, offset: int) -> None:
        self.next[partition] = offset
        self.fetching.seek(partition, offset)

    def polled(self) -> bool:
        """One poll; whether something came."""
        before = dict(self.next)
        self.poll(self._take)
        for partition in self.owned if self.rebalanced else ():  # as the relay does
            self.seek(partition, self.next[partition])
        return self.next != before

    def _take(self, batch: Batch) -> None:
        for partition, offset in zip(batch.partitions, batch.offsets, strict=True):
            assert offset == self.next[partition], f"of partition {partition}"
            self.next[partition] += 1

    def drained(self) -> bool:
        while self.polled():
            pass
        return set(self.next.values()) == {FETCHED}


@pytest.fixture
def reader(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Something was fetched of each partition, and little of it polled."""
    monkeypatch.setattr("relay.intake.source.POLL_MESSAGES", 100)
    send_to_each(pipeline, FETCHED)
    made = Reader(settings(pipeline, "a"))
    wait_until(made.polled, "messages")
    wait_until(lambda: made.fetching.ends(EVERY).keys() == EVERY, "a fetch of each")
    yield made
    made.close()


def test_what_was_fetched_before_a_pause_comes_after_it(reader: Reader) -> None:
    """Also of a partition that was never polled, and behind a seek."""
    unpolled = frozenset(partition for partition in EVERY if reader.next[partition] == 0)
    assert unpolled
    reader.fetching.only(EVERY - unpolled)
    chance = random.Random(7)
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            reader.polled()
        if chance.random() < 0.3:
            sought = chance.randrange(8)
            reader.seek(sought, reader.next[sought] // 2)
        reader.fetching.only(frozenset(chance.sample(range(8), 2)))
    reader.fetching.only(None)
    wait_until(reader.drained, "all rows")


def test_what_was_paused_when_it_was_taken_away_is_read_once_it_is_back(
    reader: Reader, pipeline: Pipeline
) -> None:
    """librdkafka (2.16) would go on pausing it."""
    reader.fetching.only(frozenset({0}))
    leaves = {"group.instance.id": ""}  # at once
    other = Consumer({**kafka_clients.consumer(settings(pipeline, "b")), **leaves})
    other.subscribe([pipeline.source])

    def owns(count: int) -> bool:
        reader.polled()
        return len(reader.owned) == count

    wait_until(lambda: other.poll(0) is None and owns(4), "half of them are the other's")
    other.close()
    wait_until(lambda: owns(8), "all are back")
    wait_until(reader.drained, "all rows")
