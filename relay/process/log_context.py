"""Which transaction, and which blocks, the next log lines concern.

Receives the effects of a relay before and after they are performed; every line that its
thread writes in between, librdkafka's included, carries what is said here.
"""

from __future__ import annotations

from collections.abc import Callable

from relay.core import effects as ef
from relay.log import about

_SHOWN = 10
"""Block ids on a line; their number is there in any case."""


class Concerning:
    """Add the transaction and its blocks to one relay's log lines.

    Args:
        transactional_id: its transactions are named after it, and counted from its start.
        of_partition: the id of one that has a source partition's.
    """

    def __init__(
        self, transactional_id: str, of_partition: Callable[[int], str] = lambda _: ""
    ) -> None:
        self._transactional_id, self._of_partition = transactional_id, of_partition
        self._begun = 0

    def before(self, effect: ef.Effect) -> None:
        """Note an effect that is about to be performed."""
        match effect:
            case ef.Begin(_, partition):
                self._begun += 1
                if partition is not None:
                    self._transactional_id = self._of_partition(partition)
                about(transaction=self._name())
            case ef.Produce(seals):
                ids = [seal.block_id for seal in seals[:_SHOWN]]
                about(transaction=self._name(), sealing=len(seals), blocks=ids)

    @staticmethod
    def after(effect: ef.Effect) -> None:
        """Note an effect that was performed, which may end the transaction."""
        if isinstance(effect, ef.Commit | ef.Abort | ef.Replace):
            about()

    def _name(self) -> str:
        return f"{self._transactional_id}/{self._begun}"
