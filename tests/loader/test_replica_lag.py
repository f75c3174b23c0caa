"""Whether a replica has made every ALTER: what the loader makes of its answers. Without servers.

tests/replicas/test_lagging_loader.py has three real replicas, of which one lags.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.clickhouse.replica_lag import differs, lag
from loader.clickhouse.tables import Target
from loader.core import plan
from loader.core.retry_cause import RetryCause
from loader.core.table_rules import Counter, Nature, Window
from relay.clickhouse.errors import About
from tests.loader.blocks import SCHEMA

SHAPE = 7
COLUMNS = {"id": "Int64", "name": "LowCardinality(String)"}


def table(counter: Counter = "log", columns: Mapping[str, str] = COLUMNS) -> Target:
    """A table with such an insert counter."""
    nature = mock.Mock(spec=Nature, window=Window(100, None, counter))
    return Target(dict(columns), SHAPE, nature, 0)


def answering(*row: object) -> Any:
    """A client whose server answers so."""
    return SimpleNamespace(query=lambda *_, **__: SimpleNamespace(result_rows=[row]))


def failing(text: str) -> Any:
    """A client whose server answers with an error."""
    return SimpleNamespace(query=mock.Mock(side_effect=DatabaseError(text)))


@pytest.mark.parametrize(
    ("read_whole", "to_make", "shape"),
    [([0], 0, SHAPE), ([1], 1, SHAPE), ([1], 0, SHAPE + 1)],
    ids=["its log is not read", "an ALTER waits", "it made one since the look"],
)
def test_a_replica_that_lags_is_not_believed(
    read_whole: list[int], to_make: int, shape: int
) -> None:
    """The block stands aside alone: it holds up no other, of its table neither."""
    said = lag(answering(read_whole, to_make, shape), "d.t", table())
    assert isinstance(said, plan.NoAnswer)
    assert (said.about, said.cause) == (About.UNKNOWN, RetryCause.REPLICA_BEHIND)


@pytest.mark.parametrize("read_whole", [[1], []], ids=["all is made", "not in system.replicas"])
def test_a_replica_that_has_made_every_alter_is_believed(read_whole: list[int]) -> None:
    """And one of which nobody can tell."""
    assert lag(answering(read_whole, 0, SHAPE), "d.t", table()) is None


def test_without_the_right_to_ask_the_replica_is_believed() -> None:
    """Another error is no answer: the block waits."""
    denied = "Code: 497. DB::Exception: x: Not enough privileges. (ACCESS_DENIED)"
    assert lag(failing(denied), "d.t", table()) is None
    away = "Code: 999. DB::Exception: Session expired. (KEEPER_EXCEPTION)"
    said = lag(failing(away), "d.t", table())
    assert isinstance(said, plan.NoAnswer)
    assert said.about == About.SERVER


def test_a_table_of_one_server_is_not_asked_about() -> None:
    """Nor one that is gone."""
    nobody: Any = None
    assert lag(nobody, "d.t", table("parts")) is None
    assert lag(nobody, "d.t", None) is None


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (COLUMNS, False),
        ({**COLUMNS, "more": "Int8"}, False),
        ({"id": "Int64"}, True),
        ({**COLUMNS, "id": "UInt8"}, True),
    ],
    ids=["the same", "one more", "one is missing", "another type"],
)
def test_rows_differ_where_a_value_may_be_lost(columns: dict[str, str], expected: bool) -> None:
    """Only of replicated tables: of others there is one state."""
    assert differs(SCHEMA, table("log", columns)) is expected
    assert not differs(SCHEMA, table("parts", columns))
