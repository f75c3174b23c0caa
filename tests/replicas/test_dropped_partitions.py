"""Partitions that go from replicated tables: Keeper forgets their tokens, and no log says so.

Only the parts that are there do.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from loader.blocks.worker import Worker
from tests.loader.blocks import batch
from tests.loader.test_evidence import until_settled
from tests.loader.test_work import killed
from tests.replicas.journal import COLUMNS, STAMPED

if TYPE_CHECKING:
    from tests.replicas.journal import Replicated
    from tests.replicas.rig import Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, a minute or more

ROWS = 100


@pytest.mark.parametrize(
    ("columns", "statements", "rows"),
    [
        (STAMPED, ["DROP PARTITION tuple()"], 0),
        (COLUMNS, ["DROP PARTITION tuple()"], 0),
        (COLUMNS, ["DETACH PARTITION tuple()", "ATTACH PARTITION tuple()"], ROWS),
    ],
    ids=["dropped", "dropped, nothing counts", "detached and attached"],
)
def test_what_became_of_its_rows_stays(
    rig: Rig, journal: Replicated, app: str, columns: str, statements: list[str], rows: int
) -> None:
    """An INSERT was carried out, and its loader killed; then a person took the partition away.

    A backup without it may have been restored as well.
    """
    table = f"d{app}.gone"
    rig.make(table, columns, "ORDER BY tuple()")
    first = rig.replicas[0]
    journal.quorum, journal.url = None, first.url
    blocks = journal.seal(table, batch(0, ROWS), each=1)
    killed(journal, blocks, "after_insert")
    assert first.rows(f"SELECT count() FROM {table}") == [(ROWS,)]
    for statement in statements:
        first.command(f"ALTER TABLE {table} {statement} SETTINGS alter_sync = 1")
    with contextlib.closing(Worker(journal.settings())) as worker:
        assert until_settled(worker, blocks) == ["parked"]
    assert first.rows(f"SELECT count() FROM {table}") == [(rows,)]
