"""What the loader's driver tells observers. This one receives every event and does nothing.

It is what a loader has without `--http`. Calls come once per micro-batch, round or try.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loader.blocks.attempt import Outcome
from relay.records_pb2 import Block


class LoaderObserver:
    """Receive what just happened, a method for each event; none raises."""

    def found(self) -> None:
        """Note that the servers have answered all that is asked before the query begins."""

    def engine(self, executors: Callable[[], int] | None) -> None:
        """Note that Spark has started; `executors` counts the registered ones; None: not needed."""

    def began(self, known: int, blocks: Sequence[Block]) -> None:
        """Begin a micro-batch: `known` blocks are settled already, these are not."""

    def attempted(
        self, outcomes: Sequence[Outcome], blocks: Mapping[str, Block], seconds: float
    ) -> None:
        """Note that a round of attempts has come back; `blocks` by id."""

    def aside(self, block: Block) -> None:
        """Note that a block of the micro-batch was set aside."""

    def tried_again(self, outcomes: Sequence[Outcome], blocks: Mapping[str, Block]) -> None:
        """Note that blocks that stood aside were tried, beside the micro-batch; `blocks` by id."""

    def asked(self, seconds: float) -> None:
        """Note that the ledger has answered the driver."""

    def waiting(self, why: str) -> None:
        """Note that the loader waits, then tries again. Called once per try."""

    def settled(self, seconds: float) -> None:
        """Note that the micro-batch has ended, each of its blocks settled."""

    def restarted(self) -> None:
        """Note that Spark's query is started again."""

    def query_event(self, event: str, progress: Any = None) -> None:
        """Note an event: "started", "progress" (with its figures), "idle" or "terminated"."""


NOTHING = LoaderObserver()
