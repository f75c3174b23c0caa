"""Reads the rewinds in the journal for whoever handles dead letters.

Receives settings, says why a replay leaves a dead letter out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from relay import names
from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.config.settings import Settings
from relay.kafka.topics import READ, Topics
from relay.operate.dead.replay_plan import Why
from relay.operate.rewind.superseded_letters import SupersededLetters
from relay.operate.verify.read.journal import Reader

LOOK_SECONDS = 1.0
"""Between two looks at the journal: somebody may rewind while letters are read."""


class RewindsReader:
    """The journal of one app, as far as it is visible now; beside its dead letter topic.

    Raises (every method):
        Unavailable: the brokers did not answer.
        Refused: the user may not read it.
        NoJournal: the app has none.
    """

    def __init__(self, settings: Settings, dead_topic_id: str) -> None:
        journal = Topics(settings).describe(names.journal_topic(settings.app), (READ,))
        first = names.first_epoch(journal.topic_id if journal is not None else "")
        self._reader = Reader(settings)
        self._letters = SupersededLetters(dead_topic_id, {0, first})
        self._looked_at = -math.inf

    def left_out(self, letter: DeadLetter) -> Why | None:
        """Return why a replay leaves the letter out; the journal is not looked at every time."""
        if time.monotonic() >= self._looked_at + LOOK_SECONDS:
            self._look()
        if self._letters.include(letter):
            return Why.READ_AGAIN
        return Why.PERHAPS_READ_AGAIN if self._letters.may_include(letter) else None

    def left_out_now(self, letters: Sequence[DeadLetter]) -> dict[RecordPlace, Why]:
        """Return those of these that a replay leaves out, by the journal of this moment."""
        self._look()
        whys = ((letter.place, self.left_out(letter)) for letter in letters)
        return {place: why for place, why in whys if why is not None}

    def _look(self) -> None:
        self._reader.grow()
        for _, _, commit in self._reader.records():
            self._letters.add(commit)
        for partition, start in self._reader.starts.items():
            if start > 0:
                self._letters.emptied(partition)
        self._looked_at = time.monotonic()

    def close(self) -> None:
        """Let go of the clients."""
        self._reader.close()
