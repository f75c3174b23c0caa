"""A process with a client call that never returns: python -m tests.mock.hanging WHAT [SECONDS]."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from relay.kafka import transactional_producer
from relay.kafka.hang_guard import armed
from tests.mock.cluster import Api
from tests.mock.rig import GROUP_COORDINATOR, TRANSACTION_COORDINATOR, Course, Rig

if TYPE_CHECKING:
    from collections.abc import Callable

COORDINATOR_NOT_AVAILABLE = 15
ANSWERS = 4
"""Of them librdkafka takes three; then it asks no more, and waits for ever."""
LIMIT_SECONDS = 4.0
SLICE_SECONDS = 0.3
DEADLINE_SECONDS = 2.0


def hold_the_gil(seconds: float) -> None:
    """As `Producer.begin_transaction` while it hangs: PyDLL calls C without letting go."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def held(seconds: float) -> None:
    """Print the longest time in seconds for which another thread stood still."""
    longest, last = 0.0, time.monotonic()

    def run() -> None:
        nonlocal longest, last
        while True:
            time.sleep(0.01)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    threading.Thread(target=run, daemon=True).start()
    begun = time.monotonic()
    hold_the_gil(seconds)
    ended = time.monotonic()
    while last < ended:
        time.sleep(0.01)
    print(min(longest, ended - begun))


def guarded(seconds: float) -> None:
    """Hold it under the watchdog, beside an idle thread; then live on beyond the limit."""
    threading.Thread(target=threading.Event().wait, daemon=True, name="idle").start()
    with armed(LIMIT_SECONDS):
        hold_the_gil(seconds)
    time.sleep(1.2 * LIMIT_SECONDS)


def begin(seconds: float) -> None:
    """The relay's own producer, whose begin_transaction holds the GIL (librdkafka#4420)."""
    with Rig("app") as rig:
        rig.producer.replace()
        transactional_producer.HANGING_SECONDS = rig.producer._deadline_seconds = 0.5
        real: Any = rig.producer._producer

        class Hanging:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def __len__(self) -> int:
                return len(real)

            def begin_transaction(self) -> None:
                hold_the_gil(seconds)

        hanging: Any = Hanging()
        rig.producer._producer = hanging
        rig.fill()


def decommissioned(rig: Rig) -> None:
    rig.cluster.set_group_coordinator(rig.group, TRANSACTION_COORDINATOR)
    rig.cluster.decommission(GROUP_COORDINATOR)


def gone(rig: Rig) -> None:
    rig.cluster.take_down(GROUP_COORDINATOR)


def not_found(rig: Rig) -> None:
    rig.cluster.fail(Api.FIND_COORDINATOR, *[COORDINATOR_NOT_AVAILABLE] * ANSWERS)


def offsets(fault: Callable[[Rig], None], *, first: bool) -> None:
    """Print the course of a transaction whose group's coordinator is lost before its offsets.

    Args:
        fault: how it is lost.
        first: it was never asked before; else the client remembers it.
    """
    transactional_producer.SLICE_SECONDS = SLICE_SECONDS
    with Rig("app") as rig:
        course = Course()
        rig.start(course)
        if not first:
            rig.transaction(course)

        def before(effect: str) -> None:
            if effect == "SendOffsets":
                rig.producer._deadline_seconds = DEADLINE_SECONDS
                fault(rig)

        rig.transaction(course, before)
        print(json.dumps(asdict(course)), flush=True)
        os._exit(0)  # the call that hangs holds on to its client, which nothing ends


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what in {"decommissioned", "gone"}:
        offsets(globals()[what], first=False)
    elif what == "not_found":
        offsets(not_found, first=True)
    else:
        globals()[what](float(rest[0]))
