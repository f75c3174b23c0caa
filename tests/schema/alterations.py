"""Alterations of a few tables, planned from a seed; and what every row must be after them.

Receives a seed, gives the steps with their SQL and the tables' columns after each. A column has
an origin, which stays the same through MODIFY, RENAME and a table made anew; what a producer
writes into it follows from origin and row. Pure: no server, no clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Literal, TypeVar

Event = TypeVar("Event")
Kind = Literal["new", "add", "drop", "rename", "modify", "recreate", "exchange", "other"]

COUNT = 50
"""In a full plan; one of fewer has the same events, in the same order."""
ORDERS, PLAIN = "orders", "plain"
LABEL = "label"
"""Of ORDERS: a String until the table is made anew with a number there, that no label fits."""
_NEW = {3: "items", 11: "visits"}
_MADE_ANEW: dict[int, tuple[Kind, str]] = {
    18: ("recreate", ORDERS),
    27: ("exchange", "items"),
    38: ("other", ORDERS),
    44: ("recreate", "visits"),
}
_MIX: list[Kind] = ["add", "add", "drop", "rename", "modify", "modify", "modify"]
MADE_ANEW = {table for _, table in _MADE_ANEW.values()}
"""Tables of which the first one goes, and its rows with it."""
_FIRST_DAY = date(2000, 1, 1)

FAMILIES: dict[str, list[list[str]]] = {
    "number": [
        ["UInt8", "UInt16", "UInt32"],
        ["Int8", "Int16", "Int32"],
        ["String", "LowCardinality(String)", "Decimal(9, 2)", "Decimal(18, 4)"],
        ["UInt64"],
        ["Float64"],
    ],
    "text": [["String", "LowCardinality(String)", "Nullable(String)"]],
    "date": [["Date", "Date32"], ["DateTime('UTC')"]],
}
"""By family, types between which all its values convert; those of a list keep the number."""


@dataclass(frozen=True)
class Column:
    """A column at one time.

    Attributes:
        names: all that it ever had, the last one now.
    """

    origin: int
    family: str
    type: str
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def sql(self) -> str:
        return f"{self.name} {self.type} DEFAULT '{self.wire(self.default)}'"

    def value(self, row: int) -> object:
        """What a producer means by it."""
        if self.family == "number":
            return Decimal((row * 7 + self.origin) % 100)
        if self.family == "date":
            return _FIRST_DAY + timedelta((row + self.origin) % 1000)
        return f"v{row}-{self.origin}"

    @property
    def default(self) -> object:
        """Outside of what producers write."""
        if self.family == "number":
            return Decimal(100 + self.origin % 20)
        return date(2030, 1, 1) if self.family == "date" else f"none-{self.origin}"

    def wire(self, value: object) -> object:
        """The value as a program hands it over for the column's type of now."""
        if isinstance(value, date) and self.type.startswith("DateTime"):
            return f"{value} 00:00:00"
        if isinstance(value, Decimal):
            return str(value) if "String" in self.type or "Decimal" in self.type else int(value)
        return str(value)

    def read(self, value: object) -> object:
        """What ClickHouse's value means; as it is where it means nothing."""
        if isinstance(value, datetime):
            return value.astimezone(UTC).date() if value.tzinfo else value.date()
        if self.family == "number" and value is not None:
            try:
                return Decimal(str(value))
            except ArithmeticError:
                return value
        return value


Columns = dict[str, Column]
"""By name."""


@dataclass(frozen=True)
class Step:
    """One alteration.

    Attributes:
        sql: its statements, with {db}; in a step that makes a table anew, its CREATE.
        tables: all tables after it.
    """

    kind: Kind
    table: str
    sql: str
    tables: dict[str, Columns]


