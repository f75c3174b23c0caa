"""Loaders over three real replicas: partitions under a quorum, and one URL that is all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loader.begin import ledger_of
from loader.work import Worker
from tests.broker.pipeline import wait_until
from tests.loader.blocks import DEADLINE, batch
from tests.replicas.journal import STAMPED, Replicated, spread
from tests.replicas.rig import Rig

BLOCKS, ROWS = 135, 200


def copies(rig: Rig, table: str) -> list[tuple[int, int]]:
    """(rows, different rows) of each replica, when it has all."""
    found = []
    for one in rig.replicas:
        one.command(f"SYSTEM SYNC REPLICA {table}")
        found.append(tuple(one.rows(f"SELECT count(), uniqExact(id) FROM {table}")[0]))
    return found


def states(journal: Replicated) -> dict[str, int]:
    """How many blocks are in which state."""
    ledger = ledger_of(journal.settings())
    found: dict[str, int] = {}
    for _, state, blocks, _ in ledger.counts():
        found[state] = found.get(state, 0) + blocks
    return found


def loaded(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What `loader run --once` said."""
    return subprocess.run(
        [sys.executable, "-m", "loader.cli", "run", str(config), "--once", *options],
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize("stamped", [True, False])
def test_three_partitions_and_a_quorum_park_nothing(
    rig: Rig, journal: Replicated, app: str, *, stamped: bool
) -> None:
    """B3: healthy replicas, four tasks side by side; 286 in the middle of an INSERT parked some.

    Each partition of an INSERT is a quorum write of its own, and another task's may come between.
    """
    columns = STAMPED if stamped else STAMPED.rpartition(", ")[0]
    table = f"d{app}.t"
    rig.make(table, columns, "PARTITION BY name ORDER BY id")
    journal.seal(table, *(spread(i * ROWS, ROWS) for i in range(BLOCKS)))
    done = loaded(journal.configuration())
    assert done.returncode == 0, done.stderr[-2000:]
    assert "parked" not in done.stderr.replace(" 0 parked", "")
    assert states(journal) == {"loaded": BLOCKS}
    assert copies(rig, table) == [(BLOCKS * ROWS,) * 2] * 3
