"""Alive or not, ready or not: facts in, checks out; and the facts as a relay's steps make them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from relay.core import events as ev
from relay.core.records import Arrival
from relay.core.state import Turn, Turns
from relay.program.health import PartitionHealth, RelayHealth, answer, liveness, readiness
from tests.core.build import arrival, found, limits, partition, polled, with_limits
from tests.metrics.rig import LIMITS, Rig, consumer_statistics

WELL = RelayHealth(
    now=1000.0,
    beat_at=999.0,
    assigned=True,
    connected=True,
    partitions=[PartitionHealth(index) for index in range(8)],
)


def failed(facts: RelayHealth) -> list[str]:
    return [check.check for check in (*liveness(facts, LIMITS), *readiness(facts)) if not check.ok]


def test_a_take_over_that_does_not_end_though_a_broker_answers() -> None:
    """It waited for ever, for partitions of its own topic that nobody made, and was alive."""
    why = "topic shop.journal has 2 partitions"
    waits = replace(WELL, pending=2, pending_since=99.9, away=why)
    (said,) = (one for one in liveness(waits, LIMITS) if not one.ok)
    assert said.check == "assignment"
    assert why in said.why
    assert failed(replace(waits, pending_since=100.0, away="")) == ["assigned"]
    assert "assignment" not in failed(replace(waits, connected=False))


def one_of_eight(**standing: Any) -> list[PartitionHealth]:
    return [replace(one, **standing) if one.partition == 5 else one for one in WELL.partitions]


def test_a_relay_at_work_is_alive_and_ready() -> None:
    assert failed(WELL) == []


@pytest.mark.parametrize(
    ("check", "within", "beyond"),
    [
        ("poll", {"beat_at": 990.0}, {"beat_at": 989.9}),
        ("transaction", {"transaction_since": 980.0}, {"transaction_since": 979.9}),
        (
            "partitions",
            {"partitions": one_of_eight(waiting_since=970.0)},
            {"partitions": one_of_eight(waiting_since=969.9)},
        ),
        (
            "partitions",
            {"partitions": one_of_eight(overdue_seconds=30.0)},
            {"partitions": one_of_eight(overdue_seconds=30.1)},
        ),
        ("fenced", {}, {"fenced": "a newer producer holds the transactional id"}),
    ],
)
def test_each_check_turns_red_at_its_limit_and_no_other_does(
    check: str, within: dict[str, Any], beyond: dict[str, Any]
) -> None:
    """Loop, transaction, one partition among eight (not read, not sealed), fencing."""
    assert failed(replace(WELL, **within)) == []
    assert failed(replace(WELL, **beyond)) == [check]


def test_the_partition_that_stands_still_is_named() -> None:
    """Not only that there is one; and a crowd of them is cut."""
    (said,) = (
        one
        for one in liveness(replace(WELL, partitions=one_of_eight(waiting_since=1.0)), LIMITS)
        if not one.ok
    )
    assert said.why == "messages wait in 5 and none was polled for 30 s"
    many = [PartitionHealth(index, overdue_seconds=99) for index in range(12)]
    (said,) = (one for one in liveness(replace(WELL, partitions=many), LIMITS) if not one.ok)
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more" in said.why


@pytest.mark.parametrize(
    ("check", "facts"),
    [
        ("assigned", {"assigned": False}),
        ("assigned", {"pending": 1}),
        ("servers", {"connected": False}),
        ("servers", {"away": "no coordinator"}),
    ],
)
def test_what_is_not_ready_is_alive(check: str, facts: dict[str, Any]) -> None:
    """A restart would not help: it would only wait again."""
    assert failed(replace(WELL, **facts)) == [check]
    assert all(one.ok for one in liveness(replace(WELL, **facts), LIMITS))


def test_while_a_server_is_away_no_partition_is_blamed() -> None:
    """Buffers grow old and nothing is read, and it is nobody's fault here."""
    facts = replace(WELL, away="no broker", partitions=one_of_eight(overdue_seconds=999))
    assert failed(facts) == ["servers"]


def test_a_member_without_partitions_is_ready() -> None:
    """More relays than partitions: the spare one must not hold up a roll-out."""
    assert failed(replace(WELL, partitions=[])) == []


def test_the_answer_says_which_check_failed() -> None:
    """503 and JSON; 200 where all is well, with the same fields."""
    status, kind, body = answer(liveness(replace(WELL, beat_at=0.0), LIMITS))
    said = json.loads(body)
    assert (status, kind, said["ok"], said["failed"]) == (503, "application/json", False, ["poll"])
    assert said["checks"][0] == {
        "check": "poll",
        "ok": False,
        "why": "the last poll was 1000.0 s ago, limit 10 s",
    }
    status, _, body = answer(liveness(WELL, LIMITS))
    assert (status, json.loads(body)["failed"]) == (200, [])


