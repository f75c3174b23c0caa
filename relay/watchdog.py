"""Ends the process when a client call hangs, even while the call holds the GIL.

`Producer.begin_transaction` does not release the GIL, so no Python thread could fire
then; faulthandler's timer is a C thread that needs none (librdkafka#4420, #5511).
"""

from __future__ import annotations

import contextlib
import faulthandler
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def armed(limit_seconds: float) -> Iterator[None]:
    """Dump all stacks to stderr and exit with status 1 if the body takes longer."""
    faulthandler.dump_traceback_later(limit_seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
