"""Finds in serialized rows what their row message does not explain, field by field.

Receives rows that parse and the fields of the row message, gives each kind of stranger with
the rows that hold it: numbers the message does not know, known ones of another wire type
(both of which protobuf skips without a word), and numbers wider than their field (which it
cuts off). All rows take a step together, from one field to the next; no Python per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relay.arrow.array_memory import Integers, offsets_of
from relay.schema.dead_reason import DeadKind
from relay.schema.types.proto_shape import ProtoField, Shape

Bytes = npt.NDArray[np.uint8]


VARINT, FIXED64, LENGTH, GROUP, FIXED32 = 0, 1, 2, 3, 5
"""Wire types (protobuf.dev, encoding)."""
STEPS = 256
"""Fields of a row walked together with the other rows; a longer row goes on alone."""
OWN = "\0"
"""In a reason: what is another number in each row."""
NAMED = 1000
"""Unknown numbers of one step that are told apart; each costs a look at all of them."""
_WIRE_NAMES = {0: "varint", 1: "64 bits", 2: "length-delimited", 3: "group", 5: "32 bits"}
_WIRE_TYPES = {
    "double": FIXED64, "float": FIXED32, "string": LENGTH, "bytes": LENGTH,
}  # fmt: skip
WIDTHS = {"bool": (0, 1), "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}
"""Least and greatest value of the scalars that are narrower than a varint can be."""
_UNKNOWN, _ANY = -1, -2
_PADDING = 16
"""Zero bytes behind the rows, so that a step from the last of them reads on in memory."""


class Unexplained(NamedTuple):
    """Something that the row message does not explain, and where it is."""

    kind: DeadKind
    """Why a message that holds it is bad."""
    field: str
    """Number of the field, with the name of the message it is in."""
    reason: str
    """The same for all rows, but for OWN, which stands for each row's own number."""
    rows: Integers
    """Indices, each once, in order."""
    numbers: npt.NDArray[Any] | None = None
    """For OWN: of each of the rows."""

    @property
    def unknown(self) -> bool:
        """Whether it is an unknown number; else a known one whose value is not as it should be."""
        return self.kind in {DeadKind.UNKNOWN_FIELD, DeadKind.OUTDATED_FIELD}

    def before(self, end: int) -> Unexplained:
        """Return the same of the rows before one."""
        count = int(np.searchsorted(self.rows, end))
        numbers = None if self.numbers is None else self.numbers[:count]
        return self._replace(rows=self.rows[:count], numbers=numbers)

    def why(self, row: int) -> str:
        """Return what is wrong in one of the rows."""
        if self.numbers is None:
            return self.reason
        return self.reason.replace(OWN, str(self.numbers[np.searchsorted(self.rows, row)]))


@dataclass
class _Plan:
    """A message's fields, by number; messages in it are further plans."""

    name: str
    fields: dict[int, ProtoField]
    gone: Sequence[int] = ()
    wire: Integers = field(init=False)
    packed: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        size = max([*self.fields, *self.gone], default=0) + 2  # of the last, nothing is known
        self.wire = np.full(size, _UNKNOWN, np.int64)
        self.packed = np.zeros(size, np.bool_)
        for number, proto in self.fields.items():
            self.wire[number] = wire_type(proto.shape)
            self.packed[number] = proto.shape.packable
        self.wire[list(self.gone)] = _ANY


class _Step(NamedTuple):
    """Fields that begin at some positions."""

    number: Integers
    wire: Integers
    value: npt.NDArray[np.uint64]  # of a varint, or the length of what follows
    payload: Integers  # where the value begins; of length-delimited ones behind the length
    after: Integers


class _Part(NamedTuple):
    """Messages of one plan, all of them at once."""

    plan: _Plan
    start: Integers
    end: Integers
    row: Integers


def wire_type(shape: Shape) -> int:
    """Return the wire type of a single value of the shape."""
    return LENGTH if shape.message is not None else _WIRE_TYPES.get(shape.scalar, VARINT)


