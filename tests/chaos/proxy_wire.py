"""Whole messages off a byte stream, so that the proxy can aim a fault at one kind of request.

Receives a stream, gives requests with what they ask for, and answers with the key that pairs
them with their request. Two protocols: Kafka's and as much of HTTP/1.1 as ClickHouse's client
speaks.
"""

from __future__ import annotations

import struct
from asyncio import StreamReader
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import unquote_plus

LARGEST_MESSAGE = 128 << 20
"""Bytes; a stream that announces more is not the protocol it was taken for."""
SHOWN_BODY = 4_096
"""Bytes of a request's body in which a statement is looked for."""


class Api(IntEnum):
    """Kafka's API keys that faults are aimed at."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class NotThisProtocol(Exception):
    """The bytes are no message of the protocol that the proxy was told."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it stood on the wire.

    Attributes:
        asks: Kafka: the API key; HTTP: method, target and the body's beginning, decoded.
        client: Kafka's client id; empty for HTTP.
        key: the same in the request's answer.
        version: Kafka: of the API, which the answer is written in too.
    """

    data: bytes
    asks: int | str
    client: str
    key: int
    version: int = 0

    def is_for(self, api: int | str) -> bool:
        """Kafka: this API key. HTTP: the text stands in the request."""
        if isinstance(api, int):
            return self.asks == api
        return isinstance(self.asks, str) and api in self.asks


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it stood on the wire; `key` is its request's."""

    data: bytes
    key: int


@dataclass(frozen=True, slots=True)
class Wire:
    """How to take messages from a stream; `number` counts those before on the connection.

    Both raise asyncio.IncompleteReadError at the stream's end, NotThisProtocol on nonsense.
    """

    request: Callable[[StreamReader, int], Awaitable[Request]]
    answer: Callable[[StreamReader, int], Awaitable[Answer]]


async def _kafka_frame(stream: StreamReader) -> bytes:
    head = await stream.readexactly(4)
    (size,) = struct.unpack(">i", head)
    if not 4 <= size <= LARGEST_MESSAGE:
        raise NotThisProtocol(f"a Kafka message of {size} bytes")
    return head + await stream.readexactly(size)


async def _kafka_request(stream: StreamReader, _: int) -> Request:
    data = await _kafka_frame(stream)
    if len(data) < 14:
        raise NotThisProtocol(f"a Kafka request of {len(data)} bytes")
    api, version, correlation, length = struct.unpack_from(">hhih", data, 4)
    client = data[14 : 14 + max(length, 0)].decode("utf-8", "replace")
    return Request(data, api, client, correlation, version)


async def _kafka_answer(stream: StreamReader, _: int) -> Answer:
    data = await _kafka_frame(stream)
    return Answer(data, struct.unpack_from(">i", data, 4)[0])


async def _http_message(stream: StreamReader) -> tuple[bytes, bytes]:
    """(head with its empty line, body as on the wire)."""
    head = await stream.readuntil(b"\r\n\r\n")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        body, size = bytearray(), 1
        while size:
            line = await stream.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            body += line + await stream.readexactly(size + 2)
        return head, bytes(body)
    size = int(fields.get(b"content-length", b"0"))
    if size > LARGEST_MESSAGE:
        raise NotThisProtocol(f"an HTTP message of {size} bytes")
    return head, await stream.readexactly(size)


async def _http_request(stream: StreamReader, number: int) -> Request:
    head, body = await _http_message(stream)
    target = unquote_plus(head.partition(b"\r\n")[0].decode("latin-1"))
    return Request(head + body, target + body[:SHOWN_BODY].decode("utf-8", "replace"), "", number)


async def _http_answer(stream: StreamReader, number: int) -> Answer:
    head, body = await _http_message(stream)
    return Answer(head + body, number)


KAFKA = Wire(_kafka_request, _kafka_answer)
HTTP = Wire(_http_request, _http_answer)


def error_of_end_txn(answer: bytes) -> int:
    """Kafka's error code in an answer to EndTxn (version 1, which librdkafka speaks); 0: done."""
    return int(struct.unpack_from(">h", answer, 12)[0])
