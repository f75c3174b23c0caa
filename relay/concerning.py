"""Which transaction, and which blocks, the next log lines concern.

Receives the effects of a relay before and after they are performed; every line that its
thread writes in between, librdkafka's included, carries what is said here.
"""

from __future__ import annotations

from relay.core import effects as ef
from relay.log import about

_SHOWN = 10
"""Block ids on a line; their number is there in any case."""


class Concerning:
    """Of one relay.

    Args:
        transactional_id: its transactions are named after it, and counted from its start.
    """

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self._begun = 0

    def before(self, effect: ef.Effect) -> None:
        """It is about to be performed."""
        match effect:
            case ef.Begin():
                self._begun += 1
                about(transaction=self._name())
            case ef.Produce(seals):
                ids = [seal.block_id for seal in seals[:_SHOWN]]
                about(transaction=self._name(), sealing=len(seals), blocks=ids)

    @staticmethod
    def after(effect: ef.Effect) -> None:
        """It was performed: these end a transaction."""
        if isinstance(effect, ef.Commit | ef.Abort | ef.Replace):
            about()

    def _name(self) -> str:
        return f"{self._transactional_id}/{self._begun}"
