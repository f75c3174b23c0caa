"""Asks the servers for what an operator wants to see, and gives it to the pure modules.

Without ClickHouse, what Kafka says is shown all the same. Never writes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping

from relay import names
from relay.blocks.placement import place
from relay.config.settings import Settings
from relay.errors import ConfigError, Refused, Unavailable
from relay.kafka.topics import READ, Topics
from relay.operate.verify.audit import audit_of
from relay.operate.verify.read.journal import Begin, Reader, from_the_start
from relay.operate.verify.read.topic import TopicReader, rows_of
from relay.operate.view import block_story
from relay.operate.view import start as view_start
from relay.operate.view.block_story import Chunks, Landed, Story
from relay.operate.view.clickhouse_state import LandedBlocks
from relay.operate.view.facts import HiddenMessages, LedgerFacts, StatusFacts
from relay.operate.view.group import GroupReader
from relay.operate.view.journal_state import JournalState, Listed
from relay.operate.view.ledger_looks import LedgerLooks
from relay.operate.view.oldest_unread import OldestUnread
from relay.operate.view.status import Screen, assemble


class StatusReader:
    """The screen, again and again; what was read is not read again.

    Args:
        settings: of the app.
        offsets: how far back in each journal partition to begin; 0: at its start. Further back
            where blocks are not loaded yet.
        lasting: as of relay.kafka.group_queries.

    Raises (every method):
        Unavailable: the brokers did not answer.
        Refused: they answered no.
    """

    def __init__(
        self, settings: Settings, offsets: int = view_start.RECORDS, *, lasting: bool = False
    ) -> None:
        self._settings, self._offsets, self._lasting = settings, offsets, lasting
        self._group, self._topics = GroupReader(settings, lasting=lasting), Topics(settings)
        self._oldest = OldestUnread(settings)
        self._first_hidden = OldestUnread(settings, uncommitted=True)
        self._ledger = LedgerLooks(lambda: LandedBlocks(settings))
        self._journal_id = ""
        self._begin()

    def _begin(self) -> None:
        self._reader: Reader | None = None
        self._seen = JournalState()
        self._audit = audit_of(self._settings)
        self._needed: dict[int, int] | None = None

    def screen(self) -> Screen:
        """Read the screen as it is now."""
        group = self._group.read()
        journal = self._topics.describe(names.journal_topic(self._settings.app), (READ,))
        ends: dict[int, int] = {}
        open_ends: dict[int, int] = {}
        if journal is not None:
            self._journal_id = journal.topic_id
            ends, open_ends = self._read()
        facts = StatusFacts(
            app=self._settings.app,
            source=self._settings.source.topic,
            now_ms=time.time_ns() // 1_000_000,
            journal=journal is not None,
            group=group,
            ends=ends,
            ledger=self._ask_clickhouse(),
            audited=self._audit.totals.records,
            anomalies=tuple(self._audit.open()),
            acknowledged=tuple(self._audit.acknowledged),
            unread_ms=self._oldest.written_ms(self._unread(ends)),
            hidden=self._hidden(ends, open_ends),
            silent=self._silent(),
        )
        return assemble(self._seen, facts)

    def _hidden(
        self, ends: Mapping[int, int], open_ends: Mapping[int, int]
    ) -> dict[int, HiddenMessages]:
        """What of each source partition lies behind a transaction that is open."""
        stretches = {p: (end, open_ends[p]) for p, end in ends.items() if end < open_ends[p]}
        since_ms = self._first_hidden.written_ms(stretches)
        return {
            p: HiddenMessages(last - first, since_ms.get(p) or None)
            for p, (first, last) in stretches.items()
        }

    def _unread(self, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """What of each source partition lies behind what was polled."""
        stretches = {p: (head.position, ends.get(p, 0)) for p, head in self._seen.heads.items()}
        return {p: stretch for p, stretch in stretches.items() if stretch[0] < stretch[1]}

    def _silent(self) -> dict[tuple[str, int], str]:
        silent = {} if self._reader is None else self._reader.silent
        return {place: error.message for place, error in silent.items()}

    def close(self) -> None:
        """Let go of the consumers, and of what asks about the group."""
        self._oldest.close()
        self._first_hidden.close()
        self._group.close()
        if self._reader is not None:
            self._reader.close()

    def _read(self) -> tuple[dict[int, int], dict[int, int]]:
        """The journal's next records into what was seen; the source's ends before that."""
        if self._reader is None:
            with contextlib.suppress(Unavailable, Refused):  # said by _ask_clickhouse
                self._needed = self._ledger.positions(self._journal_id)
            where = view_start.last(self._offsets, self._needed)
            self._reader = Reader(self._settings, where, lasting=self._lasting)
        reader = self._reader
        reader.grow()
        source = self._topics.describe(self._settings.source.topic, (READ,))
        ends = ({}, {}) if source is None else reader.source_ends()
        committed = reader.committed()
        self._audit.begin_round(committed)
        records = reader.records(self._audit.note_deleted, self._audit.foreign)
        for partition, offset, commit in records:
            self._seen.add(partition, offset, commit)
            self._audit.record(partition, offset, commit)
        now = time.monotonic()
        # Of a partition without a record among those read, nothing can be said.
        known = {p: entry for p, entry in committed.items() if p in self._seen.heads}
        self._audit.committed(known, now)
        self._audit.ends(*reader.ends(), now)
        return ends

    def _ask_clickhouse(self) -> LedgerFacts:
        try:
            positions = self._ledger.positions(self._journal_id)
            if self._reader is not None and self._needed is None:  # it was away at first
                self.close()
                self._begin()
                self._read()
            self._seen.settle(positions, ())
            tables = {name: listed.block.table for name, listed in self._seen.open.items()}
            facts = self._ledger.facts(tables, self._journal_id)
        except (Unavailable, Refused) as error:
            return LedgerFacts(problem=error.message)
        done = [block for block, state in facts.states.items() if state in block_story.FINAL]
        self._seen.settle({}, done)
        return facts


def listed(settings: Settings, where: Begin = from_the_start) -> Generator[Listed]:
    """Yield blocks of the journal from there on, partition by partition in order of sealing.

    Raises:
        ConfigError: the app has no journal.
        Unavailable: the brokers did not answer.
    """
    with contextlib.closing(Reader(settings, where)) as reader:
        reader.grow()
        for partition, offset, commit in reader.records():
            for block in commit.blocks:
                yield Listed(block, partition, offset, commit)


def ledger(settings: Settings, tables: set[str]) -> dict[str, str]:
    """Return the ledger's states of the blocks of these tables, by block id.

    Raises:
        Unavailable, Refused: as ClickHouse answers.
    """
    landed = LandedBlocks(settings)
    return {block: h.state for table in tables for block, h in landed.ledger(table).items()}


def story_of(settings: Settings, text: str, journal_offset: int = 0) -> Story:
    """Return all that is known of a block, by its id; its record is looked for from there on.

    Raises:
        ConfigError: it is no block of this app, or nobody knows it.
        Unavailable: the brokers did not answer.
    """
    try:
        name = names.BlockId.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), "`relay blocks ls` shows block ids") from error
    if name.app != settings.app:
        raise ConfigError(
            f"{text} is a block of app {name.app}",
            f"name the configuration of that app; this one is of app {settings.app}",
        )
    where = view_start.only(name.partition, journal_offset)
    with contextlib.closing(listed(settings, where)) as blocks:
        found = next((entry for entry in blocks if entry.block.id == text), None)
    chunks = None if found is None else _chunks(settings, found)
    landed: Landed | None = None
    problem = ""
    try:
        landed = LandedBlocks(settings).landed(text, name.table)
    except (Unavailable, Refused) as error:
        problem = error.message
    if found is None and landed is not None and not (landed.ledger or landed.rows):
        raise ConfigError(
            f"block {text} is not known: no retained journal record, ledger entry or table has it",
            "`relay blocks ls` shows block ids",
        )
    return Story(text, found, chunks, landed, problem)


def _chunks(settings: Settings, entry: Listed) -> Chunks:
    block = entry.block
    with contextlib.closing(TopicReader(settings)) as reader:
        start, end = reader.bounds(*place(block))
        first = max(start, block.first_offset)
        messages = reader.read(*place(block), first, min(end, block.next_offset))
        records = (
            (
                message.offset() or 0,
                (message.key() or b"").decode(errors="replace"),
                rows_of(message),
                message.value() or b"",
            )
            for message in messages
        )
        return block_story.chunks_of(entry, start, records)
