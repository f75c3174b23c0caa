"""Blocks whose table is not what it was when they were made."""

from __future__ import annotations

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks.worker import Worker
from loader.clickhouse.ledger import Ledger
from loader.core.retry_cause import RetryCause
from relay.schema.types.column_type import parse_type
from tests.loader.blocks import Journal, batch, parked_blocks
from tests.loader.test_work import copies, make, outcomes

AB = "Enum8('a' = 1, 'b' = 2)"
CONVERSIONS = [
    ("UInt8", 200, "UInt64", "200"),
    ("UInt32", 7, "String", "7"),
    ("UInt32", 7, "Decimal(18, 2)", "7"),
    ("UInt8", 1, "Bool", "true"),
    ("Int64", -7, "Nullable(Int8)", "-7"),
    ("String", "7", "UInt16", "7"),
    ("String", "up", "Enum8('up' = 1)", "up"),
    ("Int8", 2, "Enum8('up' = 2)", "up"),
    ("Array(Int16)", [2], "Array(Enum8('up' = 2))", "['up']"),
    ("LowCardinality(String)", "x", "Nullable(String)", "x"),
    ("Nullable(String)", "x", "LowCardinality(String)", "x"),
    ("Enum8('up' = 1)", "up", "Enum16('up' = 1, 'down' = 2)", "up"),
    ("Enum8('up' = 1)", "up", "Int16", "1"),
    ("Enum8('up' = 1)", "up", "String", "up"),
    ("Decimal(9, 2)", "1.5", "Decimal(18, 4)", "1.5"),
    ("Float32", 0.5, "Float64", "0.5"),
    ("Date", 1, "Date32", "1970-01-02"),
    ("Date", 1, "DateTime('UTC')", "1970-01-02 00:00:00"),
    ("DateTime('UTC')", 60, "DateTime64(3, 'UTC')", "1970-01-01 00:01:00.000"),
    ("DateTime64(3, 'UTC')", 1_500, "DateTime64(6, 'UTC')", "1970-01-01 00:00:01.500000"),
    ("Nullable(String)", None, "UInt16 DEFAULT 7", "7"),
    ("Enum8('up' = 1)", None, "Int16 DEFAULT 7", "7"),
    ("UInt64", 7, "SimpleAggregateFunction(max, UInt64)", "7"),
    ("Array(UInt8)", [1, 200], "Array(UInt16)", "[1,200]"),
    (AB, "b", "Enum8('a' = 1, 'c' = 2, 'b' = 3)", "b"),
    (f"Nullable({AB})", None, "Enum8('b' = 7) DEFAULT 'b'", "b"),
    (f"Array({AB})", ["b", "a"], "Array(Enum8('a' = 2, 'b' = 1))", "['b','a']"),
    (
        f"Array(Nullable({AB}))",
        [{"value": "b"}, {}],
        "Array(Nullable(Enum8('b' = 1)))",
        "['b',NULL]",
    ),
    (f"Map(Int8, {AB})", [{"key": 4, "value": "b"}], "Map(Int8, Enum16('b' = 1))", "{4:'b'}"),
    (f"Tuple(e {AB}, n UInt8)", {"e": "b", "n": 9}, "Tuple(n UInt16, e Enum8('b' = 1))", "(9,'b')"),
]
"""Type as recorded, value as a row holds it, type of the table, what is found there."""


def recorded(columns: dict[str, tuple[str, object]]) -> pa.RecordBatch:
    """A block of one row, as the relay makes it of columns of these types."""
    arrays, fields = [], []
    for name, (text, value) in columns.items():
        kind = parse_type(text)
        arrays.append(kind.narrow(pa.array([value], kind.wire)).array)
        fields.append(pa.field(name, kind.arrow, metadata={b"clickhouse": text.encode()}))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@pytest.fixture
def table(client: Client, database: str) -> str:
    return make(client, f"{database}.stamped", stamped=True)


