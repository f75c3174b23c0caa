"""Answers to Kafka's Metadata request that name no broker, as brokers give while all are fenced.

Receives an answer as it stood on the wire and the request's version, gives the answer with its
topics and without its brokers (Kafka's protocol guide, Metadata, versions 9 to 13).
"""

from __future__ import annotations

import struct

OLDEST, NEWEST = 9, 13
"""Versions: the first with compact arrays, and the last known."""


def without_brokers(answer: bytes, version: int) -> bytes:
    """The answer, its list of brokers empty.

    Raises:
        ValueError: a version that is not known here.
    """
    if not OLDEST <= version <= NEWEST:
        raise ValueError(f"Metadata version {version}, not {OLDEST} to {NEWEST}")
    begin = 8 + 1 + 4  # size, correlation; tagged fields, of which there are none; throttle
    body = answer[4:begin] + b"\x01" + answer[_after(answer, begin) :]
    return struct.pack(">i", len(body)) + body


def _after(data: bytes, at: int) -> int:
    """Where a compact array of brokers ends; its lengths are one more, and 0 says null."""
    count, at = varint(data, at)
    for _ in range(count - 1):
        host, at = varint(data, at + 4)
        rack, at = varint(data, at + host - 1 + 4)
        tags, at = varint(data, at + max(rack - 1, 0))
        assert tags == 0, "a broker with tagged fields"
    return at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(an unsigned varint's value, where it ends)."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
