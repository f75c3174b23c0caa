"""Flat protobuf rows to columns, compiled: one pass over the bytes of a buffer's messages.

Receives the bytes of messages and what a table's field numbers mean, fills arrays that
relay.rows.flat_columns made, each value in its place as Arrow has it. A message is taken whole or
passed over whole: whatever is not plainly a row as protobuf itself writes it (an unknown number,
another wire type, a field twice, a longer varint than need be, a number too wide, a text that is
not UTF-8, a row cut short) passes the message over, and relay.rows.decode judges it as it always
did. Only fields that stand alone are known here: nothing repeated, no message.

Compiled by numba when first used, and kept in its cache on disk. Inside, places are addresses:
an array as an argument would cost atomic counts of references at every call (three times the
time in all). What is used lies below an `end` that was checked, of a row, a message or the data;
a word that is read, or the bytes copied with a text, may reach beyond the first two, never beyond
the data.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from relay.rows.raw_memory import (
    address,
    byte,
    compiled,
    copy,
    half,
    integer,
    lowest_bit,
    store,
    store_byte,
    store_half,
    word,
)

WHOLE64, INT32, UINT32, BOOL, FIXED64, FIXED32, BYTES, TEXT = range(8)
"""What a field holds; of whole numbers the width."""
PASSED_OVER = -1
"""As the count of a message's rows."""
SPARE_BYTES = 32
"""Copied at once where a text is no longer; there is room for so many behind all texts."""

_WORD, _HALF = 8, 4
_SINK_JOINED, _SINK_KIND, _SINK_ROOM, _SINK_BYTES = _WORD, 2 * _WORD, 3 * _WORD, 4 * _WORD
"""Where in a row of `sinks` its items are behind the first, and how long it is."""
_ENVELOPE_TAG = 10
_HIGH_BITS = np.uint64(0x8080808080808080)
_KIND_BITS, _KIND = 3, 7
"""Of an entry of `plan`: how many say the kind, and which."""
_NOWHERE = 0
"""The address behind something that is not there."""


@njit
def _slow_varint(at, end):
    """The number at an address, and the one behind it: NOWHERE if not as protobuf writes it."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        part = byte(at)
        at += 1
        value |= np.uint64(part & 127) << shift
        if part < 128:
            if (part == 0 and shift > np.uint64(0)) or (shift == np.uint64(63) and part > 1):
                break
            return value, at
        shift += np.uint64(7)
    return value, _NOWHERE


@njit(inline="always")
def _varint(at, end, words_end):
    """As `_slow_varint`, but the address behind may also lie behind `end`.

    The usual number, of up to eight bytes, without a branch for each byte: these bytes are a word,
    its end is the first byte without the highest bit, and in three steps neighbours move together,
    groups of 7, 14 and 28 bits. A field took 4 to 5 ns so, where a loop over the bytes took 5 to 7,
    and 12 where lengths vary from row to row.
    """
    ends = np.uint64(0)
    if at < words_end:
        value = word(at)
        ends = ~value & _HIGH_BITS
    if ends == np.uint64(0):
        return _slow_varint(at, end)
    last = lowest_bit(ends)
    value &= (ends ^ (ends - np.uint64(1))) & ~_HIGH_BITS
    if last > np.uint64(7):
        if value >> (last - np.uint64(7)) == np.uint64(0):
            return value, _NOWHERE
        value -= (value & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)
        value -= ((value & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)) * np.uint64(3)
        value -= (value >> np.uint64(32)) * np.uint64(15 << 28)
    return value, at + 1 + np.int64(last >> np.uint64(3))


@njit(inline="always")
def _length(at, end):
    """As `_slow_varint`, of a length or a tag: below 2^31, and mostly one byte."""
    if at < end:
        part = byte(at)
        if part < 128:
            return part, at + 1
    value, after = _slow_varint(at, end)
    if value >= np.uint64(2**31):
        after = _NOWHERE
    return np.int64(value), after


@njit(inline="always")
def _is_utf8(at, end, words_end):
    """Whether these bytes are a text; ASCII, the usual case, by words."""
    size = end - at
    if size >= _WORD:
        last = end - _WORD
        while at < last and not word(at) & _HIGH_BITS:
            at += _WORD
        if at >= last and not word(last) & _HIGH_BITS:
            return True
    elif size == 0 or (at < words_end and not (word(at) << np.uint64(64 - 8 * size)) & _HIGH_BITS):
        return True
    return _is_unicode(at, end)


@njit
def _is_unicode(at, end):
    while at < end:
        lead = byte(at)
        at += 1
        if lead < 0x80:
            continue
        # Of the second byte: its least and greatest value, by the first one (RFC 3629, 4).
        low, high, more = 0x80, 0xBF, 1
        if 0xC2 <= lead <= 0xDF:
            pass
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            low = 0xA0 if lead == 0xE0 else low
            high = 0x9F if lead == 0xED else high
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            low = 0x90 if lead == 0xF0 else low
            high = 0x8F if lead == 0xF4 else high
        else:
            return False
        if more > end - at or not low <= byte(at) <= high:
            return False
        for further in range(1, more):
            if not 0x80 <= byte(at + further) <= 0xBF:
                return False
        at += more
    return True


@njit(inline="always")
def _fits(value, kind):
    """Whether the field's scalar has this value."""
    if kind == WHOLE64:
        return True
    if kind == INT32:
        return -(2**31) <= np.int64(value) < 2**31
    if kind == UINT32:
        return value < np.uint64(2**32)
    return value <= np.uint64(1)


