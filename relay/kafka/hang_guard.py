"""Guards calls of a client that may never return: leaves them behind, or ends the process.

A call that releases the GIL is left behind in its thread. Not every one does
(`Producer.begin_transaction`), and no Python thread could fire then: faulthandler's timer
is a C thread that needs no GIL (librdkafka#4420, #5511).
"""

from __future__ import annotations

import contextlib
import faulthandler
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def armed(limit_seconds: float) -> Iterator[None]:
    """Dump all stacks to stderr and exit with status 1 if the body takes longer."""
    faulthandler.dump_traceback_later(limit_seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def call_within(limit_seconds: float, call: Callable[[], Any]) -> None:
    """Call in a thread of its own, and wait no longer than this for its end.

    Raises:
        TimeoutError: it has not returned; its thread and what that holds stay until it does.
        Exception: what `call` raised.
    """
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, daemon=True, name="client call").start()
    try:
        raised = ended.get(timeout=limit_seconds)
    except queue.Empty:
        raise TimeoutError(f"did not return within {limit_seconds:g} s") from None
    if raised is not None:
        try:
            raise raised
        finally:
            del raised  # its traceback holds this frame, and so the client, until a collection
