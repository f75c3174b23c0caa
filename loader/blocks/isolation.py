"""Finds the messages of a claimed block that its table refuses, and has the block leave them out.

Receives an attempt whose INSERT was refused for its rows, gives loader.core.plan's answer; the
attempt's block names the messages then. loader.core.bad_messages decides where to look,
loader.blocks.scratch_table tries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from clickhouse_connect.driver.httpclient import HttpClient

from loader.blocks.attempt import Attempt
from loader.blocks.fetch import Damaged
from loader.blocks.made_rows import Maker
from loader.blocks.scratch_table import NoScratch, like
from loader.blocks.transform import CannotTransform
from loader.core import left_out, plan
from loader.core.bad_messages import (
    MOST,
    MOST_UNSURE,
    Indexes,
    TableRefusal,
    TooMany,
    Unsteady,
    confirm,
    refused,
    without_an_example,
)
from relay.blocks.message_rows import MessageRows
from relay.clickhouse.errors import About, is_surely_a_value
from relay.config.settings import Loader
from relay.failpoints import reached

ASKED_TO_END = "the loader was asked to end: the next one goes on with the block"


class AskedToEnd(Exception):
    """No trial is begun any more; the next attempt at the block begins anew."""


class Isolator:
    """Find refused messages for one process.

    `settings` say in which database tables to try on are made, and whether a block may be left out
    as a whole, as its messages become dead letters. `ends` says whether the loader is asked to end:
    a block may take thousands of trials.
    """

    def __init__(
        self, client: HttpClient, maker: Maker, settings: Loader, ends: Callable[[], bool]
    ) -> None:
        self._client, self._maker, self._ends = client, maker, ends
        self._database, self._stamp = settings.database, settings.block_column
        self._dead = settings.rejected == "dead"

    def isolate(self, attempt: Attempt, reason: str) -> plan.Answer:
        """Name in the attempt's block the messages that the table refuses.

        Raises:
            Unavailable, Refused: as the loader's other questions.
        """
        block = attempt.block
        most = MOST if is_surely_a_value(reason) else MOST_UNSURE
        try:
            rows, listed = self._maker.read(attempt)
            if listed is None or not attempt.divisible:
                return without_an_example(reason)
            if attempt.closed:
                return without_an_example(
                    reason,
                    "what it refused before are dead letters already, and without them it refuses "
                    "more: correct its rule, then --retry it",
                )
            kept = left_out.inserted(block, listed)
            remaining = MessageRows(listed.offsets[kept], listed.rows[kept])
            rows = rows.filter(pa.array(left_out.kept(block, listed)))
            reasons = self._refused(attempt, rows, remaining, reason, most)
        except AskedToEnd:
            return plan.NoAnswer(ASKED_TO_END)
        except TooMany:
            return without_an_example(
                reason, f"the table also refuses more than {most:,} of its messages one by one"
            )
        except NoScratch as error:
            return without_an_example(
                reason, f"the block's messages cannot be tried one by one: {error}"
            )
        except Unsteady:
            why = f"{reason}; it takes a message at one trial that it refuses at another"
            return plan.NoAnswer(why, About.UNKNOWN)
        except (Damaged, ValueError) as error:
            return plan.Impossible(str(error))
        if not reasons:
            views = attempt.target.nature.views if attempt.target is not None else ()
            return without_an_example(reason, by_others(views))
        unsure = [why for why in (reason, *reasons.values()) if not is_surely_a_value(why)]
        if len(reasons) == len(remaining.offsets) and (unsure or not self._dead):
            return without_an_example(
                unsure[0] if unsure else reason,
                "the table also refuses each of its messages one by one",
            )
        named = [*block.left_out, *left_out.messages(remaining, reasons)]
        attempt.block = left_out.without(block, sorted(named, key=lambda one: one.offset))
        reached("messages_isolated")
        return plan.Ok()

    def _refused(
        self, attempt: Attempt, rows: pa.RecordBatch, listed: MessageRows, reason: str, most: int
    ) -> dict[int, str]:
        """Return, by index in `listed`, why a table like the block's refuses messages.

        Where it may be the table, and a few are refused, all are: a block that waits for its table
        is tried again and again.
        """
        block, target = attempt.block, attempt.target
        assert target is not None
        with like(self._client, self._database, block, target, self._stamp) as takes:

            def trial(messages: Indexes) -> TableRefusal | None:
                if self._ends():
                    raise AskedToEnd
                try:
                    made = self._maker.of(block, rows_of(rows, listed, messages), target)
                except CannotTransform as error:
                    return TableRefusal(str(error))
                return takes(made) if made.num_rows else None

            count = len(listed.offsets)
            samples = [np.array([at]) for at in sorted({0, count // 2, count - 1})]
            if not is_surely_a_value(reason) and all(trial(one) is not None for one in samples):
                return dict.fromkeys(range(count), reason)
            reasons = refused(trial, listed, most)
            if not all(map(is_surely_a_value, reasons.values())):
                confirm(trial, reasons, count)
            return reasons


def by_others(views: Sequence[str]) -> str:
    """Return which view behind the table refused a block, and what a person does, as a clause."""
    takes = "the table itself takes each of its messages"
    if not views:
        return f"{takes} now: if its rule was corrected, --retry it"
    refuse = "a view behind it refuses" if len(views) == 1 else "one of the views behind it refuses"
    return (
        f"{takes} and may have them, but {refuse} ({', '.join(views)}): correct the view, or the "
        "rule of the table that it writes to, then --retry it, and the views get what they lack"
    )


def rows_of(rows: pa.RecordBatch, listed: MessageRows, messages: Indexes) -> pa.RecordBatch:
    """Return the rows of the messages with these indexes in `listed`, which ascend."""
    ends = listed.ends
    first, last = int(messages[0]), int(messages[-1])
    start = int(ends[first] - listed.rows[first])
    stretch = rows.slice(start, int(ends[last]) - start)
    if last - first == len(messages) - 1:
        return stretch
    wanted = np.isin(np.arange(first, last + 1), messages)
    return stretch.filter(pa.array(np.repeat(wanted, listed.rows[first : last + 1])))
