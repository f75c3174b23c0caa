"""Faults of replicas: what is done to a rig and its loaders, and how it is undone."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from tests.chaos.schedule import Fault, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.chaos.programs import Program
    from tests.replicas.front import Front
    from tests.replicas.rig import Replica, Rig

    Undo = Callable[[], None]

# The replicas' sessions with the coordinator last 5 s: durations lie on both sides of that.
KINDS: Mapping[str, Kind] = {
    "kill_replica": Kind(6, (0.0, 6.0)),
    "pause_replica": Kind(5, (0.5, 9.0)),
    "lag": Kind(6, (2.0, 12.0), ("FETCHES", "REPLICATION QUEUES")),
    "lose_coordinator": Kind(2, (0.0, 8.0)),
    "hold_insert": Kind(3, (1.0, 8.0)),
    "cut": Kind(3),
    "kill_loader": Kind(4),
    "pause_loader": Kind(2, (0.5, 9.0)),
}


def perform(fault: Fault, rig: Rig, fronts: Sequence[Front], loaders: Sequence[Program]) -> Undo:
    """Do it; gives what undoes it."""
    one = rig.replicas[fault.target % len(rig.replicas)]
    loader = loaders[fault.target % len(loaders)]
    match fault.kind:
        case "kill_replica":
            one.kill()
            return lambda: _start(one)
        case "pause_replica":
            one.pause()
            return one.resume
        case "lag":
            _tell(one, f"SYSTEM STOP {fault.detail}")
            return lambda: _tell(one, f"SYSTEM START {fault.detail}")
        case "lose_coordinator":
            rig.lose_coordinator()
            return lambda: _return(rig)
        case "hold_insert":
            held = fronts[fault.target % len(fronts)].hold("ARROW1")
            return held.release
        case "cut":
            for front in fronts:
                front.cut()
        case "kill_loader":
            loader.kill()
        case "pause_loader":
            loader.signal(signal.SIGSTOP)
            return lambda: loader.signal(signal.SIGCONT)
    return _nothing


def _start(one: Replica) -> None:
    if one.runs() is None:
        one.start(wait=False)


def _return(rig: Rig) -> None:
    if not rig.coordinated():
        rig.return_coordinator()


def _tell(one: Replica, sql: str) -> None:
    """Nothing where it is killed or stopped: what was told it before is forgotten, or stays."""
    with contextlib.suppress(ClickHouseError, OSError):
        one.command(sql, seconds=2)


def _nothing() -> None:
    pass
