"""What is to be inserted for a block, before it is claimed: its rows, or what is made of them.

Receives an attempt, gives how many rows and by which version; the rows themselves stay with the
attempt until its INSERT. Where nothing is made of them nothing is read: rows go through as they
are. A transform may make others of them, and messages that the table refuses are left out.
"""

from __future__ import annotations

import pyarrow as pa

from loader.blocks.attempt import Attempt
from loader.blocks.fetch import Damaged, Fetcher
from loader.blocks.fit_columns import fitted
from loader.blocks.transform import CannotTransform, Transforms
from loader.clickhouse.client import TableRefused
from loader.clickhouse.tables import Target
from loader.clickhouse.unseen_columns import GRANT, unseen
from loader.core import left_out, plan
from relay.blocks import message_rows
from relay.blocks.message_rows import MessageRows
from relay.clickhouse.errors import About
from relay.config.settings import Loader
from relay.errors import Unavailable
from relay.records_pb2 import Block


def transforms(settings: Loader) -> Transforms:
    """Return those that the settings name, none of them loaded yet."""
    overrides = {name: one.transform for name, one in settings.tables.items()}
    return Transforms(settings.transform, overrides)


class Maker:
    """Make the rows of blocks in one process, with its consumer."""

    def __init__(self, settings: Loader, fetcher: Fetcher) -> None:
        self._transforms, self._fetcher = transforms(settings), fetcher
        self._stamp, self._dead = settings.block_column, settings.rejected == "dead"

    def makes(self, table: str) -> bool:
        """Return whether a transform makes the table's rows."""
        return bool(self._transforms.name(table))

    def make(self, attempt: Attempt) -> plan.Made | plan.NoAnswer | plan.Rejected | plan.Impossible:
        """Return what a claim of this attempt says of its rows.

        Raises:
            Refused: the transform cannot be imported here.
        """
        block, run, target = attempt.block, attempt.run, attempt.target
        if run.human in {"loaded", "discard", "dead"}:
            return plan.Made(left_out.rows(block), plan.NOTHING_MADE)
        transform = self._transforms.of(block.table)
        if target is None or (transform is None and not block.left_out):
            return plan.Made(left_out.rows(block), "")
        try:
            rows, listed = self.read(attempt)
            if block.left_out:
                rows = rows.filter(pa.array(left_out.kept(block, listed)))
                if listed is not None:  # else `kept` has said so
                    block = attempt.block = left_out.with_rows(block, listed)
            attempt.made = self.of(block, rows, target)
        except CannotTransform as error:
            return (plan.Rejected if attempt.divisible else plan.Impossible)(str(error))
        except (Damaged, ValueError) as error:
            return plan.Impossible(str(error))
        except Unavailable as error:
            return plan.NoAnswer(error.message, About.SERVER)
        except TableRefused as error:  # other tables' blocks are claimed together with this one
            return plan.NoAnswer(error.message, About.TABLE)
        version = "" if transform is None else transform.version
        return plan.Made(attempt.made.num_rows, left_out.version(version, block))

    def read(self, attempt: Attempt) -> tuple[pa.RecordBatch, MessageRows | None]:
        """Return the rows as they were sealed, and whose they are; None where unknown.

        Raises:
            Damaged, Unavailable, Refused: as Fetcher.fetch.
            ValueError: what it says is damaged.
        """
        rows = self._fetcher.fetch(left_out.source(attempt.block), attempt.ahead)
        listed = self._fetcher.messages
        attempt.divisible = left_out.is_divisible(attempt.block, listed, dead=self._dead)
        return rows, message_rows.decode(listed) if listed else None

    def of(self, block: Block, rows: pa.RecordBatch, target: Target) -> pa.RecordBatch:
        """Return what the table's transform makes of these rows of the block, if it has one.

        Raises:
            CannotTransform, TableRefused: as Transforms.made; the latter also where this user has
                no right on a column that it returned.
            Refused: the transform cannot be imported here.
        """
        transform = self._transforms.of(block.table)
        if transform is None:
            return rows
        made = self._transforms.made(transform, block.table, rows)
        try:
            return fitted(made, rows, target.columns, self._stamp)
        except CannotTransform as error:
            if reason := unseen(block.table, target, made.schema.names):
                raise TableRefused(reason, GRANT) from error
            raise
