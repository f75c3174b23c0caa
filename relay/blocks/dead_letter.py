"""A dead letter: a source message that could not become rows, whole, with where and why.

Receives a source message's key, headers and coordinates with the reason, gives the headers of
its dead letter; and the other way round. The value stays the value. Pure text and bytes.

Headers, in this order: source_topic, source_partition, source_offset, table (empty where none
could be read), reason, kind, field (if the reason is about one); then source_key where the message
had a key, source_headers (how many it had), and each of them under its name behind `source.`; more
than MANY of them all in source_headers_packed, because librdkafka reads no header at all of a
record with more than 100,000, and a dead letter has some of its own. One that a loader wrote, as
the table refused its rows, has `block` as well: that of left out messages, of which it is one
(loader.core.left_out). Dead letters of early releases end at the reason: of them key and further
headers are not known. Those of releases before `kind` are of the kind UNKNOWN: no kind is guessed
from words. One that is larger than the topic takes has no value; source_value_bytes says how large
that is in the source topic.
"""

# pure

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relay import names
from relay.schema.dead_reason import DeadKind, DeadReason

Headers = Sequence[tuple[str, bytes | None]]
"""As Kafka has them: in order, names possibly repeated."""
SentHeaders = list[tuple[str, str | bytes | None]]

_REASON = "reason"
_KIND = "kind"
_FIELD = "field"
_KEY = "source_key"
_COUNT = "source_headers"
_PACKED = "source_headers_packed"
_LEFT_OUT = "source_value_bytes"
BLOCK = "block"
_PREFIX = "source."
REASON = 1_000
"""So much of a reason is left where the letter was too large."""
MANY = 1_000
_LENGTHS = struct.Struct(">ii")
"""Of a packed header's name and value, which follow; -1: the value is null."""


class Origin(NamedTuple):
    """What a source message had besides its value."""

    key: bytes | None
    headers: Headers


class RecordPlace(NamedTuple):
    """Of a record in its topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> RecordPlace:
        """Return the reverse of `str`.

        Raises:
            ValueError: not PARTITION:OFFSET.
        """
        partition, colon, offset = text.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal()):
            raise ValueError(f"{text!r} is not PARTITION:OFFSET, as in 0:17")
        return cls(int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of the dead letter topic.

    Attributes:
        place: of the dead letter itself; names it in commands.
        when_ms: Unix milliseconds, when it became a dead letter.
        value: of the source message.
        source: coordinates of the source message in `source_topic`.
        table: that its header named; empty where none could be read.
        origin: key and headers of the source message; None where they were not kept.
        whole: False where the message was too large for the topic: `value` is not its value.
        block: of left out messages, where a loader wrote it; empty where a relay did.
    """

    place: RecordPlace
    when_ms: int
    value: bytes | None
    source_topic: str
    source: RecordPlace
    table: str
    reason: DeadReason
    origin: Origin | None
    whole: bool = True
    block: str = ""

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.value or b"")


def headers_of(
    source_topic: str,
    source: RecordPlace,
    table: str,
    reason: DeadReason,
    origin: Origin,
    block: str = "",
) -> SentHeaders:
    """Return the headers of a dead letter."""
    headers = _always(source_topic, source, table, reason, block)
    if origin.key is not None:
        headers.append((_KEY, origin.key))
    headers.append((_COUNT, str(len(origin.headers)).encode()))
    # The client library writes no name that is not UTF-8.
    if len(origin.headers) > MANY or any(names.shown_header(n) != n for n, _ in origin.headers):
        headers.append((_PACKED, _pack(origin.headers)))
    else:
        headers += [(f"{_PREFIX}{name}", value) for name, value in origin.headers]
    return headers


def headers_without(
    source_topic: str,
    source: RecordPlace,
    table: str,
    reason: DeadReason,
    size: int,
    block: str = "",
) -> SentHeaders:
    """Return the headers of a letter too large for its topic; the rest stays behind."""
    text = (
        f"{reason.text[:REASON]}; with the whole message the dead letter would be larger than its "
        f"topic accepts, so the message (a value of {size:,} bytes) is only in the source topic, "
        "until retention deletes it"
    )
    headers = _always(source_topic, source, table, reason._replace(text=text), block)
    return [*headers, (_LEFT_OUT, str(size).encode())]


def _always(
    source_topic: str, source: RecordPlace, table: str, reason: DeadReason, block: str
) -> SentHeaders:
    headers: SentHeaders = [
        ("source_topic", source_topic.encode()),
        ("source_partition", str(source.partition).encode()),
        ("source_offset", str(source.offset).encode()),
        (names.TABLE_HEADER, table.encode()),
        (_REASON, reason.text.encode()),
        (_KIND, reason.kind.encode()),
    ]
    if reason.field:
        headers.append((_FIELD, reason.field.encode()))
    if block:
        headers.append((BLOCK, block.encode()))
    return headers


def parse(place: RecordPlace, when_ms: int, value: bytes | None, headers: Headers) -> DeadLetter:
    """Return the dead letter of a record.

    Raises:
        ValueError: no relay wrote it; says which header is missing or wrong.
    """
    own = {name: raw for name, raw in headers if not name.startswith(_PREFIX)}

    def text_or_empty(name: str) -> str:
        return (own.get(name) or b"").decode("utf-8")

    def text(name: str) -> str:
        raw = own.get(name)
        if raw is None:
            raise ValueError(
                f"the record is not a dead letter of a relay: it has no header {name!r}"
            )
        return raw.decode("utf-8")

    source = RecordPlace(int(text("source_partition")), int(text("source_offset")))
    return DeadLetter(
        place,
        when_ms,
        value,
        text("source_topic"),
        source,
        text(names.TABLE_HEADER),
        DeadReason(
            text=text(_REASON),
            kind=DeadKind.read(text_or_empty(_KIND)),
            field=text_or_empty(_FIELD),
        ),
        _origin(own, headers),
        whole=_LEFT_OUT not in own,
        block=text_or_empty(BLOCK),
    )


def _origin(own: dict[str, bytes | None], headers: Headers) -> Origin | None:
    count = own.get(_COUNT)
    if count is None:
        return None
    kept = [(name.removeprefix(_PREFIX), raw) for name, raw in headers if name.startswith(_PREFIX)]
    kept += _unpack(own.get(_PACKED) or b"")
    if len(kept) != int(count):
        raise ValueError(f"the dead letter holds {len(kept)} of {int(count)} source headers")
    return Origin(own.get(_KEY), kept)


def _pack(headers: Headers) -> bytes:
    """All of them, in order."""
    parts = []
    for name, value in headers:
        raw = names.header_bytes(name)
        parts += [_LENGTHS.pack(len(raw), -1 if value is None else len(value)), raw, value or b""]
    return b"".join(parts)


def _unpack(packed: bytes) -> list[tuple[str, bytes | None]]:
    """The reverse.

    Raises:
        ValueError: it was cut.
    """
    headers: list[tuple[str, bytes | None]] = []
    end = 0
    while end < len(packed):
        try:
            of_name, of_value = _LENGTHS.unpack_from(packed, end)
        except struct.error as error:
            raise ValueError(f"packed headers end early, at byte {end}") from error
        begin = end + _LENGTHS.size + of_name
        end = begin + max(of_value, 0)
        if end > len(packed):
            raise ValueError(f"packed headers end early, at byte {len(packed)} of {end}")
        name = names.header_name(packed[begin - of_name : begin])
        headers.append((name, None if of_value < 0 else packed[begin:end]))
    return headers
