"""Performs the faults of tests.chaos.schedule on a running campaign.

Receives a fault, gives the tasks that end it. Those named "undo" are done, early, when a
round ends; the others are left out then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos import program_faults, retention_faults, server_faults, table_faults
from tests.chaos.schedule import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.campaign import Campaign, Task
    from tests.chaos.schedule import Fault

FAULTS: dict[str, Callable[[Campaign, Fault], Sequence[Task]]] = {
    kind: next(
        getattr(module, kind)
        for module in (server_faults, program_faults, table_faults, retention_faults)
        if hasattr(module, kind)
    )
    for kind in KINDS
}
"""By kind: functions of that name."""


def perform(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """Do it; gives what ends it."""
    return FAULTS[fault.kind](campaign, fault)
