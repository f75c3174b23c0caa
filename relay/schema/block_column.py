"""Says whether a column holds the ids of blocks, and how one is made to; pure.

Receives a column's type as ClickHouse prints it. The loader, which fills the column, and the
doctor, which looks at it before, ask here.
"""

# pure

from __future__ import annotations

import re

from relay.clickhouse.quoting import readable, readable_name
from relay.schema.types.column_type import UnsupportedType, parse_type
from relay.schema.types.ticks import base_type

_FIXED = re.compile(r"FixedString\((\d+)\)")


def holds(type_: str, block_id: str) -> bool:
    """Return whether such a column takes the id in an INSERT, and a count finds it there."""
    try:
        base = base_type(parse_type(type_).kind.text)
    except UnsupportedType:
        return False
    fixed = _FIXED.fullmatch(base)
    return base == "String" or (fixed is not None and int(fixed[1]) >= len(block_id.encode()))


def as_string(table: str, column: str) -> str:
    """Return the statement after which the column holds every id."""
    return f"ALTER TABLE {readable(table)} MODIFY COLUMN {readable_name(column)} String"


def misfit(table: str, column: str, type_: str | None, block_id: str) -> str:
    """Return why the id cannot be written into the table's column, and what to do; "": it can.

    A `type_` of None means that rows get no id, as the table has no such column to fill.
    """
    if type_ is None or holds(type_, block_id):
        return ""
    return (
        f"{table}: column {column} is {type_}, which does not hold the block's id: "
        f"{as_string(table, column)}, or name another column in loader.block_column"
    )
