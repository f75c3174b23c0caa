"""Reads the last records of every journal partition, and goes on from there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from confluent_kafka import TopicPartition

from relay.config.settings import Settings
from relay.kafka.partition_reader import PartitionReader
from relay.operate.verify.read.journal import Reader
from relay.operate.verify.rounds import ENDS_SECONDS
from relay.operate.view import journal_lines, start
from relay.operate.view.journal_lines import JournalLine

_OFFSETS_EACH = 3  # a record, its transaction's marker, and one that was aborted


class Tail:
    """The journal's end.

    Raises (every method):
        ConfigError: the app has no journal.
        Unavailable: the brokers did not answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader: Reader | None = None
        self._grown = time.monotonic()

    def last(self, most: int) -> list[JournalLine]:
        """Return the last so many records of each partition, in order of their writing."""
        offsets = most * _OFFSETS_EACH
        while True:
            unread: set[int] = set()
            self._reader = self._begun(offsets, unread)
            found = journal_lines.last(map(JournalLine._make, self._reader.records()), most)
            if journal_lines.enough(found, unread, most):
                entries = itertools.chain(*found.values())
                return sorted(entries, key=lambda entry: (entry.commit.written_at_ms, entry[:2]))
            self._reader.close()
            offsets *= 8

    def more(self) -> Iterator[JournalLine]:
        """Yield what is visible now and was not given yet."""
        assert self._reader is not None, "last() comes first"
        if time.monotonic() - self._grown > ENDS_SECONDS:
            self._grown = time.monotonic()
            self._reader.grow()
        yield from map(JournalLine._make, self._reader.records())

    def close(self) -> None:
        """Let go of the consumer."""
        if self._reader is not None:
            self._reader.close()

    def _begun(self, offsets: int, unread: set[int]) -> Reader:
        near = start.last(offsets)

        def noting(consumer: PartitionReader, place: TopicPartition, low: int, high: int) -> int:
            first = near(consumer, place, low, high)
            if first > low:
                unread.add(place.partition)
            return first

        reader = Reader(self._settings, noting)
        reader.grow()
        return reader
