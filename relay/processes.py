"""Several relay processes under one command: Python uses one core per process.

Receives how many; starts them as members `<member>-0`, `<member>-1`, … of the same app and
ends them together. It restarts nothing: that is the work of whoever supervises this command.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from relay.serving import parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

PROGRAM = [sys.executable, "-c", "import sys; from relay.cli import main; sys.exit(main())"]
LOOK_SECONDS = 0.2


def run(arguments: Sequence[str], member: str, count: int, listen: str | None = None) -> int:
    """Run `count` relays until SIGTERM, SIGINT or the end of one of them.

    Args:
        arguments: of `relay run`, without `--member` and `--processes`.
        member: what the members' names begin with.
        count: of processes, at least 2.
        listen: HOST:PORT at which the first serves metrics and health, the others at the
            ports behind it; port 0: each at a free one, which its log names.

    Returns:
        The exit status of the first that ended by itself; 0 if all ended because asked.
    """
    addresses = [served(listen, index) for index in range(count)]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    children = [
        # Of a group of its own: Ctrl-C in a terminal reaches this process, which passes it on.
        subprocess.Popen(  # noqa: S603 - our own program and checked arguments
            [*PROGRAM, "run", *arguments, "--member", f"{member}-{index}", *served],
            process_group=0,
        )
        for index, served in enumerate(addresses)
    ]
    try:
        while not stop.wait(LOOK_SECONDS):
            ended = [child for child in children if child.poll() is not None]
            if ended:
                log.error("a relay ended, ending all", extra={"status": ended[0].returncode})
                return int(ended[0].returncode)
        return 0
    finally:
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait()


def served(listen: str | None, index: int) -> list[str]:
    """Where this process serves, as arguments.

    Raises:
        ConfigError: `listen` is no address.
    """
    if listen is None:
        return []
    _, port = parsed(listen)
    host = listen.rpartition(":")[0]
    return ["--http", f"{host}:{port + index if port else 0}"]
