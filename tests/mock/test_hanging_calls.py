"""A client call that never returns costs the relay a producer, or the process: no more."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from relay.core.events import Failure
from relay.kafka.errors import TransactionFailed
from relay.kafka.hang_guard import call_within
from tests.mock.cluster import Api
from tests.mock.rig import LEADER, Rig

ROOT = Path(__file__).parents[2]
LONG_ENOUGH = "60"
WATCHDOG_STATUS = 1
"""Of the table of exit statuses: a client call hung and the watchdog ended the process."""
QUEUE = 5


LOST_COORDINATORS = ("decommissioned", "gone", "not_found")
PROCESSES = (
    f"guarded {LONG_ENOUGH}",
    "guarded 0.1",
    "held 1.0",
    f"begin {LONG_ENOUGH}",
    *LOST_COORDINATORS,
)

Ended = dict[str, subprocess.CompletedProcess[str]]


def run(arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.mock.hanging", *arguments.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def ended() -> Ended:
    """Every process of this module, run side by side, by its arguments."""
    with ThreadPoolExecutor(len(PROCESSES)) as pool:
        return dict(zip(PROCESSES, pool.map(run, PROCESSES), strict=True))


# ---- the process ends -----------------------------------------------------------------------


def test_the_watchdog_ends_a_process_whose_gil_is_held_in_c(ended: Ended) -> None:
    """Exit status 1 and the stacks of all threads on stderr, though no Python thread can run."""
    process = ended[f"guarded {LONG_ENOUGH}"]

    assert process.returncode == WATCHDOG_STATUS, process.stderr
    assert "Timeout (0:00:04)!" in process.stderr
    assert process.stderr.count("most recent call first") == 2
    assert "in hold_the_gil" in process.stderr
    assert "threading.py" in process.stderr  # the idle thread's stack


def test_the_call_of_the_test_above_does_hold_the_gil(ended: Ended) -> None:
    """Else the test above would prove nothing: another thread stands still meanwhile."""
    process = ended["held 1.0"]

    assert process.returncode == 0, process.stderr
    assert float(process.stdout) > 0.9  # of the second


def test_a_call_that_returns_in_time_leaves_no_timer_behind(ended: Ended) -> None:
    """The process lives on for longer than the limit."""
    process = ended["guarded 0.1"]

    assert (process.returncode, process.stderr) == (0, "")


def test_a_begin_that_hangs_ends_the_relay(ended: Ended) -> None:
    """librdkafka#4420: begin_transaction holds the GIL, so that only the watchdog can act."""
    process = ended[f"begin {LONG_ENOUGH}"]

    assert process.returncode == WATCHDOG_STATUS, process.stderr
    assert "relay/kafka/transactional_producer.py" in process.stderr
    assert "in begin" in process.stderr


# ---- the producer is replaced ---------------------------------------------------------------


@pytest.mark.parametrize("fault", LOST_COORDINATORS)
def test_a_lost_group_coordinator_does_not_stop_the_relay(fault: str, ended: Ended) -> None:
    """librdkafka may wait for ever for it, timeout or not (#5511); the relay does not.

    Which of the two happens depends on what librdkafka notices first: it recovers by itself,
    or the own deadline costs a producer.
    """
    process = ended[fault]

    assert process.returncode == 0, process.stderr
    course = json.loads(process.stdout)
    assert course["did"][-1] in {"commit", "abort", "replace"}
    for kind, why, _ in course["failures"]:
        assert kind in {Failure.ABORT.name, Failure.UNKNOWN.name}
        assert "send_offsets_to_transaction" in why or "in doubt" in why


def test_offsets_that_are_never_sent_are_given_up_at_the_own_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that ignores its timeout and lets go of the GIL: its outcome is unknown."""
    monkeypatch.setattr("relay.kafka.transactional_producer.SLICE_SECONDS", 0.25)
    released = threading.Event()
    with Rig("app") as rig:
        rig.producer.replace()
        rig.producer._producer = Stuck(rig.producer._producer, released)  # type: ignore[assignment]

        with pytest.raises(TransactionFailed, match=r"send_offsets.*did not return") as failed:
            rig.fill()

        released.set()
    assert failed.value.kind is Failure.UNKNOWN


class Stuck:
    """A producer whose send_offsets_to_transaction returns when released, not before."""

    def __init__(self, real: Any, released: threading.Event) -> None:
        self._real = real
        self._released = released

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __len__(self) -> int:
        return len(self._real)

    def send_offsets_to_transaction(self, *_: object) -> None:
        self._released.wait(60)


def test_what_a_call_raises_or_takes_comes_through() -> None:
    """The wait in another thread changes neither the error nor the time of a call that ends."""
    with pytest.raises(ZeroDivisionError):
        call_within(30.0, lambda: 1 // 0)
    done: list[int] = []
    call_within(30.0, lambda: done.append(1))
    assert done == [1]


# ---- the queue is full ----------------------------------------------------------------------


def crowded(rig: Rig, seconds: float) -> None:
    """More records than the queue holds, to a leader this slow."""
    rig.cluster.slow_down(int(seconds * 1000), LEADER)
    for _ in range(4 * QUEUE):
        rig.producer.produce(TopicPartition(rig.journal, 0), b"v", b"k", [], lambda _: None)


def begun() -> Rig:
    """A transaction is open and the leader is connected."""
    rig = Rig("app", **{"queue.buffering.max.messages": QUEUE})
    rig.producer.replace()
    rig.fill()
    rig.producer.commit()
    rig.fill()
    return rig


def test_a_full_queue_is_waited_for() -> None:
    """A slow broker makes produce wait; nothing is dropped and the commit counts."""
    with begun() as rig:
        crowded(rig, 0.2)
        rig.producer.flush()

        assert rig.producer.commit()


def test_a_queue_that_stays_full_is_given_up_at_the_own_deadline() -> None:
    with begun() as rig:
        rig.producer._deadline_seconds = 0.5
        with pytest.raises(TransactionFailed, match="queue stays full") as failed:
            crowded(rig, 300.0)

    assert failed.value.kind is Failure.UNKNOWN


def test_a_fatal_error_heard_of_while_the_queue_is_full_is_classified() -> None:
    """It comes out of the wait itself, not out of a call: seen as a crash before it was caught."""
    with begun() as rig:
        rig.cluster.fail(Api.PRODUCE, *[KafkaError.INVALID_PRODUCER_EPOCH] * (4 * QUEUE))
        with pytest.raises(TransactionFailed) as failed:
            crowded(rig, 0.5)

    assert failed.value.kind is Failure.FENCED
