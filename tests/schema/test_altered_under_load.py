"""Tables are altered again and again while rows are under way; every row is accounted for."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from relay.config.server_settings import ClickHouse
from tests.broker.pipeline import Pipeline
from tests.chaos.programs import Program
from tests.schema.alterations import (
    COUNT,
    LABEL,
    MADE_ANEW,
    ORDERS,
    PLAIN,
    Column,
    Kind,
    allowed,
    placed,
    plan,
)
from tests.schema.altered import Found, judge
from tests.schema.underway import Underway, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

SEED = 1
KILLS = {
    5: ["relay-a"], 9: ["loader"], 13: ["relay-b"], 21: ["relay-a", "loader"], 27: ["loader"],
    33: ["relay-b"], 40: ["relay-a", "relay-b"], 46: ["loader"],
}  # fmt: skip
"""After which alterations of fifty SIGKILL meets whom."""
WENT_WITH_ITS_TABLE = "its parts were dropped or replaced since then"
FIRST, MOST = 2, 5
"""Producers from the beginning, and all at once."""
DEAD = {
    "outdated-field": "a column under its old number",
    "unknown-table": "between DROP and CREATE",
}


@pytest.fixture
def underway(
    bootstrap: str, clickhouse: ClickHouse, app: str, client: Client, database: str, tmp_path: Path
) -> Iterator[Underway]:
    pipeline = Pipeline(bootstrap, clickhouse, app, database, tmp_path)
    pipeline.create_source()
    file = pipeline.config(schema_refresh_seconds=0.3)
    programs = {
        f"relay-{name}": Program(
            f"relay-{name}", ["relay", "run", str(file), "--member", name], tmp_path
        )
        for name in "ab"
    }
    programs["loader"] = Program("loader", ["tests.chaos.bareloader", str(file)], tmp_path)
    made = Underway(pipeline, client, file, programs)
    yield made
    made.close()


@pytest.mark.timeout(600)
@pytest.mark.long
@pytest.mark.parametrize("count", [20, COUNT])
def test_every_row_is_accounted_for(underway: Underway, count: int) -> None:
    """Two relays, a loader, old and new producers, SIGKILLs: at the end each row is once in its
    table with its values, or gone with a table that was dropped, or in a dead letter, or in a
    block that is parked: because no value of it converts, or because it went with its table while
    nobody knew whether it was loaded. A row taken away, doubled or changed by hand is noticed."""
    first, tables, steps = plan(SEED, count)
    kills = placed(KILLS, count)
    for sql in first:
        underway.command(sql)
    underway.tables = tables
    for _ in range(FIRST):
        underway.replace_writer(keep=FIRST, most=MOST)
    underway.write()
    underway.until(lambda: underway.passed(0), "the first rows")

    for at, step in enumerate(steps):
        underway.write()
        underway.alter(step)
        for name in kills.get(at, []):
            underway.programs[name].kill()
        underway.write()
        if at % 3 == 0:
            underway.replace_writer(keep=FIRST, most=MOST)
        underway.until(lambda: underway.passed(3), f"rows written before step {at}")
    underway.write()
    underway.settle()

    assert {step.kind for step in steps} == set(Kind.__args__)
    assert len(kills) == len(KILLS)
    found = underway.found()
    print("\n".join(f"{table}: {of_table.counts()}" for table, of_table in found.items()))
    assert anomalies(underway, found) == []
    underway.pipeline.chain_is_whole()
    _each_parked_block_has_its_reason(underway)
    _dead_letters_have_their_reasons(underway)
    assert all(of_table.rows for of_table in found.values())
    assert found[PLAIN].dead.total() < len(found[PLAIN].rows) / 4
    _changes_by_hand_are_noticed(underway)


def anomalies(underway: Underway, found: dict[str, Found]) -> list[str]:
    return [
        anomaly
        for table, of_table in found.items()
        for anomaly in judge(table, underway.written[table], underway.tables[table], of_table)
    ]


def _each_parked_block_has_its_reason(underway: Underway) -> None:
    """Its labels are no numbers; or a SIGKILL met its INSERT before its table was made anew."""
    unconverted = 0
    for block, why, batch in underway.parked():
        name = block.table.rpartition(".")[2]
        if WENT_WITH_ITS_TABLE in why:
            assert name in MADE_ANEW, why
            continue
        unconverted += 1
        assert name == ORDERS, why
        assert batch.schema.field(LABEL).metadata[b"clickhouse"] == b"String", why
        assert "Cannot parse string" in why
    assert unconverted, "no block of labels was under way when they became numbers"


def _dead_letters_have_their_reasons(underway: Underway) -> None:
    """And where every change was one that old producers need not notice, none of them is dead."""
    dead = Counter()
    for _, headers in underway.pipeline.dead():
        assert headers["kind"] in DEAD, headers
        dead[DEAD[headers["kind"]], headers["table"].endswith(f".{PLAIN}")] += 1
    assert dead["a column under its old number", False]
    assert not dead["a column under its old number", True]


def _changes_by_hand_are_noticed(underway: Underway) -> None:
    table = f"{{db}}.{PLAIN}"
    kept = {row["n"]: row for row in underway.rows(PLAIN)}
    away, twice, other = sorted(kept)[:3]
    name = next(iter(underway.tables[PLAIN]))
    settings = "SETTINGS mutations_sync = 2"
    underway.command(f"ALTER TABLE {table} DELETE WHERE n = {away} {settings}")
    underway.command(f"INSERT INTO {table} SELECT * FROM {table} WHERE n = {twice}")
    underway.command(f"ALTER TABLE {table} UPDATE {name} = 'x' WHERE n = {other} {settings}")
    noticed = anomalies(underway, underway.found())
    assert [one.split(":")[1].split(",")[0] for one in noticed] == [
        f" row {away} is there 0 times",
        f" row {twice} is there 2 times",
        f" row {other}",
    ]


NUMBER = Column(7, "number", "UInt8", ("a",))


def test_what_a_row_may_hold() -> None:
    """Its producer's value where both know the column by one name; the default where the producer
    did not; either where it was renamed between; an earlier column's of the name, too."""
    renamed = Column(7, "number", "String", ("a", "b"))
    again = Column(9, "number", "UInt8", ("a",))
    assert NUMBER.value(3) == Decimal(28)
    assert allowed(NUMBER, {"a": NUMBER}, 3) == {Decimal(28)}
    assert allowed(NUMBER, {}, 3) == {Decimal(107)}
    assert allowed(renamed, {"a": NUMBER}, 3) == {Decimal(28), Decimal(107)}
    assert allowed(renamed, {"b": renamed}, 3) == {Decimal(28)}
    assert allowed(again, {"a": NUMBER}, 3) == {Decimal(109), Decimal(28)}


