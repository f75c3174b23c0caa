"""The loader as a user who may not do everything, on the real server with users."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.blocks.worker import Worker
from loader.journal.startup import ledger_of
from relay.clickhouse.errors import About
from relay.config.server_settings import ClickHouse
from relay.dev.layout import free_ports
from relay.errors import Refused
from tests.broker.pipeline import wait_until
from tests.loader.blocks import DEADLINE, Journal, batch
from tests.loader.test_run import loaded
from tests.loader.test_work import copies, make, outcomes

pytestmark = pytest.mark.timeout(5 * DEADLINE)

ROOT = Path(__file__).parents[2]
LEDGER = (
    "GRANT SELECT, INSERT, CREATE DATABASE, CREATE TABLE, ALTER ADD COLUMN ON ledger_*.*",
    "GRANT SELECT ON system.*",
    "GRANT CREATE TEMPORARY TABLE ON *.*",
    "GRANT READ ON FILE",
    "GRANT TABLE ENGINE ON MergeTree",
)
DROPPING = "GRANT DROP TABLE ON ledger_*.*"
USERS = {
    "isolating": ("default", (*LEDGER, DROPPING, "GRANT SELECT, INSERT ON shop.*")),
    # B9: reads dims, writes shop.
    "partial": ("default", (*LEDGER, "GRANT SELECT, INSERT ON shop.*", "GRANT SELECT ON dims.*")),
    "blind": ("default", (*LEDGER, "GRANT INSERT ON shop.*", "GRANT SELECT, INSERT ON dims.*")),
    "reader": ("reader", ()),
    "tight": ("tight", ()),
}
PROFILES = """<profiles><default/><reader><readonly>1</readonly></reader>
<tight><max_memory_usage>40000000</max_memory_usage></tight></profiles><quotas><default/></quotas>"""
ADMIN, PASSWORD = "admin", "of a test"


def users_xml() -> str:
    parts = [f"<clickhouse>{PROFILES}<users>"]
    all_rights: tuple[str, tuple[str, ...]] = ("default", ())
    for name, (profile, grants) in {"default": all_rights, ADMIN: all_rights, **USERS}.items():
        queries = "".join(f"<query>{one}</query>" for one in grants)
        some = f"<grants>{queries}</grants>" if grants else ""
        parts.append(
            f"<{name}><password>{'' if name == 'default' else PASSWORD}</password>"
            f"<networks><ip>127.0.0.1</ip></networks><profile>{profile}</profile>"
            f"<quota>default</quota>{some}</{name}>"
        )
    return "".join([*parts, "</users></clickhouse>"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    directory = tmp_path_factory.mktemp("users")
    (directory / "users.xml").write_text(users_xml(), encoding="utf-8")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.loader.withusers", str(directory), str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    try:
        wait_until(answers, "the server")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def admin(server: str) -> Iterator[Client]:
    port = int(server.rpartition(":")[2])
    client = clickhouse_connect.get_client(
        host="127.0.0.1",
        port=port,
        username=ADMIN,
        password=PASSWORD,
        autogenerate_session_id=False,
    )
    for name in ("shop", "dims"):
        client.command(f"CREATE DATABASE {name}")
    yield client
    for name in ("shop", "dims"):
        client.command(f"DROP DATABASE {name} SYNC")
    client.close()


@pytest.fixture
def journal_as(server: str, bootstrap: str, app: str, tmp_path: Path) -> Callable[[str], Journal]:
    """An app whose loader is this user."""

    def make_one(user: str) -> Journal:
        held = tmp_path / "password"
        held.write_text(PASSWORD, encoding="utf-8")
        clickhouse = ClickHouse(url=server, user=user, password_file=held)
        return Journal(bootstrap, clickhouse, app, tmp_path)

    return make_one


@pytest.mark.long  # 68 s, with Spark
def test_a_right_on_one_table(journal_as: Callable[[str], Journal], admin: Client) -> None:
    """B9, and a block over 150 days, and a table that is not there: the loader runs, the other
    table's blocks are loaded, then and later; a restart and another user's rights load the rest."""
    journal = journal_as("partial")
    orders = make(admin, "shop.orders", stamped=True)
    countries = make(admin, "dims.countries", stamped=True)
    days = "shop.days"
    admin.command(
        f"CREATE TABLE {days} (id Int64, name String, _block String) ENGINE = MergeTree "
        "PARTITION BY id ORDER BY id"
    )
    journal.seal(countries, batch(0, 5))
    journal.seal(days, batch(0, 150))
    journal.seal("shop.late", batch(0, 7))
    journal.seal(orders, batch(0, 10))
    process = journal.start("run")
    try:
        loaded(admin, orders, 10, process)
        make(admin, "shop.late", stamped=True)
        journal.seal(countries, batch(5, 5))
        journal.seal(orders, batch(10, 10))
        loaded(admin, orders, 20, process)
        loaded(admin, "shop.late", 7, process)
        status, said = journal.run("parked ls")
        assert status == 0, said
        lines = [line for line in said.splitlines() if "dims.countries" in line]
        assert len(lines) == 2, said
        assert all("set aside" in line and "497" in line for line in lines), said
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert copies(admin, days) in {(150, 150), (0, 0)}
    assert copies(admin, countries) == (0, 0)

    status, said = journal_of_another(journal, ADMIN).run("run", "--once")
    assert status == 0, said
    assert copies(admin, countries) == (10, 10), said
    assert copies(admin, orders) == (20, 20)
    assert copies(admin, "shop.late") == (7, 7)
    admin.command(f"DROP DATABASE {journal.settings().loader.database} SYNC")


def journal_of_another(journal: Journal, user: str) -> Journal:
    """The same app's, once the loader has this user's rights."""
    journal._clickhouse = journal._clickhouse.model_copy(update={"user": user})
    return journal


def test_rows_that_may_be_written_and_not_counted(
    journal_as: Callable[[str], Journal], admin: Client
) -> None:
    """The right to read one table is missing: its block stands aside or is loaded, once, and the
    other table's is loaded by the same worker."""
    journal = journal_as("blind")
    orders = make(admin, "shop.orders", stamped=True)
    countries = make(admin, "dims.countries", stamped=True)
    blocks = journal.seal(orders, batch(0, 10)) + journal.seal(countries, batch(0, 10))
    ledger_of(journal.settings(), make=True)
    worker = Worker(journal.settings())
    done = {one.block: one for one in worker.load(blocks)}
    worker.close()
    assert done[blocks[1].id].outcome == "loaded"
    other = done[blocks[0].id]
    assert (other.outcome, other.about) in {("retry", About.TABLE), ("loaded", "")}, other
    assert copies(admin, countries) == (10, 10)
    worker = Worker(journal_of_another(journal, ADMIN).settings())
    assert outcomes(worker.load(blocks)) == ["loaded"] * 2
    worker.close()
    assert copies(admin, orders) == (10, 10)
    admin.command(f"DROP DATABASE {journal.settings().loader.database} SYNC")


