"""What is to be inserted for a block, before it is claimed: its rows, or what a transform makes.

Receives an attempt, gives how many rows and by which version; the rows themselves stay with the
attempt until its INSERT. Without a transform nothing is read: rows go through as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loader import plan
from loader.fetch import Damaged
from loader.fitting import fitted
from loader.transform import CannotTransform, Transforms
from relay.errors import Unavailable

if TYPE_CHECKING:
    from loader.attempt import Attempt
    from loader.fetch import Fetcher
    from relay.settings import Loader


def transforms(settings: Loader) -> Transforms:
    """Those that the settings name, none of them loaded yet."""
    overrides = {name: one.transform for name, one in settings.tables.items()}
    return Transforms(settings.transform, overrides)


class Maker:
    """Transforms blocks in one process, with its consumer."""

    def __init__(self, settings: Loader, fetcher: Fetcher) -> None:
        self._transforms, self._fetcher = transforms(settings), fetcher
        self._stamp = settings.block_column

    def makes(self, table: str) -> bool:
        """Whether a transform makes the table's rows."""
        return bool(self._transforms.name(table))

    def make(self, attempt: Attempt) -> plan.Made | plan.Failed | plan.Impossible:
        """What a claim of this attempt says of its rows.

        Raises:
            Refused: the transform cannot be imported here, or is not deterministic.
        """
        block, run, target = attempt.block, attempt.run, attempt.target
        if run.human in {"loaded", "discard"}:
            return plan.Made(block.rows, plan.NOTHING_MADE)
        transform = self._transforms.of(block.table)
        if transform is None or target is None:
            return plan.Made(block.rows, "")
        try:
            rows = self._fetcher.fetch(block, attempt.ahead)
            made = self._transforms.made(transform, block.table, rows)
            attempt.made = fitted(made, rows, target.columns, self._stamp)
        except (Damaged, CannotTransform) as error:
            return plan.Impossible(str(error))
        except Unavailable as error:
            return plan.Failed(error.message)
        return plan.Made(attempt.made.num_rows, transform.version)
