"""Columns `n.a`, `n.b` of a flattened Nested: Arrays that have one length in every row.

Receives such columns as rows decode to, gives them with one length. An INSERT fills an Array
that a row leaves out up to the length of the others; so does this. Lengths that differ
otherwise would fail the INSERT of the whole block, so their rows are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from relay.schema.types.nested import Array, list_lengths, list_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.rows.envelope import Integers
    from relay.schema.types.column_type import ColumnType


def groups(names: Sequence[str], types: Sequence[ColumnType]) -> list[list[int]]:
    """Return indices of the columns of each Nested that has several."""
    found: dict[str, list[int]] = {}
    for at, (name, type_) in enumerate(zip(names, types, strict=True)):
        if "." in name and type(type_.kind) is Array:
            found.setdefault(name.split(".", 1)[0], []).append(at)
    return [group for group in found.values() if len(group) > 1]


def align(
    columns: Sequence[pa.Array[Any]], nested: list[list[int]]
) -> tuple[list[pa.Array[Any]], dict[int, Integers]]:
    """Return the columns with one length per Nested and row.

    Returns:
        The columns, and by index the rows in which one has another length.
    """
    aligned, uneven = list(columns), {}
    for group in nested:
        lengths = np.stack([list_lengths(columns[at]) for at in group])
        wanted = lengths.max(axis=0)
        for at, own in zip(group, lengths, strict=True):
            if (own == wanted).all():
                continue
            wrong = np.flatnonzero((own != wanted) & (own != 0))
            if len(wrong):
                uneven[at] = wrong
            aligned[at] = _filled(columns[at], own, np.where(own == 0, wanted, own))
    return aligned, uneven


def _filled(column: Any, own: Integers, wanted: Integers) -> pa.Array[Any]:
    """Empty lists made as long as wanted, with elements that are left out."""
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    present = np.repeat(own != 0, wanted)
    index = np.cumsum(present) - 1
    items = column.flatten().take(pa.array(index, mask=~present))
    filled: pa.Array[Any] = list_of(offsets, items)
    return filled
