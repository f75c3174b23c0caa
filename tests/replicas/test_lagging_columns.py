"""Relays that ask different replicas, one of which has not made an ALTER yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from relay.rows.row_codec import RowCodec
from relay.schema.catalogue import Catalogue
from relay.schema.evolution import live_columns
from tests.broker.pipeline import wait_until
from tests.replicas.server import SEEING, UNSEEING, USER
from tests.schema.test_tables import Registry, tables

if TYPE_CHECKING:
    from relay.rows.codecs_of_tables import TableCodecs
    from tests.replicas.journal import Replicated
    from tests.replicas.rig import Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, a minute or more


@pytest.fixture
def user() -> str:
    """As whom the relays ask; tests may name another."""
    return USER


@pytest.fixture
def relays(rig: Rig, journal: Replicated, table: str, user: str) -> Iterator[list[TableCodecs]]:
    """One at each of the first two replicas; their registries are one topic."""
    journal.user = user
    with contextlib.ExitStack() as stack:
        made, topic = [], Registry().topic
        for one in rig.replicas[:2]:
            catalogue = stack.enter_context(contextlib.closing(Catalogue(journal.reached(one.url))))
            registry = Registry()
            registry.topic = topic
            made.append(tables(catalogue, registry))
            made[-1].resolve([table])
        yield made


def test_a_column_that_one_replica_lacks_keeps_number_and_values(
    rig: Rig, table: str, relays: list[TableCodecs]
) -> None:
    """Added, and dropped: no relay takes it back, and each makes it count once it is everywhere."""
    first, second, _ = rig.replicas
    topic = _topic(relays[0])
    for alter, carried in (
        ("ADD COLUMN x Int64", {"id": 1, "name": 2, "x": 3}),
        ("MODIFY COLUMN x Int32", {"id": 1, "name": 2, "x": 4}),
        ("DROP COLUMN x", {"id": 1, "name": 2}),
    ):
        known = len(topic)
        second.command(f"SYSTEM STOP REPLICATION QUEUES {table}")
        first.command(f"ALTER TABLE {table} {alter}")
        for _ in range(3):
            assert [_look(relay, table) for relay in relays] == [carried, carried], alter
        assert len(topic) == known + 1, alter
        second.command(f"SYSTEM START REPLICATION QUEUES {table}")
        columns = (
            f"SELECT name, type FROM system.columns WHERE database || '.' || table = '{table}'"
        )
        wait_until(lambda: first.rows(columns) == second.rows(columns), alter)  # noqa: B023
        assert [_look(relay, table) for relay in relays] == [carried, carried], alter
        assert len(topic) == known + 1, alter

    second.command(f"ALTER TABLE {table} ADD COLUMN x Int32")
    assert _look(relays[1], table) == {"id": 1, "name": 2, "x": 4}, "as it was"


@pytest.mark.parametrize("user", [SEEING, UNSEEING])
def test_a_column_whose_alter_is_the_first_entry_of_the_log(
    rig: Rig, table: str, relays: list[TableCodecs]
) -> None:
    """A replica that has not read it shows the numbers of an empty log."""
    first, second, _ = rig.replicas
    carried, known = {"id": 1, "name": 2, "x": 3}, len(_topic(relays[0]))
    second.command(f"SYSTEM STOP PULLING REPLICATION LOG {table}")
    first.command(f"ALTER TABLE {table} ADD COLUMN x Int64 SETTINGS alter_sync = 1")
    for _ in range(3):
        assert [_look(relay, table) for relay in relays] == [carried, carried]
    assert len(_topic(relays[0])) == known + 1
    second.command(f"SYSTEM START PULLING REPLICATION LOG {table}")
    first.command(f"ALTER TABLE {table} DROP COLUMN x")
    expected = {"id": 1, "name": 2}
    wait_until(lambda: [_look(relay, table) for relay in relays] == [expected] * 2, "dropped")


@pytest.mark.parametrize("user", [SEEING, UNSEEING])
def test_a_table_made_anew_with_fewer_columns(
    rig: Rig, table: str, relays: list[TableCodecs], user: str
) -> None:
    """Its log is empty: who may not ask whether it is waits for the table's first row."""
    old, new = {"id": 1, "name": 2}, {"id": 1}
    assert _look(relays[0], table) == old, "of a table that was never written"
    rig.everywhere(f"DROP TABLE {table} SYNC")
    rig.make(table, "id Int64, _block String", "ORDER BY id")
    assert _look(relays[0], table) == (new if user == SEEING else old)
    rig.replicas[1].command(f"INSERT INTO {table} (id) VALUES (1)")
    wait_until(lambda: _look(relays[0], table) == new, "its columns")


def _topic(relay: TableCodecs) -> list[object]:
    registry = relay._registry
    assert isinstance(registry, Registry)
    return registry.topic


def _look(relay: TableCodecs, table: str) -> dict[str, int]:
    """Field numbers by column, as the relay has them when it has looked again."""
    relay.refresh()
    relay.adopt()
    codec = relay.codec(table)
    assert isinstance(codec, RowCodec)
    return {column.name: column.number for column in live_columns(codec.schema)}
