"""Rows that are hidden from the loader's user while a block is between its INSERT and its mark.

On the real server with users. What is hidden from each is fixed when the server begins, as local
mode has no writable storage of users: that a policy comes or goes under run, is the next statement
as another user. Each test has an app of its own out of those that the policies name.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from loader.blocks.worker import Worker
from loader.clickhouse import client as clickhouse_client
from loader.clickhouse import server_records
from loader.clickhouse.forgotten_blocks import Forgotten
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.tables import Tables
from loader.core.positions import Unsure
from loader.core.retry_cause import RetryCause
from loader.journal.source import Start
from loader.journal.startup import ledger_of, topic_id
from loader.operate.supersede import carry_out
from loader.spark.known_blocks import BatchBlocks, KnownBlocks
from relay import names
from relay.clickhouse.errors import About
from relay.errors import Refused
from relay.records_pb2 import Mark
from tests.loader.blocks import Journal, batch, stands
from tests.loader.test_supersede import rewound
from tests.loader.test_users import LEDGER
from tests.loader.test_work import copies, killed, make, others_insert, outcomes
from tests.loader.unsparked import Run
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import STRICT, User

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from relay.config.settings import Settings
    from relay.records_pb2 import Block

    AsUser = Callable[[str], Settings]

APPS = [f"hidden{n}" for n in range(30)]
FILTERS = ", ".join(f"'ledger_{app}.ledger': 'state != ''prepared'''" for app in APPS)
FILTERED = {"additional_table_filters": f"{{{FILTERS}}}"}
ALL = (*LEDGER, "GRANT SELECT, INSERT ON shop.*")
CLAIMLESS = (
    LEDGER[0].replace("SELECT, ", ""),
    *(f"GRANT SELECT(app, block, state) ON ledger_{app}.ledger" for app in APPS),
)


def of_ledgers(condition: str) -> dict[str, str]:
    return {f"ledger_{app}.ledger": condition for app in APPS}


USERS = (
    User("whole", "w", ALL),
    User("nothing", "w", ALL, policies=of_ledgers("0")),
    # A claim before anything was in the table is hidden, and later ones are not.
    User("first", "w", ALL, policies=of_ledgers("state = 'position' OR seen != 0")),
    User("loaded", "w", ALL, policies=of_ledgers("state != 'loaded'")),
    User("filtered", "w", ALL, FILTERED),
    User("fixed", "w", ALL, FILTERED, constant=("additional_table_filters",)),
    User("narrow", "w", ALL, policies={"shop.orders": "id < 0", "shop.rewound": "id < 0"}),
    User("remover", "w", (*ALL, "GRANT ALTER DELETE ON shop.*")),
    User("columns", "w", (*LEDGER, "GRANT INSERT, SELECT(id, name) ON shop.orders")),
    User(
        "narrowly", "w", (*LEDGER, "GRANT INSERT(id, name, _block), SELECT(_block) ON shop.orders")
    ),
    User("unstamped", "w", (*LEDGER, "GRANT INSERT(id, name), SELECT(id, name) ON shop.orders")),
    User("claimless", "w", (*CLAIMLESS, *LEDGER[1:], ALL[-1])),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(NOW, tmp_path_factory.mktemp("hidden"), USERS, more=STRICT) as server:
        yield server


@pytest.fixture
def admin(engine: Engine) -> Iterator[Client]:
    with engine.having("shop") as client:
        yield client


_apps = itertools.cycle(APPS)


@pytest.fixture
def journal(engine: Engine, bootstrap: str, tmp_path: Path) -> Journal:
    return Journal(bootstrap, engine.reached_as(USERS[0]), next(_apps), tmp_path)


@pytest.fixture
def as_user(engine: Engine, journal: Journal, admin: Client) -> Iterator[AsUser]:
    """The app's settings, with a loader that is this user; the ledger is there."""
    ledger_of(journal.settings(), make=True)

    def settings(name: str) -> Settings:
        (user,) = (one for one in USERS if one.name == name)
        return journal.settings().model_copy(update={"clickhouse": engine.reached_as(user)})

    yield settings
    admin.command(f"DROP DATABASE {journal.settings().loader.database} SYNC")


@contextlib.contextmanager
def working(settings: Settings) -> Iterator[Worker]:
    worker = Worker(settings)
    try:
        yield worker
    finally:
        worker.close()


@contextlib.contextmanager
def connected(settings: Settings) -> Iterator[Ledger]:
    with contextlib.closing(clickhouse_client.connect(settings.clickhouse, 30)) as client:
        yield Ledger(client, settings.loader.database, settings.app)


