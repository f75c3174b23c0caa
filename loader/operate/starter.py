"""Ends this process with the one that started it, however that one ends.

Receives a pipe's descriptor of which the starter holds the other end, and writes nothing into it.
The system closes that end when the starter is gone, killed or not; then the pipe is at its end.
"""

from __future__ import annotations

import os
import stat
import threading

from relay.errors import ConfigError, Unavailable

STARTER_GONE = Unavailable.exit_code


def end_with_starter(descriptor: int) -> None:
    """Watch the pipe in a thread of its own; end the process at once when it reaches its end.

    Nothing is tidied up: what this process does can be repeated after it was killed anywhere, and
    what it would do next is no longer asked for.

    Raises:
        ConfigError: the descriptor is of no pipe.
    """
    try:
        pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        pipe = False
    if not pipe:
        raise ConfigError(
            f"descriptor {descriptor} is not a pipe", "leave the option out: `relay rewind` sets it"
        )
    threading.Thread(target=_watch, args=(descriptor,), name="starter", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os._exit(STARTER_GONE)
