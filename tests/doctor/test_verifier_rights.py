"""The verifier's printed rights, on the real server with users: what is judged with each of them.

`relay verify --deep` over blocks in five tables: as they were, without ids, behind a view, with
rows that somebody deleted, and with a partition that somebody dropped.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse import ledger_table
from relay import names
from relay.operate.doctor import grants
from relay.operate.verify.landing import Landing
from relay.records_pb2 import Block
from tests.doctor.test_users import NOW, of_role, settings
from tests.versions.engines import Engine, running
from tests.versions.users import STRICT, User

TABLES = ("shop.plain", "shop.bare", "shop.viewed", "shop.deleted", "shop.dropped")
STAMPED = ", _block String"
EVERY = tuple(grants.JUDGED_BY)
MISSING = {"": (), **{one: (one,) for one in EVERY}, "all": EVERY}
MISSING["parts and query_log"] = ("parts", "query_log")
MISSING["all but mutations"] = tuple(one for one in EVERY if one != "mutations")
"""What a user may not read, by its name."""


def user_without(what: str) -> User:
    name = f"without_{what.replace(' ', '_')}"
    taken = {f"system.{log}" for log in MISSING[what]}
    every = of_role("verifier", name, TABLES)
    given = [one for one in every if one.place not in taken]
    assert len(given) == len(every) - len(taken)
    return User(name, name, tuple(f"GRANT {one.privileges} ON {one.place}" for one in given))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    users = [user_without(what) for what in MISSING]
    with running(NOW, tmp_path_factory.mktemp("verifier"), users, more=STRICT) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            for table in TABLES:
                stamp = "" if table == "shop.bare" else STAMPED
                by = "PARTITION BY _block" if table == "shop.dropped" else ""
                admin.command(
                    f"CREATE TABLE {table} (id Int64, name String{stamp}) ENGINE = MergeTree {by} "
                    "ORDER BY id"
                )
            admin.command("CREATE TABLE shop.sums (id Int64) ENGINE = MergeTree ORDER BY id")
            admin.command(
                "CREATE MATERIALIZED VIEW shop.mv TO shop.sums AS SELECT id FROM shop.viewed"
            )
        yield server


def loaded(admin: Client, ledger: str, app: str, table: str) -> Block:
    """A block as a loader leaves it."""
    first = uuid.uuid4().int % 10**9
    name = str(names.BlockId(app, table, 0, 0, first))
    sealed = int(time.time() * 1000)
    stamp = "" if table == "shop.bare" else f", '{name}'"
    for state in ("prepared", "loaded"):
        if state == "loaded":
            admin.command(
                f"INSERT INTO {table} SELECT number + {first}, 'x'{stamp} FROM numbers(10)",
                settings={"log_comment": f"{name},claim=c", "async_insert": 0},
            )
        admin.command(
            f"INSERT INTO {ledger} (app, table, block, state, attempt, claim, rows, stamped) "
            f"VALUES ('{app}', '{table}', '{name}', '{state}', 1, 'c', 10, {bool(stamp)})",
            settings={"async_insert": 0},
        )
    if table == "shop.deleted":
        admin.command(
            f"ALTER TABLE {table} DELETE WHERE id > {first + 4} AND _block = '{name}' "
            "SETTINGS mutations_sync = 2"
        )
    if table == "shop.dropped":
        admin.command(f"ALTER TABLE {table} DROP PARTITION '{name}'")
    return Block(id=name, table=table, rows=10, sealed_at_ms=sealed)


def judged(engine: Engine, what: str) -> tuple[list[str], list[str]]:
    """Anomalies, and what is not judged."""
    user = user_without(what)
    given = settings(user.name).model_copy(update={"clickhouse": engine.reached_as(user)})
    ledger = f"{given.loader.database}.ledger"
    with contextlib.closing(engine.client()) as admin:
        admin.command(f"CREATE DATABASE {given.loader.database}")
        admin.command(ledger_table.create(ledger))
        blocks = [loaded(admin, ledger, given.app, table) for table in TABLES]
        admin.command("SYSTEM FLUSH LOGS")
    landing = Landing(given, {})
    found = [str(one) for one in landing.judge(blocks)]
    return found, landing.not_judged


def said(lines: list[str], table: str) -> str:
    return " ".join(line for line in lines if table in line)


def advice(what: str, log: str) -> str:
    return f"GRANT SELECT ON system.{log} TO {user_without(what).name}"


def test_with_all_of_them_nothing_is_wrong_and_each_removal_is_named(engine: Engine) -> None:
    found, unjudged = judged(engine, "")
    assert found == []
    assert "rows were removed at" in said(unjudged, "shop.deleted")
    assert "rows were removed at" in said(unjudged, "shop.dropped")
    assert len(unjudged) == 2


def test_a_mutation_alone_tells_of_a_removal(engine: Engine) -> None:
    """With the query log, too, the later record is shown; which one, a rounded second decides."""
    _, unjudged = judged(engine, "all but mutations")
    assert "mutation mutation_" in said(unjudged, "shop.deleted")


@pytest.mark.parametrize("log", ["query_log", "part_log"])
def test_what_only_a_log_tells_is_said_to_be_not_judged(engine: Engine, log: str) -> None:
    found, unjudged = judged(engine, log)
    assert found == []
    assert f"({advice(log, log)}): only the ledger says that it is loaded" in said(
        unjudged, "shop.bare"
    )
    assert f"({advice(log, log)}): what shop.mv got is not" in said(unjudged, "shop.viewed")


@pytest.mark.parametrize("log", ["mutations", "parts", "query_views_log", "replicas"])
def test_what_another_one_tells_raises_no_alarm(engine: Engine, log: str) -> None:
    """Who deleted is in the query log, too; how many replicas there are, of no such table."""
    found, unjudged = judged(engine, log)
    assert found == []
    assert "rows were removed at" in said(unjudged, "shop.deleted")
    assert "rows were removed at" in said(unjudged, "shop.dropped")


def test_an_alarm_names_the_rights_without_which_it_may_be_false(engine: Engine) -> None:
    found, unjudged = judged(engine, "all")
    for table in ("shop.deleted", "shop.dropped"):
        alarm = said(found, table)
        assert "whether rows were removed is not known" in alarm, found
        for log in ("mutations", "query_log", "part_log"):
            assert advice("all", log) in alarm, alarm
    assert said(unjudged, "shop.bare")
    assert len(found) == 2


def test_of_two_tables_in_one_question_the_one_that_may_not_be_read_is_named(
    engine: Engine,
) -> None:
    """It was said of part_log, which may be read."""
    found, _ = judged(engine, "parts and query_log")
    alarm = said(found, "shop.dropped")
    assert advice("parts and query_log", "parts") in alarm, found
    assert "ON system.part_log" not in alarm
