"""Finds the messages of a claimed block that its table refuses, and has the block leave them out.

Receives an attempt whose INSERT was refused for its rows, gives loader.core.plan's answer; the
attempt's block names the messages then. loader.core.bad_messages decides where to look,
loader.blocks.scratch_table tries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from loader.blocks.fetch import Damaged
from loader.blocks.scratch_table import NoScratch, like
from loader.blocks.transform import CannotTransform
from loader.core import left_out, plan
from loader.core.bad_messages import MOST, TableRefusal, TooMany, refused
from relay.blocks.message_rows import MessageRows
from relay.failpoints import reached

if TYPE_CHECKING:
    from clickhouse_connect.driver.httpclient import HttpClient

    from loader.blocks.attempt import Attempt
    from loader.blocks.made_rows import Maker
    from loader.core.bad_messages import Indexes


class Isolator:
    """Of one process.

    Args:
        client: of ClickHouse.
        database: the ledger's, where tables to try on are made.
        maker: makes the rows of blocks.
        stamp: name of the block-id column.
    """

    def __init__(self, client: HttpClient, database: str, maker: Maker, stamp: str) -> None:
        self._client, self._database = client, database
        self._maker, self._stamp = maker, stamp

    def isolate(self, attempt: Attempt, reason: str) -> plan.Answer:
        """Name in the attempt's block the messages that the table refuses.

        Args:
            attempt: whose INSERT was refused.
            reason: why.

        Raises:
            Unavailable, Refused: as the loader's other questions.
        """
        block = attempt.block
        try:
            rows, listed = self._maker.read(attempt)
            if listed is None or not attempt.divisible:
                return plan.Impossible(reason)
            kept = left_out.inserted(block, listed)
            left = MessageRows(listed.offsets[kept], listed.rows[kept])
            rows = rows.filter(pa.array(left_out.kept(block, listed)))
            found = self._refused(attempt, rows, left)
        except TooMany:
            return plan.Impossible(
                f"{reason}; the table also refuses more than {MOST:,} of its messages one by one"
            )
        except NoScratch as error:
            return plan.Impossible(
                f"{reason}; the block's messages cannot be tried one by one: {error}"
            )
        except (Damaged, ValueError) as error:
            return plan.Impossible(str(error))
        if not found:
            return plan.Impossible(f"{reason}; the table accepts each of its messages one by one")
        if len(found) == len(left.offsets):
            return plan.Impossible(
                f"{reason}; the table also refuses each of its messages one by one"
            )
        named = [*block.left_out, *left_out.messages(left, found)]
        attempt.block = left_out.without(block, sorted(named, key=lambda one: one.offset))
        reached("messages_isolated")
        return plan.Ok()

    def _refused(
        self, attempt: Attempt, rows: pa.RecordBatch, listed: MessageRows
    ) -> dict[int, str]:
        """Why, by index in `listed`, of the messages that a table like the block's refuses."""
        block, target = attempt.block, attempt.target
        assert target is not None
        with like(self._client, self._database, block, target, self._stamp) as takes:

            def trial(messages: Indexes) -> TableRefusal | None:
                try:
                    made = self._maker.of(block, rows_of(rows, listed, messages), target)
                except CannotTransform as error:
                    return TableRefusal(str(error))
                return takes(made) if made.num_rows else None

            return refused(trial, listed)


def rows_of(rows: pa.RecordBatch, listed: MessageRows, messages: Indexes) -> pa.RecordBatch:
    """Return the rows of these messages.

    Args:
        rows: of all that are listed.
        listed: whose the rows are.
        messages: indexes in `listed`, ascending.
    """
    ends = listed.ends
    first, last = int(messages[0]), int(messages[-1])
    start = int(ends[first] - listed.rows[first])
    stretch = rows.slice(start, int(ends[last]) - start)
    if last - first == len(messages) - 1:
        return stretch
    wanted = np.isin(np.arange(first, last + 1), messages)
    return stretch.filter(pa.array(np.repeat(wanted, listed.rows[first : last + 1])))
