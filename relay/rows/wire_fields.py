"""Fields of serialized messages, many at once: tag, value and end of each.

Receives bytes and the positions at which fields begin, gives arrays. Never knows what a
number means; never reads beyond the bytes, whatever they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

VARINT, FIXED64, LENGTH, GROUP, FIXED32 = 0, 1, 2, 3, 5
"""Wire types (protobuf.dev, encoding)."""


class Step(NamedTuple):
    """Fields that begin at some positions."""

    number: Integers
    wire: Integers
    value: npt.NDArray[np.uint64]  # of a varint, or the length of what follows
    payload: Integers  # where the value begins; of length-delimited ones behind the length
    after: Integers


def read(data: Bytes, at: Integers) -> Step:
    """Return the fields that begin at `at`; none reads beyond the data."""
    tag, payload = varints(data, at)
    wire = (tag & np.uint64(7)).astype(np.int64)
    number = (tag >> np.uint64(3)).astype(np.int64)
    value = np.zeros(len(at), np.uint64)
    after = payload.copy()
    for kind, size in ((FIXED64, 8), (FIXED32, 4)):
        after[wire == kind] += size
    numbers = np.flatnonzero((wire == VARINT) | (wire == LENGTH))
    value[numbers], after[numbers] = varints(data, payload[numbers])
    long = np.flatnonzero(wire == LENGTH)
    payload[long] = after[long]
    after[long] += np.minimum(value[long], np.uint64(len(data))).astype(np.int64)
    return Step(number, wire, value, payload, after)


def varints(data: Bytes, at: Integers) -> tuple[npt.NDArray[np.uint64], Integers]:
    """Return the numbers that begin at `at`, and where they end."""
    last = len(data) - 1
    byte = data[np.minimum(at, last)]
    value = (byte & 0x7F).astype(np.uint64)
    end = at + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more) and shift < 70:
        byte = data[np.minimum(end[more], last)]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        end[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return value, end
