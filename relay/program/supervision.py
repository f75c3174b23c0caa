"""What becomes of a child that ended by itself, while others go on; pure.

Receives exit statuses and times in seconds, gives what to do. The statuses are those of
relay.errors: some pass by themselves, the others wait for a person, and starting again would
only bury what was said.
"""

# pure

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from relay.errors import EXIT_BUG, ConfigError, ContractBroken, Fenced, MissingTool, Refused
from relay.program.waiting import backoff

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0
"""One that ran so long is started again as if it were the first time."""
FENCES = 3
"""So often in a row a child takes its identity back: two that do so for ever would end each
other for ever."""

_FOR_A_PERSON = {error.exit_code for error in (ConfigError, MissingTool, Refused, ContractBroken)}
_WORST_FIRST = (
    *(error.exit_code for error in (ContractBroken, Refused, ConfigError, MissingTool)),
    EXIT_BUG,
    Fenced.exit_code,
)


class Past(NamedTuple):
    """What is known about earlier ends of a child."""

    tries: int = 0
    """Ends in a row, none of them after STEADY_SECONDS."""
    fences: int = 0
    """How many of these were with the status of Fenced."""


class Verdict(NamedTuple):
    """What to do about a child that ended."""

    pause: float | None
    """Seconds after which it is started again; None: it stays ended."""
    past: Past
    """Of this child from now on."""


def after(status: int, ran: float, past: Past) -> Verdict:
    """Decide what to do about a child that ended unasked after `ran` seconds.

    `status`: its exit status; negative: the signal that killed it. `past`: as the verdict before
    gave it; Past() at first.
    """
    before = Past() if ran >= STEADY_SECONDS else past
    now = Past(before.tries + 1, before.fences + (status == Fenced.exit_code))
    if status == 0 or status in _FOR_A_PERSON or now.fences > FENCES:
        return Verdict(None, now)
    return Verdict(backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, before.tries), now)


def worst(statuses: Iterable[int]) -> int:
    """Return the most severe exit status; 0 if all are 0."""
    ended = [status for status in statuses if status]
    ranked = [status for status in _WORST_FIRST if status in ended]
    return (ranked or sorted(ended, key=lambda status: (status < 0, status)) or [0])[0]