@njit(inline="always")
def _bytes(kind, at, end, words_end):
    """Where bytes begin, and the address behind them."""
    size, start = _length(at, end)
    after = start + size
    if start == _NOWHERE or after > end:
        return start, _NOWHERE
    if kind == TEXT and not _is_utf8(start, after, words_end):
        return start, _NOWHERE
    return start, after


@njit(inline="always")
def _number(kind, at, end, words_end):
    """A field's value, and the address behind it, which may lie behind `end`."""
    if kind < FIXED64:
        value, after = _varint(at, end, words_end)
        if not _fits(value, kind):
            after = _NOWHERE
        return value, after
    if kind == FIXED64 and end - at >= _WORD:
        return word(at), at + _WORD
    if kind == FIXED32 and end - at >= _HALF:
        return half(at), at + _HALF
    return np.uint64(0), _NOWHERE


@njit(inline="always")
def _mark(column, seen, given):
    """Note that a row has a column: the bits of the first 64, and whether it had it before.

    These are kept in a register, the others in memory at `given`.
    """
    bit = np.uint64(1) << (column & np.uint64(63))
    if column < np.uint64(64):
        return seen | bit, seen & bit
    place = given + _WORD * np.int64(column >> np.uint64(6))
    before = word(place)
    store(place, before | bit)
    return seen, before & bit


@njit(inline="always")
def _put_number(sink, row, value):
    """Write a number to its row, as wide as the column is, whatever a plan says."""
    values, kind = integer(sink), integer(sink + _SINK_KIND)
    if kind in (WHOLE64, FIXED64):
        store(values + _WORD * row, value)
    elif kind == BOOL:
        store_byte(values + row, value)
    else:
        store_half(values + _HALF * row, value)


@njit(inline="always")
def _put_bytes(sink, row, start, size, data_end):
    """Copy bytes behind those of the row before, and write where they end."""
    place = integer(sink) + _HALF * row
    so_far = np.int64(half(place))
    to = integer(sink + _SINK_JOINED) + so_far
    if size <= SPARE_BYTES and data_end - start >= SPARE_BYTES:
        # Mostly too many, and in a few instructions: a call takes longer than the copy.
        for at in range(0, SPARE_BYTES, _WORD):
            store(to + at, word(start + at))
    else:
        copy(to, start, size)
    store_half(place + _HALF, so_far + size)