def looked(settings: Settings, *blocks: Block) -> BatchBlocks:
    """What the driver of a loader that runs sees of a micro-batch."""
    with connected(settings) as ledger:
        topic = topic_id(settings, names.journal_topic(settings.app))
        known = KnownBlocks(ledger, Start(settings, topic, {}), "_block")
        rows: list[Any] = [
            SimpleNamespace(partition=0, offset=n, block=block.SerializeToString())
            for n, block in enumerate(blocks)
        ]
        return known.look(rows)


def interrupted(journal: Journal, admin: Client, *, stamped: bool) -> tuple[str, list[Block]]:
    """A table without a window, and its block, inserted and not marked."""
    table = make(admin, "shop.orders", stamped=stamped, window=0)
    blocks = journal.seal(table, batch(0, 10))
    killed(journal, blocks, "after_insert")
    others_insert(admin, table)
    admin.command("SYSTEM FLUSH LOGS")  # these users have no right to it
    return table, blocks


@pytest.fixture
def without_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the loader the server keeps no record of statements."""
    monkeypatch.setattr(server_records, "_STATEMENTS", "SELECT 1 FROM system.no_such_log")


@pytest.mark.parametrize("who", ["nothing", "first", "loaded", "fixed"])
def test_a_ledger_that_is_not_seen_whole_ends_the_loader(
    journal: Journal, as_user: AsUser, admin: Client, who: str
) -> None:
    """At a start, in a micro-batch, and in a worker that is at it; the rows stay as they were."""
    table, blocks = interrupted(journal, admin, stamped=False)
    found = r"sees only those rows of the ledger `ledger_hidden\d+`.ledger where .*hides the others"
    with pytest.raises(Refused, match=found) as caught:
        ledger_of(as_user(who), make=True)
    assert "ALTER ROW POLICY … ON `ledger_" in caught.value.next_step
    with pytest.raises(Refused, match=found):
        ledger_of(as_user(who))
    with pytest.raises(Refused, match=found):
        looked(as_user(who), *blocks)
    with working(as_user(who)) as worker, pytest.raises(Refused, match=found):
        worker.load(blocks)
    assert copies(admin, table) == (10, 10)
    with working(as_user("whole")) as worker:  # the policy is gone: decided by what there is
        assert outcomes(worker.load(blocks)) == ["loaded"]
    assert copies(admin, table) == (10, 10)


def test_a_filter_that_a_statement_can_override_hides_nothing(
    journal: Journal, as_user: AsUser, admin: Client
) -> None:
    table, blocks = interrupted(journal, admin, stamped=False)
    ledger_of(as_user("filtered"), make=True)
    assert looked(as_user("filtered"), *blocks).left.keys() == {blocks[0].id}
    with working(as_user("filtered")) as worker:
        assert outcomes(worker.load(blocks)) == ["loaded"]
    assert copies(admin, table) == (10, 10)


def test_a_column_of_the_ledger_that_may_not_be_read_is_named(
    journal: Journal, as_user: AsUser, admin: Client
) -> None:
    table, blocks = interrupted(journal, admin, stamped=False)
    with pytest.raises(Refused, match=r"497.*SELECT\(.*claim.* ON ledger_"):
        looked(as_user("claimless"), *blocks)
    assert copies(admin, table) == (10, 10)


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("who", ["narrow", "columns", "unstamped"])
def test_without_a_fault_hidden_rows_come_once(
    journal: Journal, as_user: AsUser, admin: Client, who: str
) -> None:
    table = make(admin, "shop.orders", stamped=True, window=0)
    blocks = journal.seal(table, batch(0, 10))
    for _ in range(2):
        with working(as_user(who)) as worker:
            assert outcomes(worker.load(blocks)) == ["loaded"]
    assert copies(admin, table) == (10, 10)


@pytest.mark.parametrize(
    ("who", "said"),
    [("narrow", ["only those rows of shop.orders where id < 0"]), ("whole", []), ("columns", [])],
)
def test_hidden_rows_of_a_table_are_said_once(
    journal: Journal, as_user: AsUser, admin: Client, who: str, said: list[str]
) -> None:
    """A2: with its first block, before anything is in doubt."""
    table = make(admin, "shop.orders", stamped=True)
    run = Run(as_user(who))
    for first in (0, 10):
        journal.seal(table, batch(first, 10))
        run.seal_end()
        while run.batch():
            pass
    run.close()
    assert copies(admin, table) == (20, 20)
    hidden = [line for line in run.said if "sees only those rows" in line]
    assert len(hidden) == len(said)
    assert all(part in line for part, line in zip(said, hidden, strict=True))


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("who", ["narrow", "columns", "unstamped"])
def test_what_hides_a_blocks_rows_doubles_none(
    journal: Journal, as_user: AsUser, admin: Client, who: str
) -> None:
    """A policy parks it with the reason; a column that may not be read is named; one that is not
    even seen leaves the block to a person. Once all is seen again, no copy comes either."""
    table, blocks = interrupted(journal, admin, stamped=True)
    with working(as_user(who)) as worker:
        (done,) = worker.load(blocks)
    says = {
        "narrow": ("parked", "", "a person can tell"),
        "columns": ("retry", About.TABLE, "SELECT(_block) ON shop.orders"),
        "unstamped": ("parked", "", "the block-id column during every attempt"),
    }[who]
    assert (done.outcome, done.about) == says[:2], done
    assert says[2] in done.reason
    assert copies(admin, table) == (10, 10)
    with working(as_user("whole")) as worker:
        # A claim that saw no such column may have left rows without ids: a person says.
        again = outcomes(worker.load(blocks, human="retry"))
        assert again == ["parked" if who == "unstamped" else "loaded"]
        assert outcomes(worker.load(blocks, human="loaded")) == ["loaded"]
    assert copies(admin, table) == (10, 10)


@pytest.mark.usefixtures("without_logs")
def test_as_many_rows_of_others_hide_no_policy(
    journal: Journal, as_user: AsUser, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two questions whose answers are compared, others insert as many as are hidden."""
    table, blocks = interrupted(journal, admin, stamped=True)
    asked = server_records.ServerRecords.ask

    def insert_between(
        self: server_records.ServerRecords, sql: str, *more: Any, **named: Any
    ) -> Any:
        if sql.startswith("SELECT count() FROM `shop`"):
            others_insert(admin, table, 30)
        return asked(self, sql, *more, **named)

    monkeypatch.setattr(server_records.ServerRecords, "ask", insert_between)
    with working(as_user("narrow")) as worker:
        (done,) = worker.load(blocks)
    assert (done.outcome, "it sees those where" in done.reason) == ("parked", True), done
    assert copies(admin, table) == (10, 10)