# ---- the same, as a relay's own steps say it ---------------------------------------------


@pytest.fixture
def rig() -> Rig:
    """A relay with two partitions, whose broker is connected."""
    made = Rig(with_limits(limits(max_rows=2, max_age_ms=1000), p0=partition(), p1=partition()))
    made.step(ev.Assigned(frozenset({0, 1})))
    made.hear("consumer", consumer_statistics())
    made.recorder.polled(0.1, 0, 0)
    return made


def test_a_poll_loop_that_stands_still(rig: Rig) -> None:
    rig.now += LIMITS.poll_seconds
    assert rig.failed() == []
    rig.now += 0.1
    assert rig.failed() == ["poll"]
    rig.recorder.polled(0.1, 0, 0)
    assert rig.failed() == []


def test_a_transaction_that_stays_open(rig: Rig) -> None:
    """Though the loop went round all the while, as far as anyone can tell."""
    rig.step(polled(round(rig.now * 1000), arrival("d.a", 0, 1)))
    rig.step(ev.Begun())
    rig.now += LIMITS.transaction_seconds
    rig.recorder.polled(0.1, 0, 0)
    assert rig.failed() == []
    rig.now += 0.1
    assert rig.failed() == ["transaction"]


def test_one_partition_of_many_that_is_not_read(rig: Rig) -> None:
    """The other one brings messages all the time."""
    rig.hear("consumer", consumer_statistics(end=9, fetched=3, partition=1))
    for second in range(int(LIMITS.partition_seconds) + 1):
        assert rig.failed() == [], second
        rig.now += 1
        rig.recorder.polled(0.1, 1, 10)
        rig.step(polled(round(rig.now * 1000), arrival("d.a", second)))
        if rig.state.transaction:
            rig.through()
    assert rig.failed() == ["partitions"]
    rig.step(polled(round(rig.now * 1000), arrival("d.a", 3, p=1)))
    assert rig.failed() == []


def test_a_partition_that_waits_for_its_turn_is_well(rig: Rig) -> None:
    """From its turn on it is judged."""
    rig.hear("consumer", consumer_statistics(end=9, fetched=3, partition=1))
    chosen = replace(rig.state.limits, max_buffer_bytes=1)
    rig.state = replace(rig.state, limits=chosen, turns=Turns({0: Turn(0, 0)}, (1,)))
    rig.step(polled(0))
    rig.now += LIMITS.partition_seconds + 100
    rig.recorder.polled(0.1, 1, 10)
    assert rig.failed() == []
    rig.step(polled(round(rig.now * 1000)))  # nothing came for long: the next one's turn
    assert rig.state.reading == {0, 1}
    rig.now += LIMITS.partition_seconds
    rig.recorder.polled(0.1, 1, 10)
    assert rig.failed() == []
    rig.now += 0.1
    assert rig.failed() == ["partitions"]


def test_what_waits_for_clickhouse_is_well(rig: Rig) -> None:
    """A restart would not help: neither a buffer of a table that nobody knows now, nor a partition
    that is not polled for it, is a fault of the relay. Once the table is known both are judged."""
    rig.hear("consumer", consumer_statistics(end=9, fetched=3))
    chosen = limits(max_rows=1, max_age_ms=1000, max_reread=1)
    rig.state = with_limits(chosen, p0=partition(), p1=partition())
    rig.step(polled(round(rig.now * 1000), arrival("d.new", 0, 1)))
    rig.step(ev.TablesUndecided(frozenset({"d.new"})))
    rig.step(polled(round(rig.now * 1000)))
    assert rig.state.stalled == {0}
    rig.now += LIMITS.partition_seconds + 100
    rig.recorder.polled(0.1, 1, 10)
    assert rig.failed() == []
    rig.step(ev.TablesDecided(frozenset({"d.new"})))
    assert rig.failed() == ["partitions"]


def test_one_partition_of_many_that_is_not_sealed(rig: Rig) -> None:
    """Its buffer is a second too old for LIMITS.partition_seconds, the other's is fresh."""
    now_ms = round(rig.now * 1000)
    rig.state = with_limits(
        limits(max_age_ms=1000, commit_interval_ms=10**9), p0=partition(), p1=partition()
    )
    rig.step(polled(now_ms, arrival("d.a", 0)))
    rig.now += LIMITS.partition_seconds + 1
    rig.recorder.polled(0.1, 1, 10)
    rig.step(polled(now_ms, arrival("d.b", 0, p=1)))
    assert rig.failed() == []
    rig.now += 0.1
    assert rig.failed() == ["partitions"]


