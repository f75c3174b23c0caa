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
from tests.schema.test_tables import Registry, tables

if TYPE_CHECKING:
    from relay.rows.codecs_of_tables import TableCodecs
    from tests.replicas.journal import Replicated
    from tests.replicas.rig import Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, a minute or more


@pytest.fixture
def relays(rig: Rig, journal: Replicated, table: str) -> Iterator[list[TableCodecs]]:
    """One at each of the first two replicas; their registries are one topic."""
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
