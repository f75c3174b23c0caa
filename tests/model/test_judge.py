"""Negative controls of the judge: it is silent on a good history and names each mutation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.model import judge
from tests.model.kafka import Kafka
from tests.model.log import Entry, Status
from tests.model.quiet import settle
from tests.model.records import DEAD, JOURNAL, SOURCE
from tests.model.world import World, log

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCKS = ("blocks.x", 0)


@pytest.fixture
def world() -> World:
    """Six messages through: four of x in two blocks, one of y, one dead letter."""
    made = World([log("x", "x", "|", "x", "y", "y!", "x")], loaders=1)
    for action in (("boot", "a"), ("move", 0, "a")):
        made.do(action)
    settle(made)
    return made


def places(kafka: Kafka, key: tuple[str, int]) -> list[int]:
    return [offset for offset, _ in kafka.log(key).decided()]


def change(
    kafka: Kafka, key: tuple[str, int], which: int, change_to: Callable[[Entry], Entry]
) -> None:
    entries = kafka.writable(key).entries
    offset = places(kafka, key)[which]
    entries[offset] = change_to(entries[offset])


def abort(entry: Entry) -> Entry:
    return entry._replace(status=Status.ABORTED)


def journal(**changes: object) -> Callable[[Entry], Entry]:
    return lambda entry: entry._replace(value=replace(entry.value, **changes))


def repeat(kafka: Kafka) -> None:
    kafka.writable(BLOCKS).entries.append(kafka.log(BLOCKS).entries[0])


def reverse(kafka: Kafka) -> None:
    change(kafka, BLOCKS, 0, lambda e: e._replace(value=e.value._replace(rows=(1, 0))))


def set_back(kafka: Kafka) -> None:
    kafka.offsets[0] = replace(kafka.offsets[0], floor=kafka.offsets[0].floor - 1)


MUTATIONS: dict[str, tuple[Callable[[Kafka], None], str]] = {
    "journal record gone": (lambda k: change(k, (JOURNAL, 0), 1, abort), "gap: 0: floor"),
    "last journal record gone": (
        lambda k: change(k, (JOURNAL, 0), -1, abort),
        "torn: 0: committed",
    ),
    "chunk gone": (lambda k: change(k, BLOCKS, 0, abort), "lost: 0@0 of x"),
    "chunk repeated": (repeat, "duplicate: 0@0 is in 2 blocks"),
    "rows out of order": (reverse, "order: blocks.x"),
    "dead letter gone": (lambda k: change(k, (DEAD, 0), 0, abort), "dead letters are not those"),
    "offset set back": (set_back, "torn: 0: committed offset"),
    "n repeated": (lambda k: change(k, (JOURNAL, 0), 1, journal(n=1)), "n=1 follows 1"),
    "wrong count": (lambda k: change(k, (JOURNAL, 0), -1, journal(count=9)), "9 messages counted"),
    "floor back": (lambda k: change(k, (JOURNAL, 0), 1, journal(floor=-1)), "backward: 0"),
    "wrong reference": (
        lambda k: change(k, (JOURNAL, 0), -1, journal(reference=3)),
        "reference: 0",
    ),
    "aborted message": (lambda k: change(k, (SOURCE, 0), 0, abort), "aborted read: 0@0"),
}


def test_a_good_history_is_good(world: World) -> None:
    assert judge.anomalies(world.kafka, world.clickhouse) == []
    assert judge.unfinished(world.kafka, world.clickhouse, loading=True) == []
    assert len(world.clickhouse.rows) == 5


@pytest.mark.parametrize(("mutate", "named"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_each_mutation_is_named(world: World, mutate: Callable[[Kafka], None], named: str) -> None:
    """One thing changed behind the relay's back, and the judge says what."""
    mutate(world.kafka)

    found = judge.anomalies(world.kafka, world.clickhouse)
    assert any(named in anomaly for anomaly in found), found


def test_rows_doubled_or_missing_in_clickhouse_are_named(world: World) -> None:
    rows = world.clickhouse.rows

    world.clickhouse.rows = (*rows, rows[0])
    assert "2 times in ClickHouse" in judge.anomalies(world.kafka, world.clickhouse)[0]
    world.clickhouse.rows = rows[1:]
    assert "not loaded" in judge.unfinished(world.kafka, world.clickhouse, loading=True)[0]


def test_messages_left_behind_are_named(world: World) -> None:
    world.do(("append", 0, log("x")[0]))

    found = judge.unfinished(world.kafka, world.clickhouse, loading=True)
    assert found == ["stuck: 0@7 is in no block"]