@njit(inline="always")
def _read_row(at, end, data_end, plan, tags, sinks, row, given):
    """Put a row's values to their places; whether all of it is as protobuf writes it.

    Args:
        at: where it begins.
        end: of the row.
        data_end: behind the last address that may be read.
        plan: address.
        tags: entries of `plan`.
        sinks: address.
        row: how many were read before it.
        given: address of the row's bits.
    """
    seen = np.uint64(0)
    words_end = data_end - _WORD + 1
    while at < end:
        tag, at = _length(at, end)
        if at == _NOWHERE or tag >= tags:
            return False
        entry = integer(plan + _WORD * tag)
        if entry < 0:
            return False
        column, kind = entry >> _KIND_BITS, entry & _KIND
        seen, twice = _mark(np.uint64(column), seen, given)
        sink = sinks + _SINK_BYTES * column
        if kind >= BYTES:
            start, after = _bytes(kind, at, end, words_end)
            if twice or after == _NOWHERE:
                return False
            _put_bytes(sink, row, start, after - start, data_end)
        else:
            value, after = _number(kind, at, end, words_end)
            if twice or after == _NOWHERE or after > end:
                return False
            _put_number(sink, row, value)
        at = after
    store(given, seen)
    return True


@njit(inline="always")
def _fill(every, words, sinks, row, given, in_all):
    """Zeros where the row has no value, and note in `in_all` that it has none.

    What was in these places before is of another block.
    """
    for at in range(words):
        has = word(given + _WORD * at)
        store(in_all + _WORD * at, word(in_all + _WORD * at) & has)
        missing = word(every + _WORD * at) & ~has
        while missing:
            sink = sinks + _SINK_BYTES * (64 * at + np.int64(lowest_bit(missing)))
            if integer(sink + _SINK_KIND) >= BYTES:
                place = integer(sink) + _HALF * row
                store_half(place + _HALF, half(place))
            else:
                _put_number(sink, row, np.uint64(0))
            missing &= missing - np.uint64(1)


@njit(inline="always")
def _least_room(sinks, columns, row, most):
    """Bytes of messages that every column of bytes can take; `most` where there is no such column.

    A column gets no more than is read: until so much was, nobody needs to ask again.
    """
    least = most
    for column in range(columns):
        sink = sinks + _SINK_BYTES * column
        if integer(sink + _SINK_KIND) >= BYTES:
            so_far = np.int64(half(integer(sink) + _HALF * row))
            least = min(least, integer(sink + _SINK_ROOM) - SPARE_BYTES - so_far)
    return least


@compiled
def read_rows(data, offsets, bare, plan, every, message, row, sinks, given, in_all, counts):
    """Fill the columns from messages, as long as there is room.

    A message with anything out of the ordinary is passed over: its count becomes PASSED_OVER,
    and its rows are overwritten by those of the next.

    Args:
        data: bytes.
        offsets: of each message in `data`, and the end of the last.
        bare: whether each message is one row, and not a row batch.
        plan: by tag of protobuf: 8 times the field's column, and its kind; -1 where none is known.
        every: a bit for each column, as a row of `given` has it.
        message: the first to read.
        row: rows that were read of those before it.
        sinks: (columns, 4): the address of the column's values, as wide as its kind, and its kind.
            Of bytes: of 32 bits for each row that say where its bytes begin, and one more, the
            address of the bytes, and how many there is room for.
        given: (rows, columns / 64), zeros; gets a bit for each column that a row has.
        in_all: bits of the columns that all rows had; some of those passed over may lack them.
        counts: gets the rows of each message.

    Returns:
        The message behind the last one read, which did not fit if there is one; the rows read;
        and whether it had more rows than there is room for.
    """
    base = address(data)
    data_end = base + len(data)
    words = len(every)
    room = len(given)
    room_until = base
    while message < len(counts):
        first = row
        at, end = base + offsets[message], base + offsets[message + 1]
        if end > room_until:
            room_until = at + _least_room(address(sinks), len(sinks), row, data_end - at)
            if end > room_until:
                return message, row, False
        plain = at < end
        while plain and at < end:
            if row == room:
                given[first:row] = 0
                return message, first, True
            row_end = end
            if not bare:
                plain = byte(at) == _ENVELOPE_TAG
                size, at = _length(at + 1, end)
                plain = plain and at != _NOWHERE and size <= end - at
                row_end = at + size
            row_given = address(given) + _WORD * words * row
            plain = plain and _read_row(
                at, row_end, data_end, address(plan), len(plan), address(sinks), row, row_given
            )
            if plain:
                _fill(address(every), words, address(sinks), row, row_given, address(in_all))
                row += 1
                at = row_end
        if plain:
            counts[message] = row - first
        else:
            counts[message] = PASSED_OVER
            given[first : row + 1] = 0
            row = first
        message += 1
    return message, row, False
