"""The answer of a broker that leads none of the partitions of a Produce request.

Receives the request as it stood on the wire, gives the answer (Kafka's protocol guide, Produce,
versions 9 to 12). So brokers answer while a partition's leader moves, or is just being made.
"""

from __future__ import annotations

import struct

from tests.chaos.proxy_metadata import varint

OLDEST, NEWEST = 9, 12
"""Versions: the first with compact arrays, and the last that names topics."""
NOT_LEADER = 6
_NOWHERE = -1
"""Offset and time of a record that was not taken."""


def not_the_leader(request: bytes, version: int) -> bytes:
    """The answer that takes no record, and says that another broker leads each partition.

    Raises:
        ValueError: a version that is not known here.
    """
    if not OLDEST <= version <= NEWEST:
        raise ValueError(f"Produce version {version}, not {OLDEST} to {NEWEST}")
    (correlation, client) = struct.unpack_from(">ih", request, 8)
    at = 14 + max(client, 0) + 1  # size, API, version; tagged fields, of which there are none
    transactional_id, at = varint(request, at)
    at += max(transactional_id - 1, 0) + 2 + 4  # acks, timeout
    begin = at
    topics, at = varint(request, at)
    told = bytearray(request[begin:at])
    for _ in range(topics - 1):
        begin = at
        name, at = varint(request, at)
        count, at = varint(request, at + name - 1)
        told += request[begin:at]
        for _ in range(count - 1):
            told += request[at : at + 4] + _REFUSAL
            records, at = varint(request, at + 4)
            at += max(records - 1, 0) + 1
        told += b"\0"
        at += 1
    # Tagged fields of the head; throttle and tagged fields of the body.
    answer = struct.pack(">i", correlation) + b"\0" + told + struct.pack(">ib", 0, 0)
    return struct.pack(">i", len(answer)) + answer


_REFUSAL = struct.pack(">hqqq", NOT_LEADER, _NOWHERE, _NOWHERE, _NOWHERE) + b"\x01\0\0"
"""Code, base offset, time, the log's start; no record is singled out, no text, no tagged field."""
