"""What a replica says of rows that Keeper may not have; pure, with answers made up here.

tests/replicas/test_unconfirmed.py asks a real one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from loader.clickhouse.client import ReplicaSilent
from loader.clickhouse.ledger import Claimed
from loader.clickhouse.server_records import ServerRecords
from loader.clickhouse.unconfirmed_parts import (
    FRUITLESS_SECONDS,
    LOOKED_SECONDS,
    ReplicaState,
    compare_counts,
    count_fetched,
    replica_state,
    why_unconfirmed,
    why_unlooked,
)
from loader.core.table_rules import nature
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loader.core.plan import Human

CHECKS = "has still to check a part"


def answering(rows: Sequence[Sequence[Any]] | None) -> Any:
    return lambda _, **__: rows


@pytest.mark.parametrize(
    ("rows", "since", "found"),
    [
        ([(7, "")], 5, ReplicaState(7)),
        ([(7, CHECKS)], 5, ReplicaState(7, CHECKS)),
        ([(-1, "has no session with Keeper")], 5, ReplicaState(-1, "has no session with Keeper")),
        # Rows that Keeper has come with an entry; the first one of all has the number 0.
        (
            [(7, "")],
            7,
            ReplicaState(7, "has no entry of any INSERT since in its replication log"),
        ),
        ([(0, "")], 0, ReplicaState(0)),
        ([(-1, "")], -1, ReplicaState(-1)),
        ([], 5, ReplicaState(-1)),
    ],
)
def test_what_a_replica_says(
    rows: Sequence[Sequence[Any]], since: int, found: ReplicaState
) -> None:
    assert replica_state(answering(rows), "d.t", since) == found


def test_who_may_not_ask_a_replica() -> None:
    """Then nothing ends that by itself, and the reason names the right."""
    state = replica_state(answering(None), "d.t", 5)
    assert (state.newest, state.passing) == (-1, False)
    assert "system.replicas" in why_unconfirmed(answering(None), state, "d.t", "b", "_block", 0)


@pytest.mark.parametrize(
    ("doubt", "recent", "why"),
    [
        ("", None, ""),
        (CHECKS, [(0,)], ""),  # they are older than any claim, or were merged since
        (CHECKS, [(4,)], CHECKS),
        (CHECKS, None, CHECKS),
    ],
)
def test_why_rows_may_go(doubt: str, recent: Sequence[Sequence[Any]] | None, why: str) -> None:
    said = why_unconfirmed(answering(recent), ReplicaState(7, doubt), "d.t", "b", "_block", 9)
    assert why in said
    assert bool(said) == bool(why)


PLACE = ("default", "/t")
READ, MAY_BE_EMPTY, UNREAD = (1, 0, *PLACE), (0, 1, *PLACE), (0, 0, *PLACE)
DATE = "2026-11-01 10:20:30"
QUEUED = [("all_5_5_0", DATE)]
SEALED_MS = 1_700_000_000_000
BLOCKS = [Block(id=name, table="d.t", sealed_at_ms=SEALED_MS + n) for n, name in enumerate("bc")]


class AskedReplica:
    """An answer that is made up; and what was asked.

    `denied`: a table that this user may not read.
    """

    def __init__(
        self,
        answer: Sequence[Any],
        empty: Sequence[Sequence[Any]] | None = None,
        denied: str = "",
    ) -> None:
        self._answer, self._empty, self._denied = answer, empty, denied
        self.asked: list[dict[str, Any]] = []

    def __call__(self, sql: str, **asked: Any) -> Any:
        if self._denied and self._denied in sql:
            return None
        if "system.zookeeper" in sql:
            return self._empty
        self.asked.append(asked)
        return [self._answer]


@pytest.mark.parametrize(
    ("state", "queued", "empty", "why"),
    [
        (READ, [], None, ""),
        (READ, QUEUED, None, f"still to fetch parts, all_5_5_0 since {DATE} UTC"),
        (UNREAD, [], None, "has not read its replication log"),
        (UNREAD, QUEUED, None, "still to fetch parts"),
        # Both of an empty log, and of one with a single entry that is not read.
        (MAY_BE_EMPTY, [], [("/t",)], ""),
        (MAY_BE_EMPTY, [], [], "may not have read the first entry"),
        (MAY_BE_EMPTY, [], None, "on system.zookeeper"),
        (None, [], None, ""),  # a SharedMergeTree
    ],
)
def test_whether_a_replica_has_fetched_all(
    state: tuple[object, ...] | None,
    queued: Sequence[tuple[str, str]],
    empty: Sequence[Sequence[Any]] | None,
    why: str,
) -> None:
    replica = AskedReplica(([state] if state else [], queued, [("b", 4)]), empty)
    found, said = count_fetched(replica, "SELECT", BLOCKS, "nothing")
    assert (found, why in said) == ({} if why else {"b": 4}, True)
    assert bool(said) == bool(why)


@pytest.mark.parametrize(
    ("counted", "whole", "last", "proves", "why"),
    [
        (40, ({"b": 40}, ""), None, True, ""),
        (0, ({}, ""), None, True, ""),
        (40, ({}, "behind"), None, True, "behind"),
        (40, ({"b": 100}, ""), {"b": 40}, False, ""),  # masked ones
        (40, ({}, ""), {}, False, ""),  # they went
        (0, ({"b": 100}, ""), {"b": 100}, False, "are shown than"),
        (0, ({"b": 60}, ""), {"b": 100}, False, "are shown than"),
        (40, ({"b": 100}, ""), {"b": 60}, False, "are shown than"),  # others of them are masked
    ],
)
def test_rows_that_come_between_two_counts_are_no_masked_ones(
    counted: int,
    whole: tuple[dict[str, int], str],
    last: dict[str, int] | None,
    why: str,
    *,
    proves: bool,
) -> None:
    """A replica fetched them just then, and the block was parked."""

    def count() -> dict[str, int]:
        assert last is not None, "it is not counted again"
        return last

    fewer, others = compare_counts("b", counted, whole, count)
    assert (bool(fewer), bool(others)) == (not proves, bool(why))
    assert why in others


@pytest.mark.parametrize(
    ("kinds", "alone", "others"),
    [
        ((0, 0), None, False),
        ((1, 0), None, True),  # what is shared
        ((0, 1), (1, 0), False),
        ((0, 2), (1, 0), True),
        ((0, 1), (0, 1), None),
    ],
)
def test_whether_another_server_has_the_rows_is_keepers_to_say(
    kinds: tuple[int, int], alone: tuple[int, int] | None, *, others: bool | None
) -> None:
    """Without its answer another one seemed to have them, and the block was parked."""
    answers = iter(filter(None, [kinds, alone]))
    client: Any = SimpleNamespace(
        query=lambda *_, **__: SimpleNamespace(result_rows=[next(answers)])
    )
    asked = ServerRecords(client, several=False)
    if others is None:
        with pytest.raises(ReplicaSilent, match="Keeper does not say"):
            asked.elsewhere({"d.t"})
    else:
        assert asked.elsewhere({"d.t"}) == others


def test_who_may_not_ask_what_a_replica_has_fetched() -> None:
    found, said = count_fetched(answering(None), "SELECT", BLOCKS, "nothing")
    assert (found, "SELECT on system.replicas" in said) == ({}, True)


@pytest.mark.parametrize(("queued", "why"), [([], ""), (QUEUED, "still to fetch parts")])
def test_who_may_not_read_the_queue_is_told_of_all_that_is_in_it(
    queued: Sequence[tuple[str, str]], why: str
) -> None:
    replica = AskedReplica(([READ], queued, [("b", 4)]), denied="system.replication_queue")
    found, said = count_fetched(replica, "SELECT", BLOCKS, "nothing")
    assert (found, why in said, bool(said)) == ({} if why else {"b": 4}, True, bool(why))


@pytest.mark.parametrize(
    ("human", "vain"),
    [
        ("nothing", -1),
        ("retry", -1),
        ("dead", -1),  # also a loader's own
        *((human, FRUITLESS_SECONDS) for human in ("absent", "loaded", "discard")),
    ],
)
def test_what_of_a_queue_may_have_rows_of_the_blocks(human: Human, vain: int) -> None:
    """Of entries before the first block was sealed, none, wherever clocks and time zones are off.

    And where a person says what is there, none that the replica has tried to fetch for long.
    """
    replica = AskedReplica(([READ], [], []))
    assert count_fetched(replica, "SELECT", BLOCKS, human) == ({}, "")
    (asked,) = replica.asked
    assert (asked["vain"], asked["blocks"]) == (vain, ["b", "c"])
    hours = (SEALED_MS // 1000 - asked["since"]) / 3600
    assert 26 < hours < 48  # from UTC+14 to UTC-12, and two clocks


@pytest.mark.parametrize(
    ("claimed", "logged", "looked"),
    [
        (LOOKED_SECONDS + 1.0, None, True),  # a user who may not read the log
        (LOOKED_SECONDS + 1.0, [], True),
        (LOOKED_SECONDS - 1.0, None, False),
        (LOOKED_SECONDS - 1.0, [], False),
        # Of several claims only some inserted, and the last one counts.
        (86_400.0, [(LOOKED_SECONDS - 1.0,)], False),
        (86_400.0, [(LOOKED_SECONDS + 1.0,)], True),
    ],
)
def test_rows_that_went_to_other_tables_count_later(
    claimed: float, logged: Sequence[Sequence[Any]] | None, *, looked: bool
) -> None:
    """Their replicas are asked by nobody here; ten minutes after the INSERT they have looked."""

    def ask(*_: object, **__: object) -> Sequence[Sequence[Any]] | None:
        return logged

    said = why_unlooked(ask, "b", Claimed(claimed, 0, frozenset()))
    assert (said == "") == looked
    assert ("10 minutes" in said) != looked


@pytest.mark.parametrize(
    ("engine", "forwards"),
    [
        ("Distributed", True),
        ("Buffer", True),
        ("MaterializedView", True),
        ("Log", False),
        ("Memory", False),
        ("MergeTree", False),
        ("ReplicatedMergeTree", False),
    ],
)
def test_which_tables_give_rows_to_others(engine: str, *, forwards: bool) -> None:
    assert nature(engine, engine, {}).forwards == forwards
