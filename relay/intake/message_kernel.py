"""librdkafka's messages to columns, compiled: no Python object for any of them.

Receives the addresses of messages as librdkafka gives them, fills arrays that relay.intake.bulk
made, copies values to where relay.arrow.byte_column wants them, and gives the messages back. What
of a message is out of the ordinary (an error, headers other than one that names a known table) is
left to Python, which finds its place in `numbers`.

`rd_kafka_message_t` is public and as old as librdkafka: its fields are read at their offsets.
"""

from __future__ import annotations

import numpy as np

from relay.arrow.byte_column import NULL
from relay.rows.raw_memory import (
    address,
    byte,
    call_1,
    call_2,
    call_5,
    compiled,
    copy,
    half,
    integer,
    word,
)

UNKNOWN = -1
"""As the number of a table: Python looks at the message's headers."""
FAILED = -2
"""As the number of a table: the message is an error."""
_ERROR, _PARTITION, _VALUE, _VALUE_SIZE, _KEY, _KEY_SIZE, _OFFSET = 0, 16, 24, 32, 40, 48, 56
_POINTER = 8
_NAME = (116, 97, 98, 108, 101, 0)  # "table" and its end
_MIX = np.uint64(0x9E3779B97F4A7C15)


@compiled
def hash_of(at, size):
    """Return a hash of some bytes."""
    mixed = np.uint64(size)
    end = at + size
    while end - at >= _POINTER:
        mixed = (mixed ^ word(at)) * _MIX
        mixed ^= mixed >> np.uint64(29)
        at += _POINTER
    while at < end:
        mixed = (mixed ^ np.uint64(byte(at))) * _MIX
        mixed ^= mixed >> np.uint64(29)
        at += 1
    return np.int64(mixed >> np.uint64(33))


@compiled
def place_of(names, ends, slots, at, size):
    """Return where in `slots` this name stands, or would stand.

    Args:
        names: of all known tables, joined.
        ends: of each name in `names`, by the table's number.
        slots: a power of two, more than half of them UNKNOWN; the others are numbers of tables.
        at: of the name.
        size: of the name.
    """
    base = address(names)
    place = hash_of(at, size) & (len(slots) - 1)
    while slots[place] != UNKNOWN:
        number = slots[place]
        start = ends[number - 1]
        if ends[number] - start == size and _same(base + start, at, size):
            break
        place = (place + 1) & (len(slots) - 1)
    return place


@compiled
def _same(left, right, size):
    while size >= _POINTER:
        if word(left) != word(right):
            return False
        left += _POINTER
        right += _POINTER
        size -= _POINTER
    while size > 0:
        if byte(left) != byte(right):
            return False
        left += 1
        right += 1
        size -= 1
    return True


@compiled
def _is_table(name):
    for at in range(len(_NAME)):  # noqa: SIM110 - compiled: a generator would make objects
        if byte(name + at) != _NAME[at]:
            return False
    return True


@compiled
def look(messages, headers_of, header_at, names, ends, slots, room, columns, numbers):
    """Find out what each message is.

    Args:
        messages: addresses.
        headers_of: address of rd_kafka_message_headers.
        header_at: address of rd_kafka_header_get_all.
        names: as `place_of`.
        ends: as `place_of`.
        slots: as `place_of`.
        room: of at least four addresses.
        columns: (6, messages): partition, offset, value, its size, key, its size; gets them.
        numbers: gets the tables' numbers, UNKNOWN, or FAILED.
    """
    places = address(messages)
    pointer = address(room)
    for at in range(len(messages)):
        message = integer(places + at * _POINTER)
        columns[0, at] = np.int64(half(message + _PARTITION))
        columns[1, at] = integer(message + _OFFSET)
        value, key = integer(message + _VALUE), integer(message + _KEY)
        columns[2, at] = value
        columns[3, at] = integer(message + _VALUE_SIZE) if value else NULL
        columns[4, at] = key
        columns[5, at] = integer(message + _KEY_SIZE) if key else NULL
        numbers[at] = UNKNOWN
        if half(message + _ERROR):
            numbers[at] = FAILED
            continue
        if call_2(headers_of, message, pointer):
            continue
        headers = integer(pointer)
        name, text, size = pointer + 8, pointer + 16, pointer + 24
        if call_5(header_at, headers, 0, name, text, size):
            continue
        if not _is_table(integer(name)) or not integer(text):
            continue
        start, length = integer(text), integer(size)
        if call_5(header_at, headers, 1, name, text, size) == 0:
            continue  # a second header: it may name the table too
        numbers[at] = slots[place_of(names, ends, slots, start, length)]


@compiled
def gather(places, sizes, chosen, at, data, first, ends, given):
    """Copy some values one behind the other.

    Args:
        places: addresses of values.
        sizes: of values, or NULL.
        chosen: indices of the values to copy.
        at: where in `data` to begin.
        data: bytes, with enough room.
        first: where in `ends` to begin.
        ends: gets where each value ends in `data`.
        given: gets whether each is there at all.
    """
    base = address(data)
    for number in range(len(chosen)):
        size = sizes[chosen[number]]
        given[first + number] = size != NULL
        if size > 0:
            copy(base + at, places[chosen[number]], size)
            at += size
        ends[first + number] = at


@compiled
def release(messages, count, destroy):
    """Give messages back: `destroy` is the address of rd_kafka_message_destroy."""
    places = address(messages)
    for at in range(count):
        call_1(destroy, integer(places + at * _POINTER))
