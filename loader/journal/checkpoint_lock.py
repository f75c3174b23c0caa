"""One loader for each checkpoint: a second one ends before it touches anything.

Receives the checkpoint's directory, holds a lock in it for as long as a loader runs. The system
lets go of it with the process, however that ends. Where the checkpoint is elsewhere there is no
lock: then Spark finds that two write to it, and loader.spark.one_app says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from relay.config.settings import ELSEWHERE
from relay.errors import ConfigError, Fenced

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK = ".loader.lock"
"""The file's name; Spark reads no such file."""
_NEXT = (
    "Stop that loader, or give this one a directory of its own (loader.checkpoint, or "
    "--checkpoint): two loaders of one app may run, each with its own."
)


@contextlib.contextmanager
def alone(where: str) -> Iterator[None]:
    """Hold the checkpoint's lock until the context ends.

    Raises:
        Fenced: another loader holds it.
        ConfigError: the directory cannot be made, or nothing can be written there.
    """
    if ELSEWHERE.match(where):
        yield
        return
    try:
        Path(where).mkdir(parents=True, exist_ok=True)
        file = (Path(where) / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"checkpoint {where}: {error}", "Name a directory that this user may write to."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise used(where, file.read(200).strip()) from error
        except OSError:  # a file system without locks
            yield
            return
        file.truncate(0)
        print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
        yield


def used(where: str, by: str = "") -> Fenced:
    """Return the error for a second loader with this checkpoint.

    Args:
        where: the checkpoint is.
        by: which process has it; empty: not known.
    """
    return Fenced(f"another loader{f' ({by})' if by else ''} uses checkpoint {where}", _NEXT)
