"""Profiles of users that cut an answer short without an error, or make another of it.

Columns and tables would vanish for the relay, and for the verifier blocks and rows; a table would
seem to be another one. (More of the loader's cases are in tests/loader/test_hidden_rows.py and
test_odd_servers.py.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse import client as loader_client
from loader.clickhouse import ledger_table
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.server_records import ServerRecords
from loader.clickhouse.tables import Tables
from loader.clickhouse.tables_behind import reached
from relay import names
from relay.config.settings import Settings
from relay.errors import Refused, Unavailable
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.verify.read.table_facts import TableAsking
from relay.operate.view.clickhouse_state import LandedBlocks
from relay.operate.view.ledger_looks import LedgerLooks
from relay.records_pb2 import Block
from relay.schema.catalogue import Catalogue
from tests.versions.engines import ADMIN, Engine, running
from tests.versions.releases import NOW
from tests.versions.users import User

SHORT = {
    "limit": {"limit": "2"},
    "offset": {"offset": "2"},
    "result": {"max_result_rows": "2", "result_overflow_mode": "break", "max_block_size": "1"},
    "read": {"max_rows_to_read": "2", "read_overflow_mode": "break", "max_block_size": "1"},
    "join": {"max_rows_in_join": "1", "join_overflow_mode": "break"},
    "sort": {"max_rows_to_sort": "1", "sort_overflow_mode": "break", "max_block_size": "1"},
    "set": {"max_rows_in_set": "1", "set_overflow_mode": "break"},
    "filter": {"additional_result_filter": "name != 'price'"},
    "cached": {"use_query_cache": "1", "query_cache_ttl": "600"},
    "any": {"join_default_strictness": "ANY"},
    "older": {"compatibility": "22.3"},
    "tuples": {"enable_named_columns_in_function_tuple": "1"},
    "quotes": {"show_create_query_identifier_quoting_style": "DoubleQuotes"},
    "bare": {"show_create_query_identifier_quoting_rule": "user_display"},
    "uuids": {"show_table_uuid_in_table_create_query_if_not_nil": "1"},
}
FIXED = {
    "cut": {"max_rows_to_group_by": "2", "group_by_overflow_mode": "any"},
    "frugal": {"max_rows_to_group_by": "100000"},
}
USERS = (
    *(User(name, "of-tests", settings=short) for name, short in SHORT.items()),
    User("readonly", "of-tests", settings={"readonly": "1"}),
    User("reader", "of-tests", settings={"readonly": "2"}),
    # Who may set nothing has the profile's values, one of which changes no answer.
    *(User(name, "of-tests", settings={**short, "readonly": "1"}) for name, short in FIXED.items()),
    User("one", "of-tests", settings=SHORT["any"], constant=tuple(SHORT["any"])),
)
RAISED = "raise that limit"
TOLD = {
    "offset": ("Unexpected response", "clickhouse.url"),  # the client library's own question
    "result": ("Limit for result exceeded", RAISED),
    "read": ("Limit for rows", RAISED),
    "join": ("Limit for", RAISED),
    "sort": ("Limit for", RAISED),
    "set": ("Limit for IN-set exceeded", RAISED),
    "filter": ("Unknown expression", ""),
    "cached": ("query_cache_nondeterministic", ""),
    "cut": (
        "user cut sets group_by_overflow_mode = any, which",
        "ALTER USER cut MODIFY SETTINGS group_by_overflow_mode = 'throw'",
    ),
    "one": (
        "user one sets join_default_strictness = ANY, which",
        "ALTER USER one MODIFY SETTINGS join_default_strictness = 'ALL'",
    ),
}
"""A part of the error, and of the next step, of those who may be told that they cannot see all."""
TABLES = ["shop.items", "shop.orders", "shop.visits"]
EXPIRING = "odd.expiring"
"""With columns of several kinds, a TTL of the block-id column, and a view behind it."""
LEDGER, BLOCKS = "relay_ledger", (10, 20, 30)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(NOW, tmp_path_factory.mktemp("short"), USERS) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            for table in TABLES:
                columns = "id Int64, name String, price Decimal(9, 2), _block String"
                admin.command(f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY id")
            admin.command("CREATE DATABASE odd")
            admin.command(
                f"CREATE TABLE {EXPIRING} (id Int64, day Date DEFAULT '2020-01-01', "
                "`a b` Tuple(x Int8, y String), made String MATERIALIZED 'm', "
                "_block String TTL day + INTERVAL 99 YEAR) ENGINE = MergeTree ORDER BY id "
                "SETTINGS non_replicated_deduplication_window = 7"
            )
            admin.command("CREATE TABLE odd.sums (id Int64) ENGINE = MergeTree ORDER BY id")
            admin.command(
                f"CREATE MATERIALIZED VIEW odd.mv TO odd.sums AS SELECT id FROM {EXPIRING}"
            )
            admin.command(f"CREATE DATABASE {LEDGER}")
            admin.command(ledger_table.create(f"{LEDGER}.ledger"))
            for table in TABLES:
                for block in BLOCKS:
                    load(admin, table, block)
        yield server


def load(admin: Client, table: str, block: int) -> None:
    """As a loader leaves a block of as many rows."""
    name = names.BlockId("short", table, 0, 0, block)
    for state in ("prepared", "loaded"):
        admin.command(
            f"INSERT INTO {LEDGER}.ledger (app, table, block, state, attempt, claim, rows) VALUES "
            f"('short', '{table}', '{name}', '{state}', 1, 'c', {block})"
        )
    admin.command(f"INSERT INTO {table} SELECT number, 'x', 1, '{name}' FROM numbers({block})")


def settings(engine: Engine, user: User) -> Settings:
    return Settings.model_validate(
        {
            "app": "short",
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "source": {"topic": "rows"},
            "clickhouse": engine.reached_as(user),
            "loader": {"database": LEDGER, "checkpoint": "unused"},
        }
    )


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_every_column_of_every_table_is_read_or_nothing(engine: Engine, user: User) -> None:
    with contextlib.closing(Catalogue(engine.reached_as(ADMIN))) as whole:
        expected = whole.read(TABLES)
        every = whole.names()
    assert {name: len(one.columns) for name, one in expected.items()} == dict.fromkeys(TABLES, 4)
    with contextlib.closing(Catalogue(engine.reached_as(user))) as read:
        whole_or_told(user, lambda: read.read(TABLES), expected)
        whole_or_told(user, read.names, every)


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_every_block_and_row_is_counted_or_nothing(engine: Engine, user: User) -> None:
    whole = LandedBlocks(settings(engine, ADMIN))
    counts = [sorted((whole.counted(table) or {}).values()) for table in TABLES]
    assert counts == [list(BLOCKS)] * 3
    facts = LedgerLooks(lambda: whole).facts({})
    assert [(table, blocks) for table, _, blocks, _ in facts.counts] == [(t, 3) for t in TABLES]

    def read() -> LandedBlocks:
        return LandedBlocks(settings(engine, user))

    for table in TABLES:
        whole_or_told(user, lambda t=table: read().counted(t), whole.counted(table))
        whole_or_told(user, lambda t=table: read().ledger(t), whole.ledger(table))
    whole_or_told(user, lambda: LedgerLooks(read).facts({}), facts)


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_a_loader_sees_its_whole_ledger_or_nothing(engine: Engine, user: User) -> None:
    ids = [names.BlockId("short", table, 0, 0, block) for table in TABLES for block in BLOCKS]
    blocks = [Block(id=str(one), table=one.table, rows=1) for one in ids]

    def read() -> list[int]:
        with contextlib.closing(loader_client.connect(engine.reached_as(user), 20)) as client:
            entries = Ledger(client, LEDGER, "short").entries(blocks)
        return [len(entries[block.id]) for block in blocks]

    whole_or_told(user, read, [2] * len(blocks))


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_a_table_is_the_same_for_everybody(engine: Engine, user: User) -> None:
    """For the loader, the doctor and the verifier, as they ask for it; or they say why not."""
    for ask in (looked_at, reached_from, examined, judged):
        expected = ask(engine, ADMIN)
        assert expected
        with contextlib.suppress(*([Refused, Unavailable] if user.name in TOLD else [])):
            assert ask(engine, user) == expected


def looked_at(engine: Engine, user: User) -> object:
    with contextlib.closing(loader_client.connect(engine.reached_as(user), 20)) as client:
        return Tables(client, "_block").look([EXPIRING, *TABLES])


def reached_from(engine: Engine, user: User) -> object:
    with contextlib.closing(loader_client.connect(engine.reached_as(user), 20)) as client:
        return [one.place for one in reached(ServerRecords(client, several=False).ask, EXPIRING)]


def examined(engine: Engine, user: User) -> object:
    with contextlib.closing(ClickHouseQuestions(settings(engine, user))) as doctor:
        facts = doctor.look([EXPIRING, *TABLES])
    if facts.unasked:
        raise Refused(facts.unasked[0].reason)
    # A user who may write nothing lacks rights, too.
    return [replace(one, missing=()) for _, one in sorted(facts.tables.items()) if one]


def judged(engine: Engine, user: User) -> object:
    optional = LandedBlocks(settings(engine, user)).optional()
    facts = TableAsking(optional, "_block").facts(EXPIRING, 0)
    if optional.unanswered:
        raise Refused("; ".join(optional.unanswered.values()))
    return facts.views, list(facts.hides("_block")), facts.removals, facts.keys


def whole_or_told(user: User, read: Callable[[], object], expected: object) -> None:
    """What the user reads is all, or an error that says why it cannot be."""
    try:
        found, why = read(), None
    except (Refused, Unavailable) as error:
        found, why = None, error
    if why is None:
        assert found == expected
    else:
        assert user.name in TOLD, why.message
        assert TOLD[user.name][0] in why.message
        assert TOLD[user.name][1] in why.next_step