@dataclass
class _Planner:
    dice: random.Random
    count: int
    tables: dict[str, Columns] = field(default_factory=dict)
    origins: int = 0

    def column(self, family: str, name: str = "", type_: str = "") -> Column:
        self.origins += 1
        # A name may come back: that of a column dropped before, with another origin.
        chosen = name or f"{family[0]}{self.dice.randrange(6)}"
        types = self.dice.choice(FAMILIES[family])
        return Column(self.origins, family, type_ or types[0], (chosen,))

    def create(self, table: str) -> str:
        self.tables[table] = {
            one.name: one
            for one in (
                self.column("text", LABEL, "String"),
                self.column("number", "size", "UInt8"),
                self.column("date", "day", "Date"),
            )
        }
        return create(table, self.tables[table])

    def step(self, at: int) -> Step:
        new, made_anew = placed(_NEW, self.count), placed(_MADE_ANEW, self.count)
        if at in new:
            kind, table = "new", new[at]
            sql = self.create(table)
        elif at in made_anew:
            kind, table = made_anew[at]  # type: ignore[assignment]
            if kind == "other":
                self.tables[table][LABEL] = self.column("number", LABEL, "UInt32")
            sql = create(table, self.tables[table])
        else:
            while True:
                kind, table = self.dice.choice(_MIX), self.dice.choice(sorted(self.tables))
                alter = _ALTER[kind](self, table)
                if alter:
                    break
            sql = f"ALTER TABLE {{db}}.{table} {alter}"
        after = {name: dict(columns) for name, columns in self.tables.items()}
        return Step(kind, table, sql, after)  # type: ignore[arg-type]

    def some(self, table: str) -> Column:
        """A column that may change."""
        names = [name for name in self.tables[table] if name != LABEL]
        return self.tables[table][self.dice.choice(names)]

    def add(self, table: str) -> str:
        new = self.column(self.dice.choice(sorted(FAMILIES)))
        if table == PLAIN:  # where no old producer may be left behind: names never come back
            new = replace(new, names=(f"c{new.origin}",))
        if new.name in self.tables[table]:
            return ""
        self.tables[table][new.name] = new
        return f"ADD COLUMN {new.sql}"

    def drop(self, table: str) -> str:
        if len(self.tables[table]) < 4:
            return ""
        gone = self.some(table)
        del self.tables[table][gone.name]
        return f"DROP COLUMN {gone.name}"

    def rename(self, table: str) -> str:
        old = self.some(table)
        name = f"r{self.origins}_{old.origin}"
        if name in self.tables[table]:
            return ""
        self.tables[table][name] = replace(old, names=(*old.names, name))
        del self.tables[table][old.name]
        return f"RENAME COLUMN {old.name} TO {name}"

    def modify(self, table: str) -> str:
        old = self.some(table)
        alike = next(types for types in FAMILIES[old.family] if old.type in types)
        types = alike if table == PLAIN else [*chain.from_iterable(FAMILIES[old.family])]
        # A NULL that is there already does not become a String again.
        others = [] if "Nullable" in old.type else [one for one in types if one != old.type]
        if not others:
            return ""
        new = replace(old, type=self.dice.choice(others))
        self.tables[table][new.name] = new
        return f"MODIFY COLUMN {new.sql}"


_ALTER: dict[str, Callable[[_Planner, str], str]] = {
    "add": _Planner.add,
    "drop": _Planner.drop,
    "rename": _Planner.rename,
    "modify": _Planner.modify,
}


def create(table: str, columns: Columns) -> str:
    """CREATE TABLE with {db}, of a table with these columns beside `n`, the row's number."""
    stamp = "" if table == PLAIN else ", _block String"
    window = 10_000 if table == PLAIN else 1
    return (
        f"CREATE TABLE {{db}}.{table} (n UInt64, "
        f"{', '.join(one.sql for one in columns.values())}{stamp}) ENGINE = MergeTree ORDER BY n "
        f"SETTINGS non_replicated_deduplication_window = {window}"
    )


def placed(events: Mapping[int, Event], count: int) -> dict[int, Event]:
    """What happens at which steps of a full plan, in one of so many steps."""
    return {at * count // COUNT: event for at, event in events.items()}


def plan(seed: int, count: int = COUNT) -> tuple[list[str], dict[str, Columns], list[Step]]:
    """The statements that make the first tables, their columns, and the alterations."""
    planner = _Planner(random.Random(seed), count)
    first = [planner.create(table) for table in (ORDERS, PLAIN)]
    before = {name: dict(columns) for name, columns in planner.tables.items()}
    return first, before, [planner.step(at) for at in range(count)]


def allowed(column: Column, written: Columns, row: int) -> set[object]:
    """What the column may hold in a row whose producer knew the columns `written`.

    A producer that knows it by its name of now: its value. One that does not: the default. In
    between, where it was renamed since, either: the value was in the table before, or it came
    after. A block still under way, or a producer of before, may bring the value of an earlier
    column of the same name.
    """
    known = next((one for one in written.values() if one.origin == column.origin), None)
    found: set[object] = set()
    if known is not None:
        found.add(column.value(row))
    if known is None or known.names != column.names:
        found |= {column.default, None} if "Nullable" in column.type else {column.default}
    earlier = [one for one in written.values() if one.origin != column.origin]
    return found | {one.value(row) for one in earlier if one.name in column.names}
