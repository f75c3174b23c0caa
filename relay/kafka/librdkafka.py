"""librdkafka behind its Python binding: what the binding does not offer, or does wrongly.

Receives a consumer of the binding, gives librdkafka's own handle of it, and the functions as
rdkafka.h declares them. Only where the binding's version is one whose consumers are known to begin
with that handle. Receives a message, gives its headers, whatever their names are.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import Any

from confluent_kafka import Consumer, Message, cimpl

from relay import names

LOST_NAME = "\N{REPLACEMENT CHARACTER}"
"""In the place of a name that is not UTF-8 and that the binding does not tell."""

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
    pointer = ctypes.c_void_p.from_address(id(consumer) + _OBJECT_BYTES).value
    name = library().rd_kafka_name(pointer) if pointer else b""
    assert b"#consumer-" in name, f"no consumer's handle: {name!r}"
    return int(pointer or 0)


def add_brokers(consumer: Consumer, servers: str) -> None:
    """Let it connect to these, beside the brokers that it knows; it may know them."""
    library().rd_kafka_brokers_add(handle(consumer), servers.encode())


def headers(message: Message) -> list[tuple[str, bytes | None]]:
    """Return a message's headers, in the order written; names as relay.names.header_name gives.

    Where names are not UTF-8 the binding raises, leaves a hole in the place of each, and tells only
    the first of them: the others of the message are LOST_NAME.

    Raises:
        SystemError: the binding failed for another reason.
    """
    getter: Any = Message.headers  # typed for what may be produced too
    try:
        # Through `map`, which sees the binding's error: a plain call that CPython has specialized
        # does not, and the error would come out of whatever is called next.
        return next(map(getter, (message,))) or []
    except SystemError as error:
        return mended_headers(message, error)


def mended_headers(message: Message, error: SystemError) -> list[tuple[str, bytes | None]]:
    """Return what `headers` does, of a message that the binding has just failed at.

    Raises:
        SystemError: this one, if it has another reason.
    """
    undecoded = _undecoded(error)
    if undecoded is None:
        raise error
    binding: Any = message
    # To touch a hole ends the process, so none is left for who asks the message again.
    mended = list(_without_holes(binding.headers(), undecoded))
    binding.set_headers(mended)
    return mended


def _undecoded(error: BaseException | None) -> bytes | None:
    """Return the bytes that were no UTF-8, of an error or what caused it."""
    while error is not None:
        if isinstance(error, UnicodeDecodeError):
            return error.object
        error = error.__cause__
    return None


def _without_holes(pairs: list[Any], undecoded: bytes) -> Iterator[tuple[str, bytes | None]]:
    name = names.header_name(undecoded)
    for pair in pairs:
        parts = gc.get_referents(pair)  # what it holds, without touching a hole
        if len(parts) == len(pair):
            yield pair
        else:
            yield name, parts[0]
            name = LOST_NAME
