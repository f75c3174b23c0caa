"""Reads the rewinds in the journal for whoever handles dead letters.

Receives settings, says of a dead letter whether it still counts.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from relay.operate.rewind.superseded_letters import SupersededLetters
from relay.operate.verify.read.journal import Reader

if TYPE_CHECKING:
    from relay.blocks.dead_letter import DeadLetter
    from relay.config.settings import Settings

LOOK_SECONDS = 1.0
"""Between two looks at the journal: somebody may rewind while letters are read."""


class RewindsReader:
    """The journal of one app, as far as it is visible now.

    Raises (every method):
        Unavailable: the brokers did not answer.
        NoJournal: the app has none.
    """

    def __init__(self, settings: Settings) -> None:
        self._reader = Reader(settings)
        self._letters = SupersededLetters()
        self._looked_at = -math.inf

    def superseded(self, letter: DeadLetter) -> bool:
        """Return whether a rewind had the letter's message read again after it was written."""
        if time.monotonic() >= self._looked_at + LOOK_SECONDS:
            self._reader.grow()
            for _, _, commit in self._reader.records():
                self._letters.add(commit)
            self._looked_at = time.monotonic()
        return self._letters.include(letter)

    def close(self) -> None:
        """Let go of the clients."""
        self._reader.close()