def test_a_view_may_write_what_the_user_may_not(
    journal_as: Callable[[str], Journal], admin: Client
) -> None:
    """A view writes, as its DEFINER, into a table that this user only reads: its table's blocks
    stand aside, its neighbour's are loaded; with another definer the view gets its rows, too."""
    journal = journal_as("partial")
    viewed = make(admin, "shop.viewed", stamped=True)
    orders = make(admin, "shop.orders", stamped=True)
    behind = make(admin, "dims.behind", stamped=True)
    admin.command(
        f"CREATE MATERIALIZED VIEW shop.viewed_mv TO {behind} DEFINER = partial "
        f"AS SELECT id, name, _block FROM {viewed}"
    )
    blocks = journal.seal(viewed, batch(0, 10)) + journal.seal(orders, batch(0, 10))
    ledger_of(journal.settings(), make=True)
    with contextlib.closing(Worker(journal.settings())) as worker:
        done = {one.block: one for one in worker.load(blocks)}
    refused, neighbour = (done[one.id] for one in blocks)
    assert (refused.outcome, refused.about) == ("retry", About.TABLE), refused
    assert all(word in refused.reason for word in ("497", behind)), refused.reason
    assert (neighbour.outcome, copies(admin, orders)) == ("loaded", (10, 10))
    admin.command(f"ALTER TABLE shop.viewed_mv MODIFY DEFINER = {ADMIN}")
    with contextlib.closing(Worker(journal.settings())) as worker:
        assert outcomes(worker.load(blocks)) == ["loaded"] * 2
    assert [copies(admin, table) for table in (viewed, behind, orders)] == [(10, 10)] * 3
    admin.command(f"DROP DATABASE {journal.settings().loader.database} SYNC")


