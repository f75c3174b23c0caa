"""The verifier asks one replica: what another one did, that one may not have recorded."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from loader.blocks.worker import Worker
from loader.clickhouse.ledger import NewEntry
from loader.core.plan import LOADED, PREPARED, Entry
from loader.journal.startup import ledger_of
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.landing import Landing
from relay.records_pb2 import Block
from tests.loader.blocks import batch
from tests.loader.test_work import outcomes
from tests.replicas.journal import STAMPED, Replicated
from tests.replicas.rig import Rig

ROWS = 100

pytestmark = pytest.mark.long  # three servers and their coordinator, half a minute


def test_the_block_column_that_another_replica_added(
    rig: Rig, journal: Replicated, app: str
) -> None:
    """Blocks of before carry no id, and the replica that is asked does not know why."""
    table = f"d{app}.t"
    rig.make(table, STAMPED.rpartition(", ")[0], "ORDER BY id")
    first, second, _ = rig.replicas
    with contextlib.closing(Worker(journal.settings())) as worker:
        (early,) = journal.seal(table, batch(0, ROWS))
        assert outcomes(worker.load([early])) == ["loaded"]
        first.command(f"ALTER TABLE {table} ADD COLUMN _block String")
        for one in rig.replicas:
            one.command(f"SYSTEM SYNC REPLICA {table}")
        later, lost = journal.seal(table, batch(ROWS, ROWS), batch(2 * ROWS, ROWS))
        assert outcomes(worker.load([later])) == ["loaded"]

    def judged(*blocks: Block) -> tuple[list[AnomalyKind], str]:
        for one in (table, f"{journal.settings().loader.database}.ledger"):
            second.command(f"SYSTEM SYNC REPLICA {one}")
        second.command("SYSTEM FLUSH LOGS")
        landing = Landing(journal.settings(url=second.url), {})
        found = list(landing.judge(blocks))
        return [one.kind for one in found], "\n".join([*map(str, found), *landing.not_judged])

    kinds, text = judged(early, later)
    assert kinds == [], text
    assert "loaded before the table had _block: what is missing now is not judged" in text
    entry = Entry(PREPARED, 1, "c", stamped=True, rows=ROWS)
    for one in (entry, replace(entry, state=LOADED)):
        ledger_of(journal.settings()).write([NewEntry(lost, one)])
    kinds, text = judged(early, later, lost)
    assert kinds == [AnomalyKind.GAP], text
    assert f"{lost.id} is loaded, but the table has 0 of its {ROWS} rows" in text