def test_columns_come_and_go(journal: Journal, worker: Worker, client: Client, table: str) -> None:
    """What the table lost, or computes now, is left out; what it has more takes its DEFAULT."""
    blocks = journal.seal(table, batch(0, 10))
    client.command(f"ALTER TABLE {table} DROP COLUMN name, ADD COLUMN more Int8 DEFAULT 7")
    assert outcomes(worker.load(blocks)) == ["loaded"]
    assert client.query(f"SELECT DISTINCT more FROM {table}").result_rows == [(7,)]

    client.command(f"ALTER TABLE {table} ADD COLUMN name String MATERIALIZED 'made'")
    assert outcomes(worker.load(journal.seal(table, batch(10, 10)))) == ["loaded"]
    assert copies(client, table) == (20, 20)
    assert client.query(f"SELECT DISTINCT name FROM {table}").result_rows == [("made",)]


def test_nothing_of_a_block_is_left(
    journal: Journal, worker: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """Rows of defaults alone would be rows that nobody wrote: parked, with the names."""
    other = f"{database}.other"
    client.command(f"CREATE TABLE {other} (x Int8, _block String) ENGINE = MergeTree ORDER BY x")
    assert outcomes(worker.load(journal.seal(other, batch(0, 10)))) == ["parked"]
    ((_, why),) = parked_blocks(ledger)
    assert why.endswith("it has none of the block's columns id, name")


def test_values_are_those_of_the_recorded_type(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """A value becomes the table's type of now as an ALTER would have changed it: a Date is days
    also where the table has a DateTime."""
    table = f"{database}.changed"
    now = ", ".join(f"c{at} {after}" for at, (*_, after, _) in enumerate(CONVERSIONS))
    client.command(f"CREATE TABLE {table} ({now}) ENGINE = MergeTree ORDER BY ()")
    block = recorded({f"c{at}": one[:2] for at, one in enumerate(CONVERSIONS)})
    (done,) = worker.load(journal.seal(table, block))
    assert done.outcome == "loaded", done.reason
    texts = ", ".join(f"toString(c{at})" for at in range(len(CONVERSIONS)))
    (found,) = client.query(f"SELECT {texts} FROM {table}").result_rows
    assert list(found) == [one[3] for one in CONVERSIONS]


WRAPPED = [
    ("Date32", -7305, "Date"),
    ("Date32", 120_000, "DateTime('UTC')"),
    ("Date", 65_535, "DateTime('UTC')"),
    ("DateTime64(3, 'UTC')", -1, "DateTime('UTC')"),
    ("DateTime64(3, 'UTC')", 6_000_000_000_000, "Nullable(Date)"),
    ("Nullable(Date32)", -7305, "Date"),
    ("Array(Date32)", [1, -7305], "Array(Date)"),
    ("String", "2200-01-01", "Date"),
]
"""Type as recorded, value as a row holds it, type of the table, which does not hold it."""


@pytest.mark.parametrize(("before", "value", "now"), WRAPPED)
def test_a_date_that_the_type_of_now_does_not_hold_is_parked(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    before: str,
    value: object,
    now: str,
) -> None:
    """It came out as another date, of 2129 for 1950. The table's DEFAULTs cast as they did."""
    table = f"{database}.dates"
    wraps = "w Date DEFAULT CAST(toDate32('1950-01-01'), 'Date')"
    client.command(
        f"CREATE TABLE {table} (id Int64, d {now}, {wraps}) ENGINE = MergeTree ORDER BY ()"
    )
    rows = [
        recorded({"id": ("Int64", n), "d": (before, one)})
        for n, one in enumerate([value, _fitting(value)])
    ]
    done = [worker.load([block])[0].outcome for block in journal.seal(table, *rows)]
    assert done == ["parked", "loaded"]
    found = client.query(f"SELECT toString(d), toString(w) FROM {table}").result_rows
    assert [(row[0].strip("[']")[:10], row[1]) for row in found] == [("1970-01-02", "2129-06-07")]


LOST = [
    (AB, "b", "Enum8('a' = 1, 'c' = 2)"),
    (AB, "b", "Enum8('a' = 1)"),
    (f"Nullable({AB})", "b", "Nullable(Enum8('a' = 1, 'c' = 2))"),
    (f"Array({AB})", ["a", "b"], "Array(Nullable(Enum8('a' = 1, 'c' = 2)))"),
    (f"Map({AB}, UInt8)", [{"key": "b", "value": 1}], "Map(Enum8('a' = 1, 'c' = 2), UInt16)"),
    (f"Tuple({AB}, UInt8)", {"v1": "b", "v2": 1}, "Tuple(Enum8('a' = 1, 'c' = 2), UInt16)"),
    ("UInt8", 2, "Enum8('a' = 1)"),
    ("Array(Int16)", [1, 2], "Array(Enum8('a' = 1))"),
]
"""Type as recorded, value as a row holds it, an Enum of now that has no name for it."""


@pytest.mark.parametrize(("before", "value", "now"), LOST)
def test_a_value_that_the_enum_of_now_has_not_is_parked(
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    before: str,
    value: object,
    now: str,
) -> None:
    """It got the name that has its number now, or none, and then nobody could read the column."""
    table = f"{database}.enums"
    client.command(f"CREATE TABLE {table} (id Int64, e {now}) ENGINE = MergeTree ORDER BY ()")
    rows = [recorded({"id": ("Int64", 1), "e": (before, value)})]
    assert outcomes(worker.load(journal.seal(table, *rows))) == ["parked"]
    assert client.query(f"SELECT toString(e) FROM {table}").result_rows == []


def test_casts_of_dates_read_columns_of_any_name(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """An alias of the statement's own was read instead of the column that is called so."""
    names = ["id", "c0", "cast_0", "c1", "cast__3", "c2"]
    numbers = {name: ("UInt64", 10 + at) for at, name in enumerate(names)}
    table = f"{database}.named"
    columns = ", ".join(f"{name} UInt64" for name in numbers)
    client.command(
        f"CREATE TABLE {table} ({columns}, d DateTime('UTC')) ENGINE = MergeTree ORDER BY ()"
    )
    (block,) = journal.seal(table, recorded({**numbers, "d": ("Date", 1)}))
    assert outcomes(worker.load([block])) == ["loaded"]
    (found,) = client.query(f"SELECT {', '.join(names)}, toString(d) FROM {table}").result_rows
    assert found == (*range(10, 16), "1970-01-02 00:00:00")


def _fitting(value: object) -> object:
    """The second of January 1970, as the type recorded holds it."""
    if isinstance(value, list):
        return [1]
    if isinstance(value, str):
        return "1970-01-02"
    return 86_400_000 if value in {-1, 6_000_000_000_000} else 1


ALTERED = {
    "narrower": "MODIFY COLUMN id UInt8",
    "dropped": "DROP COLUMN name",
    "renamed": "RENAME COLUMN name TO title",
    "added": "ADD COLUMN more Int8",
}


@pytest.mark.parametrize("kind", ALTERED)
def test_altered_between_look_and_insert(
    kind: str,
    journal: Journal,
    worker: Worker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An INSERT made for other columns inserts nothing and parks nothing: it is made again. What
    does not fit then is parked, never wrapped."""
    table = f"{database}.late"
    client.command(f"CREATE TABLE {table} (id Int64, name String) ENGINE = MergeTree ORDER BY ()")
    blocks = journal.seal(table, batch(250, 10))
    fetch = worker._fetcher.fetch

    def late(*arguments: object) -> pa.RecordBatch:
        client.command(f"ALTER TABLE {table} {ALTERED[kind]}")
        return fetch(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(worker._fetcher, "fetch", late)
        (done,) = worker.load(blocks)
    assert (done.outcome, done.cause) == ("retry", RetryCause.TABLE_ALTERED)
    assert "altered meanwhile" in done.reason
    assert copies(client, table) == (0, 0)
    (done,) = worker.load(blocks)
    if kind == "narrower":
        assert (done.outcome, copies(client, table)) == ("parked", (0, 0))
    else:
        assert (done.outcome, copies(client, table)) == ("loaded", (10, 10))