def behind_with_a_slow_table() -> Rig:
    """Behind from the second poll on: blocks of d.slow may be 60 s old, so 600 s for now."""
    slow = limits(max_age_ms=1000, table_max_age_ms={"d.slow": 60_000})
    rig = Rig(with_limits(slow, p0=partition()))
    rig.step(ev.Assigned(frozenset({0})))
    rig.hear("consumer", consumer_statistics())
    rig.step(full_poll(rig, arrival("d.slow", 0)))
    return rig


def full_poll(rig: Rig, *arrivals: Arrival, full: bool = True) -> ev.Polled:
    rig.recorder.polled(0.1, 1, 10)
    return replace(polled(round(rig.now * 1000), *arrivals), full=full)


def let_pass(rig: Rig, seconds: float, *, full: bool) -> None:
    """In polls of 5 s; what they seal is not committed, so that only d.slow's age counts."""
    until = rig.now + seconds
    while rig.now < until:
        rig.now = min(until, rig.now + 5)
        rig.step(full_poll(rig, full=full))


def test_a_relay_that_works_off_a_backlog_may_hold_buffers_ten_times_as_long() -> None:
    """It is killed for them no sooner than the core itself would have them in blocks."""
    rig = behind_with_a_slow_table()
    let_pass(rig, 599, full=True)
    assert rig.state.transaction is None
    assert rig.failed() == []


def test_a_buffer_that_is_not_sealed_even_so_is_blamed() -> None:
    """Negative control: the core is kept from it by a commit interval that never ends."""
    rig = behind_with_a_slow_table()
    never = replace(rig.state.limits, commit_interval_ms=10**9)
    rig.state = replace(rig.state, limits=never)
    let_pass(rig, 600 + LIMITS.partition_seconds, full=True)
    assert rig.failed() == []
    let_pass(rig, 1, full=True)
    assert rig.failed() == ["partitions"]
    let_pass(rig, 1, full=False)  # nor does the end of the backlog excuse it
    assert rig.failed() == ["partitions"]


def test_the_end_of_a_backlog_leaves_time_to_seal_what_it_left() -> None:
    """Hundreds of buffers are past their age at once, and INSERTs are counted."""
    rig = behind_with_a_slow_table()
    never = replace(rig.state.limits, commit_interval_ms=10**9)
    rig.state = replace(rig.state, limits=never)
    let_pass(rig, 500, full=True)
    let_pass(rig, LIMITS.partition_seconds, full=False)
    assert rig.failed() == []
    let_pass(rig, 1, full=False)
    assert rig.failed() == ["partitions"]


def test_green_through_a_rebalance(rig: Rig) -> None:
    """Alive at every step of it; ready again at its end."""

    def alive() -> bool:
        return all(check.ok for check in rig.checks()[:4])

    rig.step(polled(0, arrival("d.a", 0, 1)))
    rig.step(ev.Begun())
    for event in (
        ev.Revoked(frozenset({0, 1})),
        ev.Aborted(),
        ev.Assigned(frozenset({0})),
        ev.TruthRead((found(committed=None, record=None, log_start=0, start_offset=0),), 0),
    ):
        rig.now += LIMITS.poll_seconds - 1
        rig.recorder.polled(0.1, 0, 0)
        rig.step(event)
        assert alive(), event
    assert rig.failed() == []


def test_green_while_a_broker_is_restarted(rig: Rig) -> None:
    """Calls fail, servers are tried again for longer than any limit: alive, and not ready."""
    rig.step(polled(0, arrival("d.a", 0, 1)))
    rig.step(ev.Begun())
    rig.hear("consumer", consumer_statistics(end=9, fetched=3, state="DOWN"))
    rig.step(ev.Failed(ev.Failure.UNKNOWN, "connection lost"))
    for _ in range(20):
        rig.now += LIMITS.poll_seconds
        rig.recorder.away("no broker")
        assert rig.failed() == ["servers"]
    rig.step(ev.Replaced())
    rig.step(
        ev.TruthRead(
            tuple(
                found(partition=p, committed=None, record=None, log_start=0, start_offset=0)
                for p in (0, 1)
            ),
            0,
        )
    )
    rig.hear("consumer", consumer_statistics(end=9, fetched=3))
    rig.recorder.polled(0.1, 0, 0)
    assert rig.failed() == []
