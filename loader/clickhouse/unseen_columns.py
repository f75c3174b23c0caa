"""Whether a table has columns of a block that this user does not see. Asks nobody.

system.columns shows a user only columns on which it has a right, and so one that it may not fill
looks like one that was dropped. Of the latter an INSERT leaves out the values, of the former it may
not: the column would have its DEFAULT for ever, in blocks that are called loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.clickhouse.quoting import readable, readable_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loader.clickhouse.tables import Target

GRANT = "Give the loader's user that right; its blocks wait for it."


def unseen(table: str, target: Target, columns: Iterable[str]) -> str:
    """Return why the values of some of these columns must not be left out; "": they may be.

    `target`: the table, looked at after the columns were known.
    """
    if target.unseen is None:
        if not (lacking := sorted(set(columns) - target.columns.keys())):
            return ""
        return (
            f"whether {table} has column {', '.join(lacking)} is not known: it shows this user "
            f"neither that column nor its definition (create_table_query in system.tables)"
        )
    if not (hidden := sorted(target.unseen.intersection(columns))):
        return ""
    listed = ", ".join(map(readable_name, hidden))
    return (
        f"{table} has column {', '.join(hidden)}, which this user may not fill: "
        f"GRANT INSERT({listed}) ON {readable(table)} is missing"
    )
