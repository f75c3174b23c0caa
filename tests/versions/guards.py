"""The loader's guards, each run against one server; a guard that does not hold raises Red.

The loader's own worker does the work, as in production, without Spark; blocks come from a broker.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.blocks import insert_groups, insert_statement
from loader.blocks.attempt import Outcome
from loader.blocks.worker import Worker
from loader.clickhouse import client as clickhouse_client
from loader.clickhouse import dedup_trial
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.tables import Tables
from loader.core import plan
from loader.core.entries import NewEntry
from loader.journal.startup import ledger_of
from relay.clickhouse.insert_settings import deduplicated, known
from relay.config.settings import Settings
from relay.errors import RelayError
from relay.operate.doctor import grants
from relay.operate.doctor.grants import ClickHouseRight
from relay.operate.doctor.versions import parsed
from relay.records_pb2 import Block
from tests.loader.blocks import Journal, batch
from tests.loader.test_work import copies, killed, make
from tests.versions.engines import ADMIN, Engine
from tests.versions.users import User

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

ROWS = 1000
DATABASE = "guards"
GRANTED = f"{DATABASE}.granted"
"""The table that the users of `rights` are for; their ledger is in `relay`."""


class Red(Exception):
    """A guard does not hold."""


class Absent(Exception):
    """What a guard needs is not there on this server: why."""


class Bench:
    """One server and one app with its topics and ledger."""

    def __init__(self, engine: Engine, bootstrap: str, directory: Path) -> None:
        self.engine = engine
        directory.mkdir(parents=True, exist_ok=True)
        app = f"g{uuid.uuid4().hex[:10]}"
        self.journal = Journal(bootstrap, engine.reached_as(ADMIN), app, directory)
        self.settings = self.journal.settings()
        self.client: Client = engine.client()
        self.client.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        self.ledger: Ledger = ledger_of(self.settings, make=True)
        self.worker = Worker(self.settings)

    def ledger_of(self) -> Ledger:
        """Made anew where it is not there, over a new connection."""
        return ledger_of(self.settings, make=True)

    def close(self) -> None:
        self.worker.close()
        self.client.close()
        del self.journal  # its clients, before the broker goes

    def table(self, *, stamped: bool = False, window: int = 100, extra: str = "") -> str:
        name = f"{DATABASE}.t{uuid.uuid4().hex[:10]}"
        return make(self.client, name, stamped=stamped, window=window, extra=extra)

    def block(self, table: str, rows: int = ROWS, first: int = 0) -> Block:
        (one,) = self.journal.seal(table, batch(first, rows))
        return one

    def load(self, *blocks: Block, worker: Worker | None = None) -> list[Outcome]:
        """Until none is to be tried again; at most ten times."""
        left, done, why = {block.id: block for block in blocks}, {}, ""
        for _ in range(10):
            for one in (worker or self.worker).load(list(left.values())):
                why = one.reason
                if one.outcome != "retry":
                    done[one.block] = one
                    del left[one.block]
            if not left:
                return [done[block.id] for block in blocks]
        raise Red(f"not settled after ten attempts: {sorted(left)}: {why}")

    def loaded(self, *blocks: Block) -> None:
        for one in self.load(*blocks):
            if one.outcome != "loaded":
                raise Red(f"{one.outcome}: {one.reason}")

    def holds(self, table: str, rows: int = ROWS) -> None:
        expect("(rows, different rows)", copies(self.client, table), (rows, rows))

    def count(self, table: str) -> int:
        return int(str(self.client.command(f"SELECT count() FROM {table}")))


Guard = Callable[[Bench], None]
GUARDS: dict[str, Guard] = {}


def expect(what: str, seen: object, right: object) -> None:
    if seen != right:
        raise Red(f"{what}: {seen}, not {right}")


def guard(what: str) -> Callable[[Guard], Guard]:
    def named(function: Guard) -> Guard:
        GUARDS[what] = function
        return function

    return named


@guard("a repeated INSERT is dropped")
def trial_at_start(bench: Bench) -> None:
    if untried := dedup_trial.check(bench.ledger.client, bench.settings.loader.database):
        raise Red(untried)


@guard("killed after the INSERT, started again, by the token")
def killed_bare(bench: Bench) -> None:
    _killed(bench, bench.table())


@guard("killed after the INSERT, started again, with the block column")
def killed_stamped(bench: Bench) -> None:
    _killed(bench, bench.table(stamped=True))


@guard("killed before the INSERT, started again")
def killed_before(bench: Bench) -> None:
    table = bench.table()
    block = bench.block(table)
    killed(bench.journal, [block], "after_prepare")
    bench.holds(table, 0)
    bench.loaded(block)
    bench.holds(table)


def _killed(bench: Bench, table: str) -> None:
    block = bench.block(table)
    killed(bench.journal, [block], "after_insert")
    bench.holds(table)
    bench.loaded(block)
    bench.holds(table)


@guard("a date that a narrower type does not hold parks its block, and is not wrapped")
def narrowed(bench: Bench) -> None:
    table = f"{DATABASE}.t{uuid.uuid4().hex[:10]}"
    columns = "id Int64, d Date, w Date DEFAULT CAST(toDate32('1950-01-01'), 'Date')"
    bench.client.command(f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY id")
    days = [pa.field("d", pa.int32(), metadata={b"clickhouse": b"Date32"})]
    schema = pa.schema([pa.field("id", pa.int64(), metadata={b"clickhouse": b"Int64"}), *days])
    rows = [
        pa.RecordBatch.from_arrays([pa.array([n]), pa.array([day], pa.int32())], schema=schema)
        for n, day in enumerate([-7305, 1])
    ]
    done = [one.outcome for one in bench.load(*bench.journal.seal(table, *rows))]
    expect("outcomes", done, ["parked", "loaded"])
    found = bench.client.query(f"SELECT toString(d), toString(w) FROM {table}").result_rows
    expect("rows", [tuple(row) for row in found], [("1970-01-02", "2129-06-07")])


@guard("without a claim the INSERT inserts nothing, and 0 written rows say so")
def conditional(bench: Bench) -> None:
    table = bench.table()
    block = bench.block(table)
    target = Tables(bench.ledger.client, "_block").look({table})[table]
    answer = insert_statement.insert(
        bench.ledger.client,
        bench.ledger,
        [block],
        batch(0, ROWS),
        "nobody's",
        target,
        stamp="_block",
        limit=None,
        token=1,
    )
    expect("the answer", answer, plan.Wrote(0))
    bench.holds(table, 0)


@guard("the answer says how many rows were written")
def written(bench: Bench) -> None:
    table = bench.table()
    block = bench.block(table)
    answers: list[object] = []
    real = insert_groups.insert

    def heard(*arguments: object, **named: object) -> plan.Answer:
        answers.append(real(*arguments, **named))  # type: ignore[arg-type]
        return answers[-1]  # type: ignore[return-value]

    insert_groups.insert = heard  # type: ignore[assignment]
    try:
        bench.loaded(block)
    finally:
        insert_groups.insert = real
    expect("answers", answers, [plan.Wrote(ROWS)])


@guard("a block over 7 partitions, of which an interrupted INSERT left 6")
def partitions(bench: Bench) -> None:
    """The repeat adds the seventh. Without a part log nobody knows what was dropped: parked."""
    for stamped in (True, False):
        name = f"{DATABASE}.p{uuid.uuid4().hex[:10]}"
        stamp = ", _block String" if stamped else ""
        bench.client.command(
            f"CREATE TABLE {name} (id Int64, name LowCardinality(String){stamp}) "
            "ENGINE = MergeTree PARTITION BY id % 7 ORDER BY id "
            "SETTINGS non_replicated_deduplication_window = 100"
        )
        block = bench.block(name)
        if stamped:
            killed(bench.journal, [block], "after_insert")
            bench.loaded(block)
            bench.holds(name)
            continue
        killed(bench.journal, [block], "after_prepare")
        sent = known(deduplicated(block.id, ROWS), bench.client.server_settings)
        bench.client.command(
            f"INSERT INTO {name} SELECT number, 'x' FROM numbers({ROWS}) WHERE number % 7 != 3",
            settings=sent,
        )
        (done,) = bench.load(block)
        logged = bench.client.command("EXISTS TABLE system.part_log")
        right = ("loaded", ROWS) if int(str(logged)) else ("parked", 857)
        expect("outcome, rows", (done.outcome, bench.count(name)), right)


@guard("messages that a CHECK refuses are left out, the rest is loaded")
def left_out(bench: Bench) -> None:
    name = f"{DATABASE}.c{uuid.uuid4().hex[:10]}"
    bench.client.command(
        f"CREATE TABLE {name} (id Int64, name LowCardinality(String), _block String, "
        "CONSTRAINT known CHECK id NOT IN (7, 500)) ENGINE = MergeTree ORDER BY id"
    )
    (block,) = bench.journal.seal(name, batch(0, ROWS), each=1)
    with contextlib.closing(Worker(bench.settings, isolates=True)) as worker:
        (one,) = bench.load(block, worker=worker)
    expect("outcome, left out", (one.outcome, one.left_out), ("loaded", 2))
    bench.holds(name, ROWS - 2)


@guard("what a view writes, once")
def view(bench: Bench) -> None:
    table = bench.table()
    behind = bench.table()
    bench.client.command(
        f"CREATE MATERIALIZED VIEW {table}_v TO {behind} AS SELECT id, name FROM {table}"
    )
    block = bench.block(table)
    killed(bench.journal, [block], "after_insert")
    bench.loaded(block)
    bench.holds(table)
    bench.holds(behind)


@guard("an INSERT that still runs is seen by its comment")
def running(bench: Bench) -> None:
    table = f"{DATABASE}.s{uuid.uuid4().hex[:10]}"
    bench.client.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), "
        "slow UInt8 MATERIALIZED sleepEachRow(0.5)) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    block = bench.block(table, 4)
    loading = threading.Thread(target=bench.worker.load, args=([block],))
    sql = "SELECT count() FROM system.processes WHERE Settings['log_comment'] LIKE {like:String}"
    loading.start()
    try:
        deadline = time.monotonic() + 60
        seen = 0
        while loading.is_alive() and not seen and time.monotonic() < deadline:
            with contextlib.closing(bench.engine.client()) as other:
                like = {"like": f"%{block.id}%"}
                seen = int(other.query(sql, parameters=like).result_rows[0][0])
    finally:
        loading.join()
    if not seen:
        raise Red("no statement with the block's id was in system.processes")
    bench.holds(table, 4)


@guard("errors: each with the code that decides")
def codes(bench: Bench) -> None:
    client = bench.ledger.client
    table = bench.table()
    cases = {
        60: f"SELECT 1 FROM {DATABASE}.nowhere",
        115: "SELECT 1 SETTINGS no_such_setting = 1",
        27: f"INSERT INTO {table} (id) FORMAT TSV",
    }
    for code, sql in cases.items():
        try:
            client.command(sql, data=b"x\n" if " FORMAT " in sql else None)
        except ClickHouseError as error:
            expect("code", clickhouse_client.error_code(error), code)
            expect(f"{code} passes by itself", clickhouse_client.is_permanent(error), right=True)
        else:
            raise Red(f"no error: {sql}")
    (gone,) = bench.worker.load([bench.block(f"{DATABASE}.nowhere")])
    expect("a block without its table", gone.outcome, "retry")
    expect("its reason names the table", f"no table {DATABASE}.nowhere" in gone.reason, right=True)


@guard("settings that the server does not know are left out")
def unknown_settings(bench: Bench) -> None:
    real = insert_statement.settings
    insert_statement.settings = lambda *a, **k: real(*a, **k) | {"a_setting_of_tomorrow": 1}
    try:
        table = bench.table()
        bench.loaded(bench.block(table))
        bench.holds(table)
    finally:
        insert_statement.settings = real


@guard("types: dates, decimals, enums, arrays and maps arrive as they were sent")
def types(bench: Bench) -> None:
    name = f"{DATABASE}.y{uuid.uuid4().hex[:10]}"
    columns = {
        "id": ("Int64", pa.int64(), 7),
        "d": ("Decimal(18, 4)", pa.decimal128(18, 4), "1.2500"),
        "tags": ("Array(String)", pa.list_(pa.string()), ["a", "b"]),
        "maybe": ("Nullable(Float64)", pa.float64(), None),
    }
    kinds = ", ".join(f"{column} {kind}" for column, (kind, _, _) in columns.items())
    bench.client.command(
        f"CREATE TABLE {name} ({kinds}) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    schema = pa.schema(
        pa.field(c, kind, metadata={b"clickhouse": text.encode()})
        for c, (text, kind, _) in columns.items()
    )
    arrays = [
        pa.array([value]).cast(kind) if column == "d" else pa.array([value], kind)
        for column, (_, kind, value) in columns.items()
    ]
    (block,) = bench.journal.seal(name, pa.RecordBatch.from_arrays(arrays, schema=schema))
    bench.loaded(block)
    row = bench.client.query(f"SELECT id, toString(d), tags, maybe FROM {name}").result_rows
    expect("rows", row, [(7, "1.25", ["a", "b"], None)])


@guard("the printed rights are enough, and each is missed by name")
def rights(bench: Bench) -> None:
    """Of the users that the server has for it: see rights_users()."""
    version = bench.engine.release.engine
    bench.client.command(f"DROP TABLE IF EXISTS {GRANTED}")
    make(bench.client, GRANTED, stamped=True, window=100)
    for at, (user, missing) in enumerate(rights_users(version)):
        said = _loads_as(bench, user, at * ROWS, make=missing != grants.INPUT)
        if missing is None:
            expect("with all rights", said, "")
        elif not said or missing.place.rpartition(".")[2].strip("*") not in said:
            raise Red(f"without {missing.privileges} ON {missing.place}: {said or 'no error'}")
        elif missing.privileges not in said:
            raise Red(f"without {missing.privileges} ON {missing.place}: {said}")


TAKEN = (
    ("INSERT", GRANTED),
    ("SELECT", "system.processes"),
)
"""Taken away in turn: those that an engine in local mode asks for, with the ones of input()."""


def rights_users(version: str) -> Iterator[tuple[User, ClickHouseRight | None]]:
    """A user with what is printed for the version, and one without each of TAKEN."""
    given = _granting("r")
    every = grants.roles(given, [GRANTED], parsed(version))
    (role,) = [one for one in every if one.name == "loader"]
    # Optional ones are not granted: the loader has to do without.
    needed = [one for one in role.clickhouse if not one.note.startswith("optional")]
    single = [
        ClickHouseRight(privilege, right.place)
        for right in needed
        for privilege in right.privileges.split(", ")
    ]
    yield _user("r_all", single), None
    for at, (privilege, place) in enumerate(TAKEN):
        missing = ClickHouseRight(privilege, place)
        if not place.startswith("system.") or _strict(version):
            yield _user(f"r_without_{at}", [one for one in single if one != missing]), missing
    # CREATE TABLE implies what input() asks for; whoever has a ledger may do without both.
    implying = {"CREATE TABLE", grants.INPUT.privileges}
    fewer = [one for one in single if one.privileges not in implying]
    asked = parsed(version)
    assert asked is not None
    assert grants.INPUT.before is not None
    if asked < grants.INPUT.before:
        yield _user("r_without_input", fewer), grants.INPUT


def _strict(version: str) -> bool:
    """Whether the engine asks for grants on system tables: those that listen are told to."""
    found = parsed(version)
    return found is not None and found >= (26, 7)


def _user(name: str, single: list[ClickHouseRight]) -> User:
    return User(name, name, tuple(f"GRANT {one.privileges} ON {one.place}" for one in single))


def _granting(app: str) -> Settings:
    given = {
        "app": app,
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "source": {"topic": "rows"},
        "clickhouse": {"url": "http://127.0.0.1:1"},
        "loader": {"checkpoint": "c", "database": "relay"},
    }
    return Settings.model_validate(given)


def _loads_as(bench: Bench, user: User, first: int, *, make: bool) -> str:
    """What was said against it; empty: nothing.

    Args:
        bench: whose server it is.
        user: loads a block.
        first: id of the block's rows.
        make: the ledger, too; else it is there.
    """
    bench.client.command("DROP DATABASE IF EXISTS relay")
    block = bench.block(GRANTED, first=first)
    given = bench.settings.model_copy(update={"clickhouse": bench.engine.reached_as(user)})
    loader = given.loader.model_copy(update={"database": "relay"})
    given = given.model_copy(update={"loader": loader})
    admins = given.model_copy(update={"clickhouse": bench.settings.clickhouse})
    try:
        ledger = ledger_of(given if make else admins, make=True)
        worker = Worker(given)
        try:
            (first,) = worker.load([block])
            bench.client.command("DROP TABLE relay.ledger")
            ledger = ledger_of(given if make else admins, make=True)
            entry = plan.Entry(plan.PREPARED, 1, "old", 0, stamped=True, rows=ROWS)
            ledger.write([NewEntry(block, entry)])
            (second,) = worker.load([block])
        finally:
            worker.close()
    except RelayError as error:
        return str(error)
    return "; ".join(o.reason or o.outcome for o in (first, second) if o.outcome != "loaded")
