"""Counts what the open transaction holds, and adds it to the totals on commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from relay.blocks.form_block import BlockFacts
from relay.core import effects as ef
from relay.core import events as ev
from relay.core.records import JournalRecord, SealResult
from relay.core.state import RelayState, Seal
from relay.program.metric import Bounded, Labelled


class OpenTransaction:
    """Blocks, rows and dead letters of one relay's open transaction."""

    def __init__(self, metrics: Labelled, table: Bounded, wall_ms: Callable[[], int]) -> None:
        self._m = metrics
        self._table = table
        self._wall_ms = wall_ms
        self._results: tuple[SealResult, ...] = ()
        self._records: tuple[JournalRecord, ...] = ()
        self._dead: Counter[tuple[str, str]] = Counter()
        self._unknown: Counter[str] = Counter()

    def begin(self) -> None:
        """Begin another transaction: forget what the last one held and did not commit."""
        self._results, self._records = (), ()
        self._dead.clear()
        self._unknown.clear()

    def formed(self, seal: Seal, facts: BlockFacts) -> None:
        """Note that a buffer is a block and dead letters now."""
        table = self._table(seal.table)
        for group, count in facts.dead_groups.items():
            self._dead[table, group.reason.kind.value] += count
        for count in facts.unknown.values():
            self._unknown[table] += count

    def produced(self, event: ev.Produced, effects: Sequence[ef.Effect]) -> None:
        """Note that all of them are acknowledged."""
        self._results = event.results
        journals = (effect for effect in effects if isinstance(effect, ef.WriteJournal))
        self._records = tuple(record for journal in journals for record in journal.records)

    def committed(self, before: RelayState, event: ev.Committed) -> None:
        """Add them to what everybody sees."""
        m, blocks, rows = self._m, 0, 0
        for result in self._results:
            blocks += result.block is not None
            rows += self._block(before.now_ms, result)
        for (table, reason), count in self._dead.items():
            m["relay_dead_letters_total"].labels(table, reason).inc(count)
        for table, count in self._unknown.items():
            m["relay_unknown_field_messages_total"].labels(table).inc(count)
        m["relay_transaction_blocks"].observe(blocks)
        m["relay_transaction_rows"].observe(rows)
        m["relay_transaction_partitions"].observe(len(self._records))
        m["relay_journal_records_total"].inc(len(self._records))
        for record in self._records:
            if record.flush_point:
                m["relay_flush_points_total"].labels(record.partition).inc()
        if not event.clean:
            m["relay_commits_in_doubt_total"].inc()

    def _block(self, sealed_at_ms: int, result: SealResult) -> int:
        """Count a committed block; return its rows."""
        seal, block, m = result.seal, result.block, self._m
        if block is None:
            return 0
        table, reason = self._table(seal.table), seal.reason.value
        where = (table, seal.partition)
        m["relay_messages_committed_total"].labels(*where).inc(block.messages)
        m["relay_rows_committed_total"].labels(*where).inc(block.rows)
        m["relay_row_bytes_committed_total"].labels(*where).inc(block.row_bytes)
        m["relay_blocks_committed_total"].labels(table, reason).inc()
        if block.share is None or not block.share.first_row:  # else counted with the first
            m["relay_chunks_committed_total"].labels(table).inc(block.chunks)
        m["relay_block_rows"].labels(reason).observe(block.rows)
        m["relay_block_bytes"].labels(reason).observe(block.row_bytes)
        m["relay_block_messages"].labels(reason).observe(block.messages)
        age = sealed_at_ms - seal.buffer.opened_at_ms
        m["relay_block_age_seconds"].labels(reason).observe(age / 1000)
        made_ms = seal.buffer.first_timestamp_ms
        if made_ms > 0:  # else the record has no time
            m["relay_commit_lag_seconds"].observe(max(0, self._wall_ms() - made_ms) / 1000)
        return block.rows
