"""Clean journals with rewinds in them, and the audit of one partition's journal.

Receives a seed, gives a source partition as a relay's real core and the real rewind left it.
"""

from __future__ import annotations

import random

from relay.operate.rewind import rewind as steps
from relay.operate.rewind.removal import RewindConsent
from relay.operate.rewind.rewind import RewindRequest
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly
from tests.rewind.world import AUTHOR, World
from tests.verify import histories
from tests.verify.histories import TABLES, History


def judged(journal: History) -> list[Anomaly]:
    """What the verifier says of it."""
    audit = Audit(histories.APP, histories.SOURCE, 1.0)
    for offset, commit in journal:
        audit.record(0, offset, commit)
    return audit.anomalies


def rewound(seed: int = 1, table: str | None = "d.a") -> World:
    """A table is re-run from the middle, and relays go on."""
    world = World(seed)
    world.relay(40)
    rewind(world, world.floor // 2, table)
    world.relay(20)
    return world


def rewind(world: World, offset: int, table: str | None) -> None:
    """A table, or all, from an offset on."""
    wanted = RewindRequest({0: offset}, table, RewindConsent())
    steps.rewind(world, wanted, "_block", lambda: AUTHOR)


def with_rewinds(seed: int) -> History:
    """Some rewinds, of one table or all, from anywhere; relays go on after each."""
    rng = random.Random(seed)
    world = World(seed)
    for _ in range(rng.randint(1, 3)):
        world.relay(rng.randint(20, 100))
        table = rng.choice((None, *(table for table in TABLES if table)))
        rewind(world, rng.randrange(world.floor + 1), table)
    world.relay(rng.randint(20, 100))
    return world.journal
