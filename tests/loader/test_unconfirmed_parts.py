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
    LOOKED_SECONDS,
    ReplicaState,
    compare_counts,
    count_fetched,
    replica_state,
    why_unconfirmed,
    why_unlooked,
)
from loader.core.table_rules import nature

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@pytest.mark.parametrize(
    ("state", "queued", "empty", "why"),
    [
        (READ, 0, None, ""),
        (READ, 1, None, "still to fetch parts"),
        (UNREAD, 0, None, "has not read its replication log"),
        (UNREAD, 1, None, "still to fetch parts"),
        # Both of an empty log, and of one with a single entry that is not read.
        (MAY_BE_EMPTY, 0, [("/t",)], ""),
        (MAY_BE_EMPTY, 0, [], "may not have read the first entry"),
        (MAY_BE_EMPTY, 0, None, "on system.zookeeper"),
        (None, 0, None, ""),  # a SharedMergeTree
    ],
)
def test_whether_a_replica_has_fetched_all(
    state: tuple[object, ...] | None, queued: int, empty: Sequence[Sequence[Any]] | None, why: str
) -> None:
    """The second question is whether its log is empty."""
    answers = iter([[([state] if state else [], queued, [("b", 4)])], empty])
    found, said = count_fetched(lambda _, **__: next(answers), "SELECT", "d.t", ["b", "c"])
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
        (0, ({"b": 100}, ""), {"b": 100}, False, "came while"),
        (0, ({"b": 60}, ""), {"b": 100}, False, "came while"),
        (40, ({"b": 100}, ""), {"b": 60}, False, "came while"),  # others of them are masked
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
    found, said = count_fetched(answering(None), "SELECT", "d.t", ["b"])
    assert (found, "SELECT on system.replicas" in said) == ({}, True)


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
