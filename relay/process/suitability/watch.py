"""Watches a relay's dead letters while it runs: which are logged, and whether the relay stops.

Receives what each transaction's buffers became; the decisions are relay.process.suitability.brake's
and relay.process.suitability.first_dead_letters's, here the servers are asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from relay.blocks.dead_letter import RecordPlace
from relay.blocks.form_block import BlockFacts, DeadMessage, Formed, grouped
from relay.config.settings import Settings
from relay.core.state import Seal
from relay.intake import sample
from relay.intake.buffers import Held
from relay.intake.foreign_formats import explained
from relay.names import NO_TABLE
from relay.process.suitability.brake import ENOUGH, Brake
from relay.process.suitability.first_dead_letters import FirstDeadLetters
from relay.process.suitability.past_rows import ever_good
from relay.program.waiting import ServerWait
from relay.rows.codecs_of_tables import TableCodecs
from relay.rows.decode import decode
from relay.rows.row_bound import RowBound
from relay.schema.dead_reason import DeadReason

log = logging.getLogger(__name__)


def with_likeness(table: str, formed: Formed, held: Held) -> Formed:
    """Return the same, each dead letter's reason with what its message looks like."""
    unnamed = table == NO_TABLE
    dead = [
        DeadMessage(
            offset,
            explained(reason, held.value(offset), held.origin(offset).headers if unnamed else None),
        )
        for offset, reason in formed.dead
    ]
    return replace(formed, dead=dead, facts=replace(formed.facts, dead_groups=grouped(dead)))


class Suitability:
    """Whether the source suits the app, as one relay process sees it."""

    def __init__(self, settings: Settings, tables: TableCodecs, wait: ServerWait) -> None:
        self._settings, self._tables, self._wait = settings, tables, wait
        self._brake = Brake(on=settings.source.all_dead == "stop")
        self._first = FirstDeadLetters(settings.source.topic)

    def begun(self) -> None:
        """Begin a transaction."""
        self._brake.begun()
        self._first.begun()

    def formed(self, seal: Seal, facts: BlockFacts) -> None:
        """Note what a sealed buffer became."""
        letters = ((RecordPlace(seal.partition, of.offset), of.reason) for of in facts.dead_groups)
        self._first.add(seal.table, letters)
        counts = ((group.reason, count) for group, count in facts.dead_groups.items())
        self._brake.add(facts.messages, seal.table, counts)

    def committed(self) -> None:
        """Note that the transaction is committed."""
        self._brake.committed()
        self._first.committed()

    def check(self, held: Collection[Held], before: Callable[[], None]) -> None:
        """Stop where nothing was ever good, before that is committed.

        Args:
            held: messages that wait in buffers for their own transaction.
            before: is called just before the error is raised.

        Raises:
            ConfigError: the source is not one of this relay.
        """
        if not self._brake.due:
            return
        good = (
            self._wait(lambda: ever_good(self._settings))
            or self._wait(lambda: self._is_any_held_good(held))
            or self._wait(self._is_any_good)
        )
        if good:
            self._brake.release()
            return
        before()
        raise self._brake.error(self._settings.source.topic)

    def _is_any_held_good(self, held: Collection[Held]) -> bool:
        """Return whether a message is good that was read, and waits as its table is quiet."""
        self._tables.resolve_visible({buffer.table for buffer in held})
        source = self._settings.source
        for buffer in held:
            codec = self._tables.codec(buffer.table)
            if isinstance(codec, DeadReason):
                continue
            bound = RowBound(codec.row_bytes, self._settings.block.max_decoded_bytes)
            decoding = codec, source.framing, source.unknown_fields, bound
            if decode(buffer.column(), *decoding).messages:
                return True
        return False

    def _is_any_good(self) -> bool:
        """Return whether a message elsewhere is good: a partition may hold only a neighbour's."""
        by_table = sample.by_table(sample.sample(self._settings, ENOUGH))
        self._tables.resolve_visible(by_table.keys())
        return any(
            problem is None
            for table, messages in by_table.items()
            for _, problem in sample.judged(messages, self._tables.codec(table), self._settings)
        )
