"""What the demo shows: bars while it works, a table, an answer, one last line."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from relay.dev.demo.compare import Difference
from relay.dev.demo.data import DATABASE

QUESTION = "Which ten routes had the worst mean arrival delay in 2013? (at least {least} flights)"
ANSWER = f"""
SELECT
    concat(f.origin, ' - ', f.dest) AS route,
    if(o.name = '', toString(f.origin), o.name) AS origin,
    if(d.name = '', toString(f.dest), d.name) AS destination,
    count() AS flights,
    round(avg(f.arr_delay), 1) AS mean_delay_minutes
FROM {DATABASE}.flights AS f
LEFT JOIN {DATABASE}.airports AS o ON toString(f.origin) = toString(o.faa)
LEFT JOIN {DATABASE}.airports AS d ON toString(f.dest) = toString(d.faa)
GROUP BY route, origin, destination
HAVING count(f.arr_delay) >= {{least}}
ORDER BY mean_delay_minutes DESC, route
LIMIT 10
"""
"""Some airports abroad are not in `airports`: their code stands for their name."""


class RowCounts(NamedTuple):
    """Rows at three places, at one moment."""

    sent: int
    in_blocks: int
    in_clickhouse: int


class Bars:
    """Three bars: rows sent, in blocks, in ClickHouse, of a total."""

    def __init__(self, console: Console, total: int) -> None:
        self.progress = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        names = ("sent", "in blocks", "in ClickHouse")
        self._tasks = [self.progress.add_task(name, total=total) for name in names]

    def show(self, counts: RowCounts) -> None:
        """Move the bars."""
        for task, count in zip(self._tasks, counts, strict=True):
            self.progress.update(task, completed=count)


def results(differences: dict[str, Difference], blocks: dict[str, int]) -> Table:
    """Return per table what was sent and what arrived."""
    shown = Table(title="What was sent, and what ClickHouse holds (compared by contents)")
    shown.add_column("table")
    for name in ("rows sent", "blocks", "rows in ClickHouse", "duplicates", "missing", "changed"):
        shown.add_column(name, justify="right")
    for table, d in differences.items():
        numbers = (d.sent, blocks.get(table, 0), d.received, d.duplicates, d.missing, d.foreign)
        shown.add_row(table, *(f"{number:,}" for number in numbers))
    return shown


def answer(rows: pa.Table, least: int) -> Table:
    """Return the answer to the question, as a table."""
    shown = Table(title=QUESTION.format(least=least))
    for name in rows.column_names:
        shown.add_column(name.replace("_", " "))
    for row in rows.to_pylist():
        shown.add_row(*(str(value) for value in row.values()))
    return shown
