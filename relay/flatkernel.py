"""Flat protobuf rows to columns, compiled: one pass over the bytes of a buffer's messages.

Receives the bytes of messages and what a table's field numbers mean, fills arrays that
relay.flatrows made. A message is taken whole or passed over whole: whatever is not plainly a
row as protobuf itself writes it (an unknown number, another wire type, a field twice, a longer
varint than need be, a number too wide, a text that is not UTF-8, a row cut short) passes the
message over, and relay.decode judges it as it always did. Only fields that stand alone are
known here: nothing repeated, no message.

Compiled by numba when first used, and kept in its cache on disk. Inside, places are addresses:
an array as an argument would cost atomic counts of references at every call (three times the
time in all). Every read is below an `end` that was checked: of a row, a message or the data.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from relay.addresses import address, byte, compiled, copy, half, word

WHOLE64, INT32, UINT32, BOOL, FIXED64, FIXED32, BYTES, TEXT = range(8)
"""What a field holds; of whole numbers the width."""
NOT_KNOWN = -1
PASSED_OVER = -1
"""As the count of a message's rows."""
SPARE_BYTES = 16
"""Copied at once where a text is no longer, and there is room on both sides."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types
_WORD, _HALF = 8, 4
_NOT_ASCII = np.uint64(0x8080808080808080)
_NOWHERE = 0
"""The address behind something that is not there."""


@njit
def _varint(at, end):
    """The number at an address, and the one behind it: NOWHERE if not as protobuf writes it."""
    if at < end:
        part = byte(at)
        if part < 128:
            return np.uint64(part), at + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        part = byte(at)
        at += 1
        value |= np.uint64(part & 127) << shift
        if part < 128:
            if part == 0 or (shift == np.uint64(63) and part > 1):
                break
            return value, at
        shift += np.uint64(7)
    return value, _NOWHERE


@njit
def _length(at, end):
    """As `_varint`, of a length or a tag: below 2^31."""
    value, after = _varint(at, end)
    if value >= np.uint64(2**31):
        after = _NOWHERE
    return np.int64(value), after


@njit
def _is_utf8(at, end, limit):
    """Whether these bytes are a text; ASCII, the usual case, by eight; readable up to `limit`."""
    while end - at >= _WORD and not word(at) & _NOT_ASCII:
        at += _WORD
    rest = end - at
    if rest == 0:
        return True
    if rest < _WORD and limit - at >= _WORD:
        last = word(at) << np.uint64(8 * (_WORD - rest))
        if not last & _NOT_ASCII:
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


@njit
def _fits(value, kind):
    """Whether the field's scalar has this value."""
    if kind == WHOLE64:
        return True
    if kind == INT32:
        return -(2**31) <= np.int64(value) < 2**31
    if kind == UINT32:
        return value < np.uint64(2**32)
    return value <= np.uint64(1)


@njit
def _value(kind, wire_type, at, end, limit):
    """A field's value and the address behind it; of bytes, where they begin."""
    if wire_type == _VARINT:
        value, after = _varint(at, end)
        if kind > BOOL or not _fits(value, kind):
            after = _NOWHERE
        return value, after
    if wire_type == _LENGTH:
        size, start = _length(at, end)
        after = start + size
        if start == _NOWHERE or size > end - start or kind < BYTES:
            return np.uint64(0), _NOWHERE
        if kind == TEXT and not _is_utf8(start, after, limit):
            return np.uint64(0), _NOWHERE
        return np.uint64(start), after
    if wire_type == _FIXED64 and kind == FIXED64 and end - at >= _WORD:
        return word(at), at + _WORD
    if wire_type == _FIXED32 and kind == FIXED32 and end - at >= _HALF:
        return half(at), at + _HALF
    return np.uint64(0), _NOWHERE


