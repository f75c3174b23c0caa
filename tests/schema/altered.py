"""Judges what became of rows whose tables were altered under way. Pure.

Receives what was written and where rows were found, gives a sentence per anomaly.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.schema.alterations import Columns, allowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST = 20


@dataclass
class Found:
    """Where the rows of one table are.

    Attributes:
        rows: of the table, by column.
        gone: rows of a table that was dropped, whose blocks the ledger called loaded then.
        perhaps: of such a table, whose blocks the ledger did not call loaded then: they count where
            they are nowhere else. The loader called them loaded a moment later, or a loader after
            it did, who read in the server's log that the INSERT had ended in the old table.
        dead, parked: rows in dead letters and in parked blocks.
    """

    rows: list[dict[str, Any]]
    gone: Counter[int] = field(default_factory=Counter)
    perhaps: Counter[int] = field(default_factory=Counter)
    dead: Counter[int] = field(default_factory=Counter)
    parked: Counter[int] = field(default_factory=Counter)

    def counts(self) -> dict[str, int]:
        """How many rows are where."""
        rows = {name: held.total() for name, held in vars(self).items() if name != "rows"}
        return {"rows": len(self.rows), **rows}


def judge(table: str, written: Mapping[int, Columns], columns: Columns, found: Found) -> list[str]:
    """Anomalies, at most MOST.

    Args:
        table: named in them.
        written: by row, the columns that its producer knew.
        columns: of the table at the end.
        found: where its rows are.
    """
    here = Counter(row["n"] for row in found.rows)
    places = here + found.gone + found.dead + found.parked
    for row in found.perhaps.keys() - places.keys():
        places[row] = found.perhaps[row]
    anomalies = [
        f"{table}: row {row} is there {places[row]} times: {here[row]} in the table, "
        f"{found.gone[row]} gone with it, {found.dead[row]} dead, {found.parked[row]} parked"
        for row in sorted(written.keys() | places.keys())
        if places[row] != (row in written)
    ]
    return [*anomalies, *_values(table, written, columns, found.rows)][:MOST]


def _values(
    table: str, written: Mapping[int, Columns], columns: Columns, rows: Iterable[dict[str, Any]]
) -> list[str]:
    anomalies = []
    for row in rows:
        n = row["n"]
        for name, column in columns.items():
            expected = allowed(column, written.get(n, {}), n)
            if (value := column.read(row[name])) not in expected:
                anomalies.append(
                    f"{table}: row {n}, column {name} ({column.type}) is {value!r}, "
                    f"not one of {sorted(map(repr, expected))}"
                )
    return anomalies
