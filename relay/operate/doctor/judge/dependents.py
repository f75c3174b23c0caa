"""Finds the materialized views that an INSERT reaches, also through views; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from relay.clickhouse.table_engine import view_target
from relay.operate.doctor.facts import TargetFacts, View


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A row of system.tables.

    Attributes:
        uuid: empty of a database that gives none.
        create: its CREATE statement.
        select: of a view.
        dependents: views that an INSERT into it reaches, as (database, name).
    """

    database: str
    name: str
    uuid: str
    engine: str
    engine_full: str
    partition_key: str
    create: str
    select: str
    dependents: Sequence[tuple[str, str]]


Rows = Mapping[tuple[str, str], SystemTable]


def table(rows: Rows, database: str, name: str) -> TargetFacts | None:
    """Return the table with its views; None where it is not there."""
    row = rows.get((database, name))
    if row is None:
        return None
    return replace(_alone(row), views=tuple(_views(rows, row, set())))


def unseen(rows: Rows, database: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the views, and tables that they fill, which get rows of a table and `rows` lack.

    They are hidden from this user, or gone since. Nothing is judged of them.
    """
    places, seen = [(database, name)], set[tuple[str, str]]()
    while places:
        place = places.pop()
        if place in seen:
            continue
        seen.add(place)
        if (row := rows.get(place)) is None:
            yield place
            continue
        places += row.dependents
        if row.engine == "MaterializedView":
            places.append(view_target(row.database, row.name, row.uuid, row.create))


def _alone(row: SystemTable) -> TargetFacts:
    return TargetFacts(row.engine, row.engine_full, row.partition_key, create=row.create)


def _views(rows: Rows, row: SystemTable, seen: set[tuple[str, str]]) -> Iterator[View]:
    for place in row.dependents:
        view = rows.get(place)
        if place in seen or view is None or view.engine != "MaterializedView":
            continue
        seen.add(place)
        into_place = view_target(view.database, view.name, view.uuid, view.create)
        into = rows.get(into_place)
        name = f"{view.database}.{view.name}"
        alone = None if into is None else _alone(into)
        yield View(name, view.select, alone, ".".join(into_place))
        if into is not None:
            yield from _views(rows, into, seen)