@compiled
def count_rows(data, offsets, counts):
    """Rows of each row batch, PASSED_OVER where it is none; gives their sum."""
    total = 0
    base = address(data)
    for message in range(len(counts)):
        at, end = base + offsets[message], base + offsets[message + 1]
        rows = 0 if at < end else PASSED_OVER
        while at < end:
            envelope_tag = byte(at)
            size, at = _length(at + 1, end)
            if envelope_tag != 10 or at == _NOWHERE or size > end - at:
                rows = PASSED_OVER
                break
            at += size
            rows += 1
        counts[message] = rows
        total += max(rows, 0)
    return total


@compiled
def read_rows(  # noqa: C901 - a function for each row would count references to its arrays
    data, offsets, counts, bare, kinds, columns, numbers, given
):
    """Fill the columns from the messages that `counts` does not pass over; gives the rows read.

    A message with anything out of the ordinary is passed over: its count becomes PASSED_OVER,
    and its rows are overwritten by those of the next.

    Args:
        data: bytes.
        offsets: of each message in `data`, and the end of the last.
        counts: rows of each message.
        bare: whether each message is one row, and not a row batch.
        kinds: by field number, or NOT_KNOWN.
        columns: by field number: which of `numbers` is the field's.
        numbers: (columns, rows), zeros; gets values. Of bytes: their length, times 2^32, and
            where in `data` they begin.
        given: (rows, columns / 64), zeros; gets a bit for each column that a row has.
    """
    row = np.uint64(0)
    base = address(data)
    limit = base + len(data)
    fields = np.uint64(len(kinds))
    for message in range(len(counts)):
        first = row
        at, end = base + offsets[message], base + offsets[message + 1]
        whole = True
        for _ in range(counts[message]):
            row_end = end
            if not bare:
                size, at = _length(at + 1, end)
                row_end = at + size
            seen = np.uint64(0)  # of the first 64 columns: a register, and no way through memory
            while at < row_end:
                tag, at = _length(at, row_end)
                field = np.uint64(tag >> 3)
                if at == _NOWHERE or field >= fields or kinds[field] == NOT_KNOWN:
                    whole = False
                    break
                column = np.uint64(columns[field])
                bit = np.uint64(1) << (column & np.uint64(63))
                if column < np.uint64(64):
                    twice = seen & bit
                    seen |= bit
                else:
                    word = column >> np.uint64(6)
                    twice = given[row, word] & bit
                    given[row, word] |= bit
                kind = kinds[field]
                value, after = _value(kind, tag & 7, at, row_end, limit)
                if twice or after == _NOWHERE:
                    whole = False
                    break
                if kind >= BYTES:
                    size = np.uint64(after) - value
                    value = value - np.uint64(base) | size << np.uint64(32)
                numbers[column, row] = value
                at = after
            if not whole:
                break
            given[row, np.uint64(0)] = seen
            row += np.uint64(1)
            at = row_end
        if not whole:
            counts[message] = PASSED_OVER
            numbers[:, first : row + np.uint64(1)] = 0
            given[first : row + np.uint64(1)] = 0
            row = first
    return np.int64(row)


@compiled
def ends(spans, ends):
    """Sums of the lengths so far of the bytes that `read_rows` found; after a zero."""
    so_far = 0
    for row in range(len(spans)):
        so_far += np.int64(spans[row] >> np.uint64(32))
        ends[row + 1] = so_far
    return so_far


@compiled
def join(data, spans, joined):
    """Copy the bytes that `read_rows` found to one after the other.

    Args:
        data: where they are.
        spans: length, times 2^32, and place of each.
        joined: at least as long as they are together.
    """
    base, to = address(data), address(joined)
    limit, room = base + len(data), to + len(joined)
    for row in range(len(spans)):
        size = np.int64(spans[row] >> np.uint64(32))
        start = base + np.int64(spans[row] & np.uint64(2**32 - 1))
        if size <= SPARE_BYTES and limit - start >= SPARE_BYTES and room - to >= SPARE_BYTES:
            copy(to, start, SPARE_BYTES)
        else:
            copy(to, start, size)
        to += size
