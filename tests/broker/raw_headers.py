"""Messages with headers whose names are any bytes, as producers in other languages may send them.

The Python binding's producer takes names that are text; librdkafka's own function takes all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer, cimpl

Named = Sequence[tuple[bytes, bytes | None]]
_TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADER = 1, 3, 4, 7, 9
_COPY = 2
_OBJECT_BYTES = 16
SECONDS = 30.0


class _Value(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("at", ctypes.c_char_p), ("size", ctypes.c_ssize_t))


class _Union(ctypes.Union):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_int32),
        ("value", _Value),
        ("header", _Header),
        ("room", ctypes.c_char * 64),
    )


class _Argument(ctypes.Structure):
    """rd_kafka_vu_t of rdkafka.h."""

    _fields_ = (("kind", ctypes.c_int), ("of", _Union))


def send(bootstrap: str, topic: str, messages: Sequence[tuple[bytes, Named]]) -> None:
    """Write messages (value, headers) to partition 0, in order."""
    producer = Producer({"bootstrap.servers": bootstrap})
    library: Any = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_produceva.restype = ctypes.c_void_p
    library.rd_kafka_produceva.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    handle = ctypes.c_void_p.from_address(id(producer) + _OBJECT_BYTES).value
    for value, headers in messages:
        arguments = (_Argument * (4 + len(headers)))()
        for argument, kind in zip(arguments, (_TOPIC, _PARTITION, _VALUE, _FLAGS), strict=False):
            argument.kind = kind
        arguments[0].of.text = topic.encode()
        arguments[1].of.number = 0
        arguments[2].of.value = _Value(value, len(value))
        arguments[3].of.number = _COPY
        for argument, (name, held) in zip(arguments[4:], headers, strict=True):
            argument.kind = _HEADER
            argument.of.header = _Header(name, held, -1 if held is None else len(held))
        assert library.rd_kafka_produceva(handle, arguments, len(arguments)) is None
    assert producer.flush(SECONDS) == 0