def test_a_user_who_may_only_read(journal_as: Callable[[str], Journal], admin: Client) -> None:
    """His profile is about no table: refused at the ledger, by name, and nothing waits for ever."""
    journal = journal_as(ADMIN)
    orders = make(admin, "shop.orders", stamped=True)
    blocks = journal.seal(orders, batch(0, 10))
    ledger_of(journal.settings(), make=True)
    worker = Worker(journal_of_another(journal, "reader").settings())
    with pytest.raises(Refused, match="readonly"):
        worker.load(blocks)
    worker.close()
    admin.command(f"DROP DATABASE {journal.settings().loader.database} SYNC")


def test_a_block_that_takes_more_memory_than_a_statement_may(
    journal_as: Callable[[str], Journal], admin: Client
) -> None:
    """It stands aside alone; a smaller one of the same table goes in, and it too once it may."""
    journal = journal_as("tight")
    orders = make(admin, "shop.orders", stamped=True)
    (large,) = journal.seal(
        orders,
        batch(0, 2_000_000),
        chunk_bytes=900_000,
    )
    (small,) = journal.seal(orders, batch(2_000_000, 10))
    ledger_of(journal_of_another(journal, ADMIN).settings(), make=True)
    worker = Worker(journal_of_another(journal, "tight").settings())
    first, second = worker.load([large, small])
    assert (first.outcome, first.about, "241" in first.reason) == ("retry", About.SIZE, True)
    assert second.outcome == "loaded"
    worker.close()
    worker = Worker(journal_of_another(journal, ADMIN).settings())
    assert outcomes(worker.load([large])) == ["loaded"]
    worker.close()
    assert copies(admin, orders) == (2_000_010, 2_000_010)
    admin.command(f"DROP DATABASE {journal.settings().loader.database} SYNC")


def test_the_users_are_what_they_are_called(server: str, admin: Client) -> None:
    """Negative control: each is refused what the tests above say."""
    port = int(server.rpartition(":")[2])
    make(admin, "dims.countries", stamped=True)
    for user, code in (("partial", "497"), ("reader", "164")):
        client = clickhouse_connect.get_client(
            host="127.0.0.1", port=port, username=user, password=PASSWORD
        )
        with pytest.raises(ClickHouseError, match=code):
            client.command("INSERT INTO dims.countries (id) VALUES (1)")
        client.close()


@pytest.mark.parametrize("user", ["isolating", "partial"])
def test_who_may_drop_a_scratch_table_tells_messages_apart(
    admin: Client, journal_as: Callable[[str], Journal], user: str
) -> None:
    """Who may not parks the whole block, and is told the right that is missing."""
    table = "shop.orders"
    admin.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), _block String, "
        "CONSTRAINT small CHECK id != 7) ENGINE = MergeTree ORDER BY id"
    )
    journal = journal_as(user)
    (block,) = journal.seal(table, batch(0, 100), each=1)
    settings = journal.settings()
    ledger_of(settings, make=True)
    with contextlib.closing(Worker(settings, isolates=True)) as worker:
        (one,) = worker.load([block])
    if user == "isolating":
        assert (one.outcome, one.left_out) == ("loaded", 1), one.reason
        return
    assert one.outcome == "parked"
    assert (
        "the block's messages cannot be tried one by one: this user may not drop the" in one.reason
    )
    assert "GRANT DROP TABLE ON" in one.reason