@pytest.mark.usefixtures("without_logs")
def test_a_policy_that_goes_between_count_and_question_is_no_proof(
    journal: Journal, as_user: AsUser, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count was made under it; whether rows are hidden is asked when it is gone: ask again."""
    table, blocks = interrupted(journal, admin, stamped=True)
    counted, hidden = Tables.counted, [dict[str, int]()]
    monkeypatch.setattr(
        Tables, "counted", lambda self, *of: hidden.pop() if hidden else counted(self, *of)
    )
    with working(as_user("whole")) as worker:
        (done,) = worker.load(blocks)
        assert copies(admin, table) == (10, 10), done
        assert (done.outcome, done.cause) == ("retry", RetryCause.UNCONFIRMED), done
        assert outcomes(worker.load(blocks)) == ["loaded"]
    assert copies(admin, table) == (10, 10)


def test_rows_that_a_policy_hides_are_no_lost_part(
    journal: Journal, as_user: AsUser, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where nobody may ask for DELETEs. Red before: parked, with all of its rows."""
    monkeypatch.setattr(server_records, "DELETES", "SELECT 1 FROM system.no_such_table")
    table = make(admin, "shop.orders", stamped=True, window=100)
    blocks = journal.seal(table, batch(0, 10))
    killed(journal, blocks, "after_prepare")
    with working(as_user("narrow")) as worker:
        (done,) = worker.load(blocks)
    assert copies(admin, table) == (10, 10)
    assert done.outcome == "loaded", done


def test_blocks_that_the_ledger_lost_are_not_taken_for_new_where_rows_are_hidden(
    journal: Journal, as_user: AsUser, admin: Client
) -> None:
    table, blocks = interrupted(journal, admin, stamped=True)
    journal_places = [(0, 0, blocks[0])]
    for who in ("whole", "narrow"):
        with connected(as_user(who)) as ledger:
            forgotten = Forgotten(ledger, "_block", {0: Unsure(1, lost=1)})
            assert forgotten.among(journal_places) == {blocks[0].id}, who
    assert copies(admin, table) == (10, 10)


def test_a_rewind_that_does_not_see_old_rows_ends(
    journal: Journal, as_user: AsUser, admin: Client
) -> None:
    """It saw none, removed none, and noted that it had: the new rows came beside the old ones.

    Its table is its own: a DELETE up to a second before a claim puts the next test's in doubt.
    """
    table = make(admin, "shop.rewound", stamped=True)
    (block,) = journal.seal(table, batch(0, 10))
    with working(as_user("whole")) as worker:
        assert outcomes(worker.load([block])) == ["loaded"]
    rewind = rewound(journal.app, Mark(table=table))
    hidden = re.escape(f"sees only those rows of {table} where")
    with connected(as_user("narrow")) as ledger, pytest.raises(Refused, match=hidden):
        carry_out(as_user("narrow"), ledger, [block], rewind, stands)
    with connected(as_user("remover")) as ledger:
        assert not ledger.noted().superseded
        assert copies(admin, table) == (10, 10)
        assert carry_out(as_user("remover"), ledger, [block], rewind, stands).rows == 10
        assert len(ledger.noted().superseded) == 1
    assert copies(admin, table) == (0, 0)


def priced(first: int, rows: int) -> pa.RecordBatch:
    """Rows with one column more."""
    field = pa.field("price", pa.int64(), metadata={b"clickhouse": b"Int64"})
    return batch(first, rows).append_column(field, pa.array([7] * rows, pa.int64()))


def test_a_column_that_is_not_seen_waits_for_its_right(
    journal: Journal, as_user: AsUser, admin: Client
) -> None:
    """It was taken for one that was dropped: the block was loaded, with the DEFAULT as its value.

    The worker looked at the table before it had the column, and looks no other than before.
    """
    table = make(admin, "shop.orders", stamped=True)
    (old,) = journal.seal(table, batch(0, 10))
    with working(as_user("narrowly")) as worker:
        assert outcomes(worker.load([old])) == ["loaded"]
        admin.command(f"ALTER TABLE {table} ADD COLUMN price Int64 DEFAULT 1")
        plain, new = journal.seal(table, batch(10, 10), priced(20, 10))
        done = {one.block: one for one in worker.load([plain, new], new={plain.id, new.id})}
    assert (done[plain.id].outcome, copies(admin, table)) == ("loaded", (20, 20)), done
    waits = done[new.id]
    assert (waits.outcome, waits.about) == ("retry", About.UNKNOWN), waits
    assert waits.cause is RetryCause.NO_RIGHT_ON_COLUMN
    assert f"GRANT INSERT(price) ON {table}" in waits.reason
    with working(as_user("whole")) as worker:
        assert outcomes(worker.load([new])) == ["loaded"]
    prices = admin.query(f"SELECT price, count() FROM {table} GROUP BY 1 ORDER BY 1").result_rows
    assert prices == [(1, 20), (7, 10)]


@pytest.mark.parametrize("who", ["narrowly", "whole"])
def test_a_column_that_was_dropped_is_left_out(
    journal: Journal, as_user: AsUser, admin: Client, who: str
) -> None:
    """Negative control; its name still stands in the table's definition."""
    table = make(admin, "shop.orders", stamped=True)
    admin.command(
        f"ALTER TABLE {table} MODIFY COLUMN name COMMENT '`price` Int64', "
        "MODIFY COMMENT ', `price` Int64'"
    )
    blocks = journal.seal(table, priced(0, 10))
    with working(as_user(who)) as worker:
        assert outcomes(worker.load(blocks)) == ["loaded"]
    assert copies(admin, table) == (10, 10)


def test_a_transform_that_returns_a_column_that_is_not_seen(
    journal: Journal, as_user: AsUser, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its block waits, and was parked; a column that the table does not have still parks."""
    (journal.directory / "made_here.py").write_text(
        "def f(rows): return rows.append_column('price', rows['id'])\n"
    )
    monkeypatch.syspath_prepend(journal.directory)
    table = make(admin, "shop.orders", stamped=True)
    told = {"loader": as_user("narrowly").loader.model_copy(update={"transform": "made_here:f"})}
    narrowly = as_user("narrowly").model_copy(update=told)
    admin.command(f"ALTER TABLE {table} ADD COLUMN price Int64")
    waiting, hopeless = (journal.seal(table, batch(at, 10)) for at in (0, 10))
    with working(narrowly) as worker:
        (done,) = worker.load(waiting)
    assert (done.outcome, done.about) == ("retry", About.TABLE), done
    assert f"GRANT INSERT(price) ON {table}" in done.reason
    admin.command(f"ALTER TABLE {table} DROP COLUMN price")
    with working(narrowly) as worker:
        assert outcomes(worker.load(hopeless)) == ["parked"]
