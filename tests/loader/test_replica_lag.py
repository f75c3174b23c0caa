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
from relay.clickhouse.replica_log import SEES_LOGS
from tests.loader.blocks import SCHEMA

SHAPE = 7
COLUMNS = {"id": "Int64", "name": "LowCardinality(String)"}


def table(counter: Counter = "log", columns: Mapping[str, str] = COLUMNS) -> Target:
    """A table with such an insert counter."""
    nature = mock.Mock(spec=Nature, window=Window(100, None, counter))
    return Target(dict(columns), SHAPE, nature, 0)


PLACE = ("default", "/d/t")
UNREAD, READ, EMPTY_OR_UNREAD = (0, 0, *PLACE), (1, 0, *PLACE), (0, 1, *PLACE)
"""What system.replicas may say: the last, where it has the numbers of an empty log."""
DENIED = DatabaseError("Code: 497. DB::Exception: x: Not enough privileges. (ACCESS_DENIED)")
AWAY = DatabaseError("Code: 999. DB::Exception: Session expired. (KEEPER_EXCEPTION)")
NO_KEEPER = DatabaseError("Code: 60. DB::Exception: Unknown table. (UNKNOWN_TABLE)")
Rows = list[tuple[object, ...]]


def answering(*answers: Rows | DatabaseError) -> Any:
    """A client whose server gives these answers in turn, and no more."""
    said = (SimpleNamespace(result_rows=one) if isinstance(one, list) else one for one in answers)
    return SimpleNamespace(query=mock.Mock(side_effect=list(said)))


def seen(replica: object = EMPTY_OR_UNREAD, to_make: int = 0, shape: int = SHAPE) -> Rows:
    """What the first question gives."""
    return [([replica] if replica else [], to_make, shape)]


def decided(client: Any, *, keeps_values: bool = False) -> plan.NoAnswer | None:
    """Of the table, which the loader may rely on or not."""
    return lag(client, "d.t", table(), keeps_values=keeps_values)


@pytest.mark.parametrize(
    "answers",
    [
        [seen(UNREAD)],
        [seen(READ, to_make=1)],
        [seen(READ, shape=SHAPE + 1)],
        [seen(), []],
        [seen(to_make=1)],
    ],
    ids=[
        "its log is not read",
        "an ALTER waits",
        "it made one since the look",
        "the first entry is not read",
        "it was read meanwhile",
    ],
)
@pytest.mark.parametrize("keeps_values", [False, True])
def test_a_replica_that_lags_is_not_believed(answers: list[Rows], keeps_values: bool) -> None:
    """The block stands aside alone: it holds up no other, of its table neither."""
    said = decided(answering(*answers), keeps_values=keeps_values)
    assert isinstance(said, plan.NoAnswer)
    assert (said.about, said.cause) == (About.UNKNOWN, RetryCause.REPLICA_BEHIND)


@pytest.mark.parametrize(
    "answers",
    [[seen(READ)], [seen(None)], [seen(), [("/d/t",)]]],
    ids=["all is made", "not in system.replicas", "its log is empty"],
)
def test_a_replica_that_has_made_every_alter_is_believed(answers: list[Rows]) -> None:
    """And one of which nobody can tell."""
    assert decided(answering(*answers)) is None


def test_without_the_right_to_ask_the_replica_is_believed() -> None:
    """Another error is no answer: the block waits."""
    assert decided(answering(DENIED)) is None
    for answers in ([AWAY], [seen(), AWAY]):
        said = decided(answering(*answers))
        assert isinstance(said, plan.NoAnswer)
        assert said.about == About.SERVER


@pytest.mark.parametrize(
    ("error", "named"),
    [(DENIED, f"GRANT {SEES_LOGS} ON system.zookeeper"), (NO_KEEPER, "Code: 60")],
)
def test_without_a_look_into_keeper_only_a_refusal_is_believed(
    error: DatabaseError, named: str
) -> None:
    """People can undo that; a value that is left out is lost. The reason names what decides."""
    assert decided(answering(seen(), error), keeps_values=True) is None
    said = decided(answering(seen(), error))
    assert isinstance(said, plan.NoAnswer)
    assert (said.about, said.cause) == (About.UNKNOWN, RetryCause.REPLICA_BEHIND)
    assert named in said.reason


def test_keeper_is_asked_only_where_a_log_may_be_empty() -> None:
    """In the Keeper that has the table; versions before 25.6 know only the one."""
    for replica, keeper in (((0, 1, "default", "/p"), False), ((0, 1, "other", "/p"), True)):
        client = answering(seen(replica), [("/p",)])
        assert decided(client) is None
        (sql,), bound = client.query.call_args
        assert bound["parameters"] == {"paths": ["/p"], "keeper": replica[2]}
        assert ("zookeeperName" in sql) is keeper


def test_a_table_of_one_server_is_not_asked_about() -> None:
    """Nor one that is gone."""
    nobody: Any = None
    assert lag(nobody, "d.t", table("parts"), keeps_values=False) is None
    assert lag(nobody, "d.t", None, keeps_values=False) is None


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
