"""A loader with one guard taken away, for negative controls: production has no such switch.

python -m tests.replicas.unguarded GUARD tests.chaos.bareloader CONFIG
"""

from __future__ import annotations

import sys

from loader.blocks import worker
from loader.journal import startup
from tests.chaos import bareloader

GUARDS = ("quorum",)


def quorum() -> None:
    """One URL is taken for one server, whatever answers there."""
    for module in (startup, worker):
        module.several = lambda *_: False  # type: ignore[attr-defined]


if __name__ == "__main__":
    {"quorum": quorum}[sys.argv.pop(1)]()
    sys.argv.pop(1)
    sys.exit(bareloader.main())
