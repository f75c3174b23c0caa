"""Learns from refusals how much a topic accepts; names the messages that are too large.

Receives refused records, gives the most that a record, or several that are sent together, may
weigh in their topics; receives a buffer's chunks, gives the messages whose rows no chunk can carry.
Pure: it knows no client.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

log = logging.getLogger(__name__)

ROOM = 1_000
"""Bytes of a record batch beside its one record's key, value and headers."""
CHUNK_ROOM = 1_000
"""Bytes of a chunk's record beside its value: the block's id and three short headers."""
Header = tuple[str, str | bytes | None]


def record_bytes(value: bytes | None, key: bytes | None, headers: Sequence[Header]) -> int:
    """Return what a record weighs: value, key, and its headers' names and values."""
    of_headers = sum(len(name) + len(content or b"") for name, content in headers)
    return len(value or b"") + len(key or b"") + of_headers


@dataclass
class SentTogether:
    """Records of one partition that may share a batch: none of them was waited for yet.

    Attributes:
        most: that they may weigh, each with ROOM; None: as much as the client puts into a batch.
    """

    most: int | None
    records: int = 0
    weight: int = 0

    def has_room(self, size: int) -> bool:
        """Return whether a record of this size may join them; one alone may have any size."""
        return self.most is None or not self.records or self.weight + size + ROOM <= self.most

    def add(self, size: int) -> None:
        """Count a record of this size, by `record_bytes`."""
        self.records += 1
        self.weight += size + ROOM


class RecordLimits:
    """What topics take, of those that refused a record, or a batch of several, for its size."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}
        self._together: dict[str, int] = {}
        self._told: dict[str, int | None] = {}
        self._before: set[str] = set()

    def most(self, topic: str) -> int | None:
        """Return the most that a record may weigh; None where none was refused."""
        return self._most.get(topic)

    def together(self, topic: str) -> int | None:
        """Return the most that records may weigh which are sent together; None: no batch failed."""
        return self._together.get(topic)

    def part(self, topic: str, weight: int) -> None:
        """Note that records which together weighed up to `weight` were refused.

        Half as much goes together from now on, until a record goes alone or all fit. So few wait
        for each other where a topic takes many small records, which one by one would outlast the
        transaction.
        """
        self._together[topic] = min(weight // 2, self._together.get(topic, weight))

    def refused(self, topic: str, size: int, limit: int | None, *, alone: bool) -> bool:
        """Note a record that was refused, as `learn`; return whether less is sent next time.

        `alone`: whether its batch held nothing else; if not, that was parted.
        """
        if (alone or limit is not None) and self.learn(topic, size, limit):
            extra = {"topic": topic, "bytes": size, "topic_takes": limit}
            log.error("the topic refused a record because of its size", extra=extra)
            return True
        return not alone

    def learn(self, topic: str, size: int, limit: int | None) -> bool:
        """Note a record that was refused; return whether it, by itself, is what is too large.

        `size`: of the record, by `record_bytes`. `limit`: the topic's own for a batch; None where
        the brokers do not say.
        """
        if limit is not None and topic in self._together:
            self._together[topic] = min(limit, self._together[topic])
            self._told[topic] = limit
        before = self._most.get(topic)
        if limit is not None and size <= limit - ROOM and (before is None or size <= before):
            return False  # it fits: the batch that it was sent in did not
        allowed = size - 1 if limit is None else max(1, min(size - 1, limit - ROOM))
        self._most[topic] = allowed if before is None else min(before, allowed)
        self._told[topic] = limit
        return before is None or allowed < before

    def halve(self, topic: str, size: int) -> None:
        """Note a record that would fit, but whose batch did not; until somebody looks again."""
        self._most[topic] = min(self._most.get(topic, size), size // 2)
        self._told.pop(topic, None)

    def first(self, topics: Collection[str]) -> set[str]:
        """Return those that refused nothing before: a limit may have been raised just now.

        Then what the brokers tell is not what the record was refused by, and it is sent once more.
        """
        first = set(topics) - self._before
        self._before |= first
        return first

    def known(self) -> tuple[str, ...]:
        """Return the topics that refused something for its size."""
        return tuple({**self._most, **self._together})

    def look_again(self, topic: str, limit: int | None) -> None:
        """Forget what was learned where a person has raised the topic's limit since."""
        before = self._told.get(topic)
        if limit is not None and (before is None or limit > before):
            self._most.pop(topic, None)
            self._together.pop(topic, None)
            self._before.discard(topic)


class Oversized(NamedTuple):
    """A message with a row that no chunk can carry."""

    message: int
    row: int
    bytes: int


def oversized(
    chunks: Sequence[tuple[bytes, int]], rows_of: Sequence[int] | Any, most: int
) -> list[Oversized]:
    """Return the messages to leave out, each with its first row that weighs more than `most`.

    `chunks`: value and rows of each, cut so that one that is too large has a single row. `rows_of`:
    of each message, 0 for one that has none among the chunks.
    """
    ends = np.cumsum(rows_of)
    by_message: dict[int, Oversized] = {}
    row = 0
    for value, rows in chunks:
        if len(value) + CHUNK_ROOM > most:
            message = int(np.searchsorted(ends, row, side="right"))
            within = row - int(ends[message] - rows_of[message]) + 1
            by_message.setdefault(message, Oversized(message, within, len(value)))
        row += rows
    return list(by_message.values())
