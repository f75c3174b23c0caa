"""Named places at which a test ends, stops or holds this process; inert unless told.

`RELAY_FAILPOINT=before_commit:kill` (SIGKILL), `:stop` (SIGSTOP; the test continues it) or
`:wait=FILE` (until the file is gone); with a further `:3` at the third pass only.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

VARIABLE = "RELAY_FAILPOINT"
_SIGNALS = {"": signal.SIGKILL, "kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Failpoints:
    """Counts passes of the one place that the environment names.

    Raises:
        ValueError: the variable's action is none of the above.
    """

    def __init__(self) -> None:
        name, _, rest = os.environ.get(VARIABLE, "").partition(":")
        action, _, passes = rest.partition(":")
        kind, _, file = action.partition("=")
        if kind != "wait" and action not in _SIGNALS:
            raise ValueError(f"{VARIABLE}: unknown action {action!r}")
        self._name = name
        self._action = kind
        self._file = Path(file)
        self._left = int(passes or 1)

    def reached(self, name: str) -> None:
        """Say that execution is at `name`."""
        if name != self._name:
            return
        self._left -= 1
        if self._left:
            return
        if self._action == "wait":
            while self._file.exists():
                time.sleep(0.05)
        else:
            os.kill(os.getpid(), _SIGNALS[self._action])
