"""librdkafka behind its Python binding: the functions that the binding does not offer.

Receives a consumer of the binding, gives librdkafka's own handle of it, and the functions as
rdkafka.h declares them. Only where the binding's version is one whose consumers are known to begin
with that handle.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from confluent_kafka import cimpl

if TYPE_CHECKING:
    from confluent_kafka import Consumer

KNOWN = ((2, 14), (2, 17))
"""Versions of the binding, from and below, whose consumers are known to begin as `handle` says."""
_OBJECT_BYTES = 16
"""Of CPython's head of every object; the binding's handle stands right behind it."""

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_name": (ctypes.c_char_p, [ctypes.c_void_p]),
    "rd_kafka_brokers_add": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "rd_kafka_queue_new": (ctypes.c_void_p, [ctypes.c_void_p]),
    "rd_kafka_queue_destroy": (None, [ctypes.c_void_p]),
    "rd_kafka_queue_forward": (None, [ctypes.c_void_p, ctypes.c_void_p]),
    "rd_kafka_queue_get_partition": (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32],
    ),
    "rd_kafka_consume_batch_queue": (
        ctypes.c_ssize_t,
        [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t],
    ),
    "rd_kafka_message_timestamp": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_void_p]),
    "rd_kafka_message_errstr": (ctypes.c_char_p, [ctypes.c_void_p]),
    "rd_kafka_message_headers": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "rd_kafka_header_get_all": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 3],
    ),
    "rd_kafka_message_destroy": (None, [ctypes.c_void_p]),
}
"""Result and arguments of each function that is called (rdkafka.h)."""


def unsupported() -> str:
    """Return why nothing of this can be had here; empty where they can."""
    version = metadata.version("confluent-kafka")
    if not KNOWN[0] <= tuple(int(part) for part in version.split(".")[:2]) < KNOWN[1]:
        return f"this version of block-relay does not know confluent-kafka {version}"
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return "this machine's addresses do not have 64 bits"
    try:
        library()
    except (OSError, AttributeError) as error:
        return f"librdkafka was not found in the confluent-kafka package: {error}"
    return ""


@cache
def library() -> Any:
    """Return librdkafka, found among what the binding's extension is linked with."""
    library = ctypes.CDLL(cimpl.__file__)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def address(function: Any) -> int:
    """Return the address of a function, for compiled code."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def handle(consumer: Consumer) -> int:
    """Return the binding's `rd_kafka_t *`: its consumers begin with it (confluent_kafka.h, Handle).

    Raises:
        AssertionError: what stands there is none; so is a closed client's.
    """
    found = ctypes.c_void_p.from_address(id(consumer) + _OBJECT_BYTES).value
    name = library().rd_kafka_name(found) if found else b""
    assert b"#consumer-" in name, f"no consumer's handle: {name!r}"
    return int(found or 0)


def add_brokers(consumer: Consumer, servers: str) -> None:
    """Let it connect to these, beside the brokers that it knows; it may know them."""
    library().rd_kafka_brokers_add(handle(consumer), servers.encode())
