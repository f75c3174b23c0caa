"""Decides what a replay does with each dead letter: send it, refuse it, or skip it as done.

Pure: it knows no client and no clock.

A dead letter is replayed at most once for ever. If its message becomes a dead letter again,
that is another one, with coordinates and a mark of its own.
"""

# pure

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from relay import names
from relay.blocks.dead_letter import DeadLetter, Headers, RecordPlace
from relay.kafka.record_limits import ROOM, record_bytes

BATCH_MESSAGES = 1_000
BATCH_BYTES = 8_000_000
"""Limits of one transaction: readers of the source topic wait while it is open."""
_HEADER_ROOM = 10
"""Bytes that the lengths of a header's name and value take at most."""


@dataclass(frozen=True, slots=True)
class ReplayMark:
    """That a dead letter was replayed, written in the transaction that did it.

    Attributes:
        dead: the dead letter's place.
        source: the source message that it had been.
        replayed: the source message that it is now.
        table: in the replayed message's header.
        at_ms: Unix milliseconds, shown only.
        letter_table: the dead letter's; None where an earlier version wrote the mark.
    """

    dead: RecordPlace
    source: RecordPlace
    replayed: RecordPlace
    table: str
    at_ms: int
    letter_table: str | None = None

    def encode(self) -> bytes:
        """Return its record's value."""
        fields = {
            "dead": str(self.dead),
            "source": str(self.source),
            "replayed": str(self.replayed),
            "table": self.table,
            "at_ms": self.at_ms,
            "letter_table": self.letter_table,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, value: bytes) -> ReplayMark:
        """Return the reverse.

        Raises:
            ValueError: no mark.
        """
        try:
            fields = json.loads(value)
            dead, source, replayed = (
                RecordPlace.parse(fields[name]) for name in ("dead", "source", "replayed")
            )
            of_letter = fields.get("letter_table")
            return cls(dead, source, replayed, fields["table"], fields["at_ms"], of_letter)
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"not the mark of a replay: {value[:80]!r}") from problem


def mark_key(dead_topic_id: str, dead: RecordPlace) -> bytes:
    """Return key of a mark's record: tells dead letter topics of the same name apart, made anew."""
    return f"{dead_topic_id}/{dead}".encode()


@dataclass(frozen=True, slots=True)
class ReplayMessage:
    """A source message to be sent again, to the partition that it came from."""

    letter: DeadLetter
    table: str
    headers: Headers

    @property
    def key(self) -> bytes | None:
        """The source message's."""
        return self.letter.origin.key if self.letter.origin else None

    @property
    def batch_bytes(self) -> int:
        """Return bytes that suffice for a record batch of this message alone."""
        size = record_bytes(self.letter.value, self.key, self.headers)
        return size + _HEADER_ROOM * len(self.headers) + ROOM


class Why(Enum):
    """Why a dead letter that was meant is not sent."""

    DONE = "already replayed"
    NO_TABLE = (
        "it names no table and would become a dead letter again; name the table with --as-table"
    )
    LEFT_OUT = "the message is only in the source topic: raise the topics' limits, then rewind"
    READ_AGAIN = (
        "a rewind had the message read again since: it is a row by now, or another dead letter; "
        "--despite-rewinds sends it all the same"
    )
    PERHAPS_READ_AGAIN = (
        "the journal no longer says whether a rewind had the message read again: look with "
        "`relay dead show PLACE` for its rows in the table, and send those that are missing with "
        "`relay dead replay PLACE --despite-rewinds --run`"
    )
    OTHER_SOURCE = "it came from another source topic than source.topic"
    TOO_LARGE = "the source topic does not accept so large a message"


@dataclass(slots=True)
class ReplayTally:
    """What a replay did, or would do."""

    sent: int = 0
    bytes: int = 0
    left: dict[Why, int] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    too_large: dict[RecordPlace, int] = field(default_factory=dict)
    """Bytes that each message needs which the source topic refused, by its letter."""

    def take_back(self, message: ReplayMessage, why: Why) -> None:
        """Count a message as left out that was counted as sent."""
        self.sent -= 1
        self.bytes -= message.letter.size
        self.tables[message.table] -= 1
        self.tables = {table: count for table, count in self.tables.items() if count}
        self.add(why)
        if why is Why.TOO_LARGE:
            self.too_large[message.letter.place] = message.batch_bytes

    def add(self, answer: ReplayMessage | Why) -> None:
        """Count one answer of `decide`."""
        if isinstance(answer, Why):
            self.left[answer] = self.left.get(answer, 0) + 1
            return
        self.sent += 1
        self.bytes += answer.letter.size
        self.tables[answer.table] = self.tables.get(answer.table, 0) + 1


def decide(
    letter: DeadLetter,
    marks: Mapping[RecordPlace, ReplayMark],
    source_topic: str,
    as_table: str | None = None,
    left_out: Callable[[DeadLetter], Why | None] = lambda _: None,
) -> ReplayMessage | Why:
    """Return the message to send for a dead letter that was meant, or why there is none.

    Args:
        letter: the dead letter.
        marks: of those replayed, by the dead letter's place.
        source_topic: of the app.
        as_table: instead of whatever the header `table` said.
        left_out: why a letter must wait, by what rewinds had read again.
    """
    if letter.place in marks:
        return Why.DONE
    if why := left_out(letter):
        return why
    if letter.source_topic != source_topic:
        return Why.OTHER_SOURCE
    if not letter.whole:
        return Why.LEFT_OUT
    table = as_table or letter.table
    if not table:
        return Why.NO_TABLE
    return ReplayMessage(letter, table, _headers(letter, as_table))


def _headers(letter: DeadLetter, as_table: str | None) -> Headers:
    """The original ones; with `as_table` each header `table` makes room for that one.

    The client library writes no name that is not UTF-8: such a one goes as it is shown.
    """
    if letter.origin is None:
        return [(names.TABLE_HEADER, (as_table or letter.table).encode())]
    sendable = [(names.shown_header(name), value) for name, value in letter.origin.headers]
    if as_table is None:
        return sendable
    others = [header for header in sendable if header[0] != names.TABLE_HEADER]
    return [*others, (names.TABLE_HEADER, as_table.encode())]


def batches(messages: Iterable[ReplayMessage]) -> Iterator[list[ReplayMessage]]:
    """Cut into what one transaction sends, in order; never empty."""
    batch: list[ReplayMessage] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == BATCH_MESSAGES or size + message.letter.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.letter.size
    if batch:
        yield batch
