"""Somebody who types what a document says, in a directory of his own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BIN = Path(sys.executable).parent
PREAMBLE = """\
set -e
relay() {  # warnings of the doctor are none of a broken command
    command relay "$@" || { status=$?; [ "$1" = doctor ] && [ $status = 8 ] || return $status; }
}
"""
STAYS = re.compile(
    r"^((?:(?:relay|loader) run\b(?!.*--once)|relay verify --follow)[^#&\n]*).*\n", re.MULTILINE
)
"""Commands that run until they are told to stop; in a document a second terminal has them."""


class Reader:
    """Somebody who types what a document says, in a directory of his own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        self._running: list[subprocess.Popen[bytes]] = []

    def types(self, block: str, language: str = "sh") -> str:
        """Runs a block; what it prints. A program that stays is left running."""
        if language == "python":
            return self._ends([sys.executable, "-c", block])
        printed = ""
        for number, part in enumerate(STAYS.split(block)):
            if number % 2:
                self._starts(part)
            elif part.strip():
                printed += self._ends(["bash", "-c", PREAMBLE + part])
        return printed

    def _starts(self, command: str) -> None:
        with (self.directory / "programs.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [BIN / command.split(maxsplit=1)[0], *command.split()[1:]],
                    cwd=self.directory,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                )
            )

    def waits(self, command: str, wanted: str) -> None:
        """Until the command prints this, for five minutes at most."""
        deadline = time.monotonic() + 300
        while (printed := self.types(command)).strip() != wanted:
            assert time.monotonic() < deadline, f"{command}: {printed}\n{self._log()}"
            time.sleep(1)

    def stops(self) -> list[int]:
        """Ends what was left running; its exit statuses."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        return [process.wait(60) for process in self._running]

    def _ends(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}\n{self._log()}"
        return done.stdout

    def _log(self) -> str:
        log = self.directory / "programs.log"
        return log.read_text(errors="replace")[-5_000:] if log.exists() else ""


@contextmanager
def reading(directory: Path) -> Iterator[Reader]:
    """A reader whose servers are ended whatever happens."""
    reader = Reader(directory)
    try:
        yield reader
    finally:
        for process in reader._running:
            process.kill()
        subprocess.run([BIN / "relay", "dev", "down"], cwd=directory, check=False, timeout=120)
