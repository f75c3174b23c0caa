"""A loader with one guard taken away, for negative controls: production has no such switch.

python -m tests.replicas.unguarded GUARD tests.chaos.bareloader CONFIG
"""

from __future__ import annotations

import sys
from typing import Any

from loader import begin, running, work
from tests.chaos import bareloader

GUARDS = ("asked-everywhere", "quorum")


def asked_everywhere() -> None:
    """What runs is asked of the replica in use alone."""
    made = work.Running

    def of_one(client: Any, *_: Any) -> running.Running:
        return made(client)

    work.Running = of_one  # type: ignore[misc,assignment]


def quorum() -> None:
    """One URL is taken for one server, whatever answers there."""
    for module in (begin, work):
        module.several = lambda *_: False  # type: ignore[attr-defined]


if __name__ == "__main__":
    guard = sys.argv.pop(1)
    {"asked-everywhere": asked_everywhere, "quorum": quorum}[guard]()
    sys.argv.pop(1)
    sys.exit(bareloader.main())
