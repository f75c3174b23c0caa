"""The end of a history: no more faults, and everything has to come to rest.

Receives a World after anything at all, gives it finished; what is then still missing, stuck
or hanging is an anomaly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.core.state import Phase
from tests.model import judge
from tests.model.world import FOREVER_MS, NAMES, AnomalyError

if TYPE_CHECKING:
    from tests.model.world import World

ROUNDS = 12
EFFECTS = 60
"""Of one process in a round: more than the longest way from a restart to a commit."""
LOADER_TURNS = 2_000


def settle(world: World) -> None:
    """Everything left over arrives, all processes run, time goes by.

    Raises:
        AnomalyError: something is wrong, or not finished within the rounds.
    """
    left: list[str] = []
    while world.kafka.late:
        world.do(("deliver", 0))
    for _ in range(ROUNDS):
        _round(world)
        left = judge.unfinished(world.kafka, world.clickhouse, loading=bool(world.loaders))
        if not left:
            break
    world.check()
    if left:
        raise AnomalyError("; ".join(left))


def _round(world: World) -> None:
    world.do(("tick", 10 * FOREVER_MS))  # every age and interval has passed
    for name in NAMES:
        if all(m.name != name for m in world.members.values()):
            world.do(("boot", name))
    for partition in judge.partitions(world.kafka):
        if partition not in world.kafka.owners:
            world.do(("move", partition, NAMES[0]))
    for uid in tuple(world.members):
        for _ in range(EFFECTS):
            _write_markers(world)
            if uid in world.members:
                world.do(("go", uid))
    busy = {m.producer.tid for m in world.members.values() if m.state.phase is not Phase.READY}
    for tid in world.kafka.transactions:
        if tid not in busy:
            world.do(("timeout", tid))
    _write_markers(world)
    for name, loader in world.loaders.items():
        turns = 0
        while loader.busy(world.kafka) and turns < LOADER_TURNS:
            world.do(("load", name))
            turns += 1


def _write_markers(world: World) -> None:
    for tid, known in world.kafka.transactions.items():
        for key in sorted(known.unmarked):
            world.do(("mark", tid, key))
