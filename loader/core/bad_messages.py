"""Finds the messages of a block that its table refuses, by trial. Pure: it knows no client.

Receives a trial of some of the messages, which says whether the table takes all their rows, gives
the messages that it refuses, each with the reason that it has alone. Only trials judge; where to
look is a guess. A violated CHECK names its row: then one bad message costs two trials, that of
what is behind it and its own. Other errors name none, and halves are tried: about two for each
bad message and halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loader.core import plan
from relay.blocks.message_rows import MessageRows
from relay.clickhouse.errors import About, about, is_surely_a_value
from relay.rows.bisect import isolate

Indexes = npt.NDArray[np.int64]
Trial = Callable[[Indexes], "TableRefusal | None"]


MOST = 2_000
"""Refused messages of one block. With more, it is the table that does not fit, and not they."""
MOST_UNSURE = 100
"""The same where the error is not surely about values: the block waits then, and each of its tries
looks for them anew."""


@dataclass(frozen=True, slots=True)
class TableRefusal:
    """The table refuses some of the rows.

    Attributes:
        row: the first bad one, from 0, where the error names it.
    """

    reason: str
    row: int | None = None


class TooMany(Exception):
    """More messages are refused than it may be."""


class Unsteady(Exception):
    """The same trial has another outcome than before."""


def refused(trial: Trial, messages: MessageRows, most: int = MOST) -> dict[int, str]:
    """Return why, by index, of the messages that the table refuses; each is refused alone.

    `trial`: of the messages with these indexes, ascending and at least one; `most`: that may be
    refused.

    Raises:
        TooMany: more are.
        Whatever the trial raises.
    """
    indexes = np.arange(len(messages.offsets))
    bad = _by_row(trial, indexes, messages.rows, most)
    rest = np.setdiff1d(indexes, np.fromiter(bad, np.int64, len(bad)))
    return bad | _by_halves(trial, rest, most - len(bad))


def confirm(trial: Trial, found: Iterable[int], count: int) -> None:
    """Try once more, after errors which may have been about something that passes.

    `found`: indexes of the messages that the trial refused; `count`: of all messages.

    Raises:
        Unsteady: one of them is taken now, or the others together are not.
        Whatever the trial raises.
    """
    bad = np.array(sorted(found), np.int64)
    rest = np.setdiff1d(np.arange(count), bad)
    if len(rest) and trial(rest) is not None:
        raise Unsteady
    if any(trial(bad[i : i + 1]) is None for i in range(len(bad))):
        raise Unsteady


def without_an_example(reason: str, detail: str = "") -> plan.Answer:
    """Answer a refusal of a block of which no message is known to be accepted.

    `reason`: the server's; `detail`: about the messages.
    """
    if is_surely_a_value(reason):
        return plan.Impossible(f"{reason}; {detail}" if detail else reason)
    return plan.NoAnswer(reason, About.TABLE if about(reason) is About.TABLE else About.UNKNOWN)


def _by_row(trial: Trial, untried: Indexes, rows: Indexes, most: int) -> dict[int, str]:
    """Those that the errors themselves lead to; what lies before each is not tried yet."""
    bad: dict[int, str] = {}
    while len(untried):
        refusal = trial(untried)
        if refusal is None or refusal.row is None:
            break
        i = int(np.searchsorted(np.cumsum(rows[untried]), refusal.row, side="right"))
        if i >= len(untried):
            break  # the row is not one of these: a transform made others
        alone = trial(untried[i : i + 1])
        if alone is None:
            break  # likewise
        bad[int(untried[i])] = alone.reason
        if len(bad) > most:
            raise TooMany
        untried = untried[i + 1 :]
    return bad


def _by_halves(trial: Trial, untried: Indexes, most: int) -> dict[int, str]:
    alone = 0

    def attempt(low: int, high: int) -> None:
        nonlocal alone
        if (refusal := trial(untried[low:high])) is not None:
            alone += high - low == 1
            if alone > most:
                raise TooMany
            raise ValueError(refusal.reason)

    _, bad = isolate(attempt, len(untried))
    return {int(untried[i]): reason for i, reason in bad}