def scan(
    rows: pa.BinaryArray, fields: Sequence[ProtoField], gone: Sequence[int]
) -> list[Unexplained]:
    """Return everything in the rows that `fields` do not explain.

    Args:
        rows: serialized, without nulls, each of which parses.
        fields: of the row message.
        gone: numbers that once had a meaning; any value of theirs is passed over.
    """
    data, bounds = _flat(rows)
    plan = _Plan("", {proto.number: proto for proto in fields}, gone)
    waiting = [_Part(plan, bounds[:-1], bounds[1:], np.arange(len(rows)))]
    unexplained: list[Unexplained] = []
    while waiting:
        part = waiting.pop()
        for ends, owners, step in _steps(data, part):
            over = step.after > ends
            if over.any():
                name = f"{part.plan.name}{step.number[over][0]}"
                reason = f"field {name} is longer than the message around it"
                rows_over = np.unique(owners[over])
                unexplained.append(Unexplained(DeadKind.UNREADABLE_ROW, name, reason, rows_over))
            unexplained += _unexplained(data, part.plan, step, owners)
            waiting += _inner(part.plan, step, owners, ~over)
    return _merge(unexplained)


def _flat(rows: Any) -> tuple[Bytes, Integers]:
    """The bytes of all rows, padded, and where each begins, with the end of the last."""
    bounds = offsets_of(rows).astype(np.int64)
    data = np.frombuffer(rows.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    return np.concatenate([data, np.zeros(_PADDING, np.uint8)]), bounds - bounds[0]


def _steps(data: Bytes, part: _Part) -> Iterator[tuple[Integers, Integers, _Step]]:
    """The fields of the messages: where the message ends, of which row, and what they are."""
    at, end, row = part.start, part.end, part.row
    for _ in range(STEPS):
        more = at < end
        at, end, row = at[more], end[more], row[more]
        if not len(at):
            return
        step = _read(data, at)
        yield end, row, step
        # No field here can be a group, and what a group holds is not examined.
        at = np.where(step.wire == GROUP, end, step.after)
    for first, last, owner in zip(at.tolist(), end.tolist(), row.tolist(), strict=True):
        if first >= last:
            continue
        # Where each byte would lead, were it the beginning of a field; then only those that are.
        leads = (_read(data, np.arange(first, last)).after - first).tolist()
        places, place = [], 0
        while place < last - first:
            places.append(place)
            place = leads[place]
        starts = np.array(places) + first
        yield np.full(len(starts), last), np.full(len(starts), owner), _read(data, starts)


def _unexplained(data: Bytes, plan: _Plan, step: _Step, owners: Integers) -> Iterator[Unexplained]:
    numbers = np.minimum(step.number, len(plan.wire) - 1)
    known, packed = plan.wire[numbers], plan.packed[numbers]
    fits = (known == step.wire) | (known == _ANY) | (packed & (step.wire == LENGTH))
    pairs = sorted(set(zip(step.number[~fits].tolist(), step.wire[~fits].tolist(), strict=True)))
    if len(pairs) > NAMED:
        rest = ~fits & (known == _UNKNOWN)
        label = f"{plan.name}others"
        reason = f"more than {NAMED} different fields are not known"
        yield Unexplained(DeadKind.UNKNOWN_FIELD, label, reason, np.unique(owners[rest]))
        pairs = [pair for pair in pairs if pair[0] in plan.fields]
    for number, wire in pairs:
        hit = ~fits & (step.number == number) & (step.wire == wire)
        rows = np.unique(owners[hit])
        label = f"{plan.name}{number}"
        one = plan.fields.get(number)
        if one is None:
            reason = f"field {label} is not known"
            yield Unexplained(DeadKind.UNKNOWN_FIELD, label, reason, rows)
        else:
            right = _WIRE_NAMES[wire_type(one.shape)]
            reason = f"field {label} ({one.name}) is {_WIRE_NAMES[wire]} on the wire, not {right}"
            yield Unexplained(DeadKind.WRONG_WIRE_TYPE, label, reason, rows)
    for number in np.unique(step.number[fits]).tolist():
        one = plan.fields.get(number)
        if one is None or one.shape.scalar not in WIDTHS:
            continue
        here = fits & (step.number == number)
        values, rows = _numbers(data, step, here, owners)
        low, high = WIDTHS[one.shape.scalar]
        signed = values.view(np.int64)
        wide = (signed < low) | (signed > high) if low else values > np.uint64(high)
        if wide.any():
            label = f"{plan.name}{number}"
            reason = f"field {label} ({one.name}): {OWN} does not fit {one.shape.scalar}"
            bad, first = np.unique(rows[wide], return_index=True)
            own = (signed if low else values)[wide][first]
            yield Unexplained(DeadKind.DOES_NOT_FIT, label, reason, bad, own)


def _numbers(
    data: Bytes, step: _Step, here: npt.NDArray[np.bool_], owners: Integers
) -> tuple[npt.NDArray[np.uint64], Integers]:
    """The varints of some fields, single or packed, with their rows."""
    single = here & (step.wire == VARINT)
    values, rows = [step.value[single]], [owners[single]]
    packed = np.flatnonzero(here & (step.wire == LENGTH))
    for at in packed.tolist():
        first, last = int(step.payload[at]), int(step.after[at])
        ends = np.flatnonzero(data[first:last] < 0x80) + first + 1
        starts = np.concatenate([[first], ends[:-1]])[: len(ends)]
        # Up to four bytes are 28 bits: no need to look.
        starts = starts[ends - starts > 4]
        values.append(_varints(data, starts)[0])
        rows.append(np.full(len(starts), owners[at]))
    return np.concatenate(values), np.concatenate(rows).astype(np.int64)


def _inner(
    plan: _Plan, step: _Step, owners: Integers, whole: npt.NDArray[np.bool_]
) -> Iterator[_Part]:
    """The messages in those of these fields that are whole, one part per field number."""
    for number in np.unique(step.number[step.wire == LENGTH]).tolist():
        one = plan.fields.get(number)
        if one is None or one.shape.message is None:
            continue
        here = whole & (step.number == number) & (step.wire == LENGTH)
        inner = {field.number: field for field in one.shape.message.fields}
        name = f"{plan.name}{number}."
        yield _Part(_Plan(name, inner), step.payload[here], step.after[here], owners[here])


def _merge(unexplained: list[Unexplained]) -> list[Unexplained]:
    """Each kind once, with the rows of all steps that met it."""
    groups: dict[tuple[str, str, str], list[Unexplained]] = {}
    for item in unexplained:
        groups.setdefault((item.kind, item.field, item.reason), []).append(item)
    merged = []
    for ones in groups.values():
        rows, first = np.unique(np.concatenate([item.rows for item in ones]), return_index=True)
        numbers = [item.numbers for item in ones if item.numbers is not None]
        own = np.concatenate(numbers)[first] if numbers else None
        merged.append(ones[0]._replace(rows=rows, numbers=own))
    return merged


def _read(data: Bytes, at: Integers) -> _Step:
    """The fields that begin at `at`; none reads beyond the data, whatever they say."""
    tag, payload = _varints(data, at)
    wire = (tag & np.uint64(7)).astype(np.int64)
    number = (tag >> np.uint64(3)).astype(np.int64)
    value = np.zeros(len(at), np.uint64)
    after = payload.copy()
    for kind, size in ((FIXED64, 8), (FIXED32, 4)):
        after[wire == kind] += size
    numbers = np.flatnonzero((wire == VARINT) | (wire == LENGTH))
    value[numbers], after[numbers] = _varints(data, payload[numbers])
    long = np.flatnonzero(wire == LENGTH)
    payload[long] = after[long]
    after[long] += np.minimum(value[long], np.uint64(len(data))).astype(np.int64)
    return _Step(number, wire, value, payload, after)


def _varints(data: Bytes, at: Integers) -> tuple[npt.NDArray[np.uint64], Integers]:
    """The numbers that begin at `at`, and where they end."""
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
