"""One rig for the whole run; each test gets it whole, with an app of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.clickhouse import replicas
from tests.replicas.journal import STAMPED, Replicated
from tests.replicas.rig import Rig


@pytest.fixture(scope="session")
def running_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig")) as made:
        yield made


@pytest.fixture
def rig(running_rig: Rig) -> Iterator[Rig]:
    """Three replicas that agree; whatever a test does to them is undone behind it."""
    running_rig.heal()
    running_rig.await_active()
    replicas._shared_pool.cache_clear()  # all clients of this process begin with the first replica
    yield running_rig
    running_rig.heal()
    running_rig.everywhere("SYSTEM START FETCHES")
    running_rig.everywhere("SYSTEM START REPLICATION QUEUES")
    running_rig.everywhere("SYSTEM START PULLING REPLICATION LOG")


@pytest.fixture
def journal(bootstrap: str, rig: Rig, app: str, tmp_path: Path) -> Replicated:
    """An app whose ledger is on all replicas."""
    made = Replicated(bootstrap, rig, app, tmp_path)
    made.make_ledger()
    return made


@pytest.fixture
def table(rig: Rig, app: str) -> str:
    """A table with the block column on all replicas."""
    name = f"d{app}.t"
    rig.make(name, STAMPED, "ORDER BY id")
    return name
