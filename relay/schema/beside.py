"""Asks a server beside whoever needs the answer, who waits for it only as long as is usual.

Receives calls, gives what they give. A server that swallows what it is sent says neither yes nor no
for half a minute: one question is left with it, in a thread of its own, and nobody else is kept. So
it is with a server that is silent about some things only, as it has to ask another one: then one
question is left with it about each of those.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 2.0
"""Until an answer is late: many times what columns of a thousand tables take."""
AGAIN_SECONDS = 0.25
"""The same where it gave none last time; or none at all since a question was waited for so long,
unless its answers take longer."""
_SLOWER = 3
"""Times what the slowest answer took: how much longer than usual the next may take."""
KEPT_SECONDS = 600.0
"""How long an answer counts. Not by how many came since: most questions are short, and a slow one
would be late whenever some of them came before it."""
_MOST_FAILED = 100
"""Of questions that got no answer, which are remembered."""


class Beside:
    """Ask in a thread of its own, one question at a time about the same.

    It waits `patience` seconds for an answer, at least; where they come later, longer.
    """

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._least = patience
        self._slowest = SlowestAnswer()
        self._left: dict[Hashable, _Question] = {}
        self._silent = False  # since a question whose answer was expected

    def __call__(self, ask: Callable[[], T], about: Hashable = None) -> T:
        """Return what `ask` gives, if it gives it soon.

        What comes late is not used: whoever asks again may know more by then.

        While a question is left with the server, no other `about` the same is.

        Raises:
            TimeoutError: it is late, or the question before it is still with the server.
            Exception: what `ask` raised.
        """
        self._learn()
        before = self._left.get(about)
        if before is not None and not before.ended.is_set():
            raise TimeoutError(before.silence())
        asked = _Question(ask)
        again = before is not None
        if not asked.ended.wait(self._patience(again=again)):
            self._left[about] = asked
            # What is asked again says nothing new of the server: it may be silent about that alone.
            self._silent |= not again
            raise TimeoutError(asked.silence())
        if asked.error is None:
            self._left.pop(about, None)
            self._answered(asked)
            return asked.answer  # type: ignore[no-any-return]  # of this `ask`
        try:
            raise asked.error
        finally:
            del asked  # its error's traceback holds this frame

    def _patience(self, *, again: bool) -> float:
        """Until an answer is late; `again`: where the one about the same was, the last time."""
        usual = _SLOWER * self._slowest.seconds
        if again:
            return min(self._least, AGAIN_SECONDS)
        if self._silent:  # this one may be as well, but an answer takes as long as is usual
            return min(self._least, max(AGAIN_SECONDS, usual))
        return max(self._least, usual)

    def _learn(self) -> None:
        """Forget the late questions that were answered, but for how long that took."""
        for about, late in tuple(self._left.items()):
            if late.ended.is_set() and (late.error is None or len(self._left) > _MOST_FAILED):
                del self._left[about]
                if late.error is None:
                    self._answered(late)

    def _answered(self, question: _Question) -> None:
        self._silent = False
        self._slowest.learn(question.seconds)


class SlowestAnswer:
    """Remember how long the slowest answer took, of those of the last KEPT_SECONDS or about.

    Attributes:
        seconds: that it took; 0 before the first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._at = clock, clock()
        self.seconds = 0.0

    def learn(self, seconds: float) -> None:
        """Note an answer that took so many seconds; one that took half as long confirms it."""
        now = self._clock()
        if 2 * seconds >= self.seconds:
            self.seconds, self._at = max(seconds, self.seconds), now
        elif now - self._at > KEPT_SECONDS:
            self.seconds, self._at = seconds, now


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