def test_values_are_the_same_in_every_type() -> None:
    """As numbers, texts and dates are compared, whatever the column's type is at the end."""
    day = Column(1, "date", "DateTime('UTC')", ("d",))
    assert NUMBER.read("28") == NUMBER.read(28.0) == NUMBER.read(Decimal("28.00")) == Decimal(28)
    assert NUMBER.read("x") == "x"
    assert day.wire(date(2000, 1, 2)) == "2000-01-02 00:00:00"
    assert rows_of(b"\x0a\x02\x08\x07\x0a\x04\x12\x00\x08\x08") == [7, 8]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found.rows.pop(), "row 2 is there 0 times"),
        (lambda found: found.rows.append(found.rows[0]), "row 1 is there 2 times"),
        (lambda found: found.rows[0].update(a=5), "row 1, column a (UInt8) is Decimal('5')"),
        (lambda found: found.rows.append({"n": 9, "a": 107}), "row 9 is there 1 times"),
        (lambda found: found.gone.update([1]), "row 1 is there 2 times"),
        (lambda found: found.dead.update([1]), "1 in the table, 0 gone with it, 1 dead"),
        (lambda found: found.parked.update([2]), "1 in the table, 0 gone with it, 0 dead, 1"),
        (lambda found: found.gone.subtract([3]), "row 3 is there 0 times"),
    ],
)
def test_the_judge_sees(change: object, said: str) -> None:
    """Each way in which a row can be wrong; and nothing where none is."""
    written = {1: {"a": NUMBER}, 2: {}, 3: {}, 4: {}}
    rows = [{"n": n, "a": value} for n, value in ((1, 14), (2, 107))]
    found = Found(rows, gone=Counter([3]), perhaps=Counter([4, 1]))
    assert judge("t", written, {"a": NUMBER}, found) == []
    change(found)  # type: ignore[operator]
    assert said in "\n".join(judge("t", written, {"a": NUMBER}, found))


def test_a_plan_is_the_same_again() -> None:
    """From its seed; and the first columns of a plan are its tables'."""
    assert plan(SEED) == plan(SEED) != plan(SEED + 1)
    first, tables, steps = plan(SEED)
    assert [sql.split()[2] for sql in first] == [f"{{db}}.{table}" for table in tables]
    assert all(LABEL in columns for columns in steps[-1].tables.values())
