"""Asks a server beside whoever needs the answer, who waits for it only as long as is usual.

Receives calls, gives what they give. A server that swallows what it is sent says neither yes nor no
for half a minute: one question is left with it, in a thread of its own, and nobody else is kept.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_SECONDS = 2.0
"""Until an answer is late: many times what columns of a thousand tables take."""
AGAIN_SECONDS = 0.25
"""The same of a server that gave none last time."""
_SLOWER = 3
"""Times what the last answer took: how much longer than usual the next may take."""


class Beside:
    """Ask in a thread of its own, one question at a time.

    Args:
        patience: seconds to wait for an answer, at least; where they come later, longer.
    """

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._least = self._patience = patience
        self._left: _Question | None = None

    def __call__(self, ask: Callable[[], T]) -> T:
        """Return what `ask` gives, if it gives it soon.

        What comes late is not used: whoever asks again may know more by then.

        Raises:
            TimeoutError: it is late, or the question before it is still with the server.
            Exception: what `ask` raised.
        """
        if self._left is not None:
            if not self._left.ended.is_set():
                raise TimeoutError(self._left.silence())
            self._learn(self._left)
        asked = self._left = _Question(ask)
        if not asked.ended.wait(self._patience):
            raise TimeoutError(asked.silence())
        self._left = None
        if asked.error is None:
            self._learn(asked)
            return asked.answer  # type: ignore[no-any-return]  # of this `ask`
        try:
            raise asked.error
        finally:
            del asked  # its error's traceback holds this frame

    def _learn(self, asked: _Question) -> None:
        if asked.error is not None:  # that was waited for in vain
            self._patience = min(self._least, AGAIN_SECONDS)
        else:
            self._patience = max(self._least, _SLOWER * asked.seconds, self._patience / 2)


class _Question:
    """One call in its thread.

    Attributes:
        ended: set once `answer`, or `error`, and `seconds` are what they will be.
    """

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask, self._begun = ask, time.monotonic()
        self.ended = threading.Event()
        self.answer: Any = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        threading.Thread(target=self._run, daemon=True, name="ask beside").start()

    def silence(self) -> str:
        """Return since when there is no answer."""
        return f"no answer for {time.monotonic() - self._begun:.1f} s"

    def _run(self) -> None:
        try:
            self.answer = self._ask()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self.error = error
        self.seconds = time.monotonic() - self._begun
        self.ended.set()
