"""What a replica says of rows that Keeper may not have; pure, with answers made up here.

tests/replicas/test_unconfirmed.py asks a real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loader.clickhouse.unconfirmed_parts import ReplicaState, replica_state, why_unconfirmed

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
