"""Runs a campaign to its verdict, also when it is interrupted or gives up."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

from tests.chaos.campaign import Campaign
from tests.chaos.crew import GaveUp
from tests.chaos.pauses import report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos.options import Options, Report


def run(
    options: Options,
    body: Callable[[Campaign], Any],
    say: Callable[[str], None],
    keep: Path | None = None,
    command: tuple[str, dict[str, Any]] = ("", {}),
) -> Report:
    """The campaign's report; what `body` gives is among its figures.

    Ctrl-C stops the faults; what was done so far is judged.
    """
    say(f"seed {options.seed}")
    # Left after the campaign, whose end takes seconds: there, too, the verdict would be lost.
    with contextlib.ExitStack() as calm, Campaign(options, say, keep, command) as campaign:
        figures: dict[str, Any] | None = None
        interrupted = False
        try:
            figures = body(campaign)
        except KeyboardInterrupt:
            interrupted = True
            say("interrupted: judging what was done so far")
            campaign.heal()
        except GaveUp:
            say("too many anomalies: judging what was done so far")
            campaign.heal()
        calm.enter_context(_not_to_be_interrupted(say))
        found = report(campaign)
        found.figures |= (figures or {}) | ({"interrupted": True} if interrupted else {})
        return found


@contextlib.contextmanager
def _not_to_be_interrupted(say: Callable[[str], None]) -> Iterator[None]:
    """An impatient Ctrl-C would throw the verdict away that it was meant to bring about."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(n, lambda *_: say("judging: the verdict comes")) for n in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
