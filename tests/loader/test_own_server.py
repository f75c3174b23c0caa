"""A server of the test's own: it is killed, or set back by ClickHouse's BACKUP and RESTORE."""

from __future__ import annotations

import concurrent.futures
import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks.worker import Worker
from loader.journal.startup import ledger_of
from loader.operate.resolve import resolve
from relay.errors import Unavailable
from tests.broker.pipeline import wait_until
from tests.loader.blocks import Journal, await_next_second, batch, clock_passes, parked_blocks
from tests.loader.test_evidence import create, number, until_settled, window
from tests.loader.test_forgotten_tokens import AT_ONCE
from tests.loader.test_set_back import loaded
from tests.loader.test_work import copies, killed, make, others_insert
from tests.loader.unsparked import Unsparked
from tests.versions.engines import ADMIN, Engine, running
from tests.versions.releases import NOW

if TYPE_CHECKING:
    from relay.records_pb2 import Block

BACKUPS = "<backups><allowed_path>{}</allowed_path></backups>"


@dataclass
class Site:
    """A journal whose loader writes into a server of its own."""

    engine: Engine
    journal: Journal
    directory: Path

    @contextlib.contextmanager
    def worker(self) -> Iterator[Worker]:
        settings = self.journal.settings()
        ledger_of(settings, make=True)
        with contextlib.closing(Worker(settings)) as made:
            yield made


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    directory = tmp_path_factory.mktemp("own")
    with running(NOW, directory, more=BACKUPS.format(directory)) as made:
        yield made


@pytest.fixture
def site(engine: Engine, bootstrap: str, app: str, tmp_path: Path) -> Site:
    return Site(engine, Journal(bootstrap, engine.reached_as(ADMIN), app, tmp_path), tmp_path)


@pytest.fixture
def client(engine: Engine) -> Iterator[Client]:
    """Of that server, also once it was killed and started again."""
    with contextlib.closing(engine.client()) as made:
        yield made


SLOW = "id + sleepEachRow(0.009) + sleepEachRow(0.0091) + sleepEachRow(0.0092)"
"""Of 300 rows, 8 s: each call alone may take 3. The server is killed meanwhile."""


@pytest.mark.parametrize("stamped", [True, False])
def test_a_view_whose_server_was_killed_gets_its_rows(
    site: Site, client: Client, app: str, *, stamped: bool
) -> None:
    """A3: the table had its part, its view had nothing; a repeat under the token gives it all."""
    client.command(f"CREATE DATABASE {app}")
    table = create(client, f"{app}.viewed", ", _block String" * stamped, more=window(100))
    view = viewed(client, table, window(100), of=SLOW)
    await_next_second(client)
    blocks = site.journal.seal(table, batch(0, 300))
    with (
        site.worker() as worker,
        killed_once(site, lambda: number(client, table) == 300),
        contextlib.suppress(Unavailable),
    ):
        worker.load(blocks)
    assert (number(client, table), number(client, view)) == (300, 0)
    with site.worker() as worker:
        assert until_settled(worker, blocks) == ["loaded"]
    assert (number(client, table), number(client, view)) == (300, 300)


def test_a_part_that_cannot_be_put_in_its_place(site: Site, client: Client, app: str) -> None:
    """A view's table has a part of the block by then, in a partition, and got its rows twice."""
    client.command(f"CREATE DATABASE {app}")
    table = create(client, f"{app}.t")
    view = viewed(client, table, "PARTITION BY id % 2")
    asked = f"SELECT data_paths[1] FROM system.tables WHERE database = '{app}' AND name = 't'"
    in_its_place = Path(client.query(asked).result_rows[0][0]) / "all_1_1_0"
    in_its_place.touch()
    (block,) = site.journal.seal(table, batch(0, 100))
    with site.worker() as worker:
        (first,) = worker.load([block])
        assert (first.outcome, "Not a directory" in first.reason) == ("retry", True), first
        assert (number(client, table), number(client, view)) == (0, 50)
        in_its_place.unlink()
        assert until_settled(worker, [block]) == ["parked"]
    assert (number(client, table), number(client, view)) == (0, 50)


@pytest.mark.parametrize(
    ("columns", "by", "blocks", "others"),
    [
        ("", "", 1, 0),
        (", _block String", "", 1, 0),
        # The table's counter has moved: it says nothing, and a count tells.
        (", _block String", "", 1, 3),
        # Several of it were under way, and a partitioned one is in several steps: a count decides.
        (", _block String", "PARTITION BY intDiv(id, 10000)", 3, 0),
    ],
)
def test_a_token_without_its_part_keeps_no_rows_out(
    site: Site, client: Client, app: str, columns: str, by: str, blocks: int, others: int
) -> None:
    """A server that was killed between the two: 0 of 300 rows, the answer said 300: `loaded`."""
    client.command(f"CREATE DATABASE {app}")
    table = create(client, f"{app}.t", columns, more=f"{by} {window(100)}")
    sealed = site.journal.seal(table, *(batch(300 * n, 300) for n in range(blocks)))
    lose_a_part(site, client, table, sealed)
    others_insert(client, table, others)
    with site.worker() as worker:
        assert until_settled(worker, sealed) == ["loaded"] * blocks
    assert copies(client, table) == (300 * blocks, 300 * blocks)


@pytest.mark.parametrize("masked", [False, True])
def test_lost_rows_are_found_where_a_view_needs_such_a_token(
    site: Site, client: Client, app: str, *, masked: bool
) -> None:
    """The view has its rows and the table has none: it was `loaded`. A person begins anew.

    Also where a DELETE of before masks other rows: it was `loaded`, as no count was believed.
    """
    client.command(f"CREATE DATABASE {app}")
    table = create(client, f"{app}.t", ", _block String", more=window(100))
    if masked:
        client.command(f"INSERT INTO {table} (id) SETTINGS async_insert = 0 VALUES (-1), (-2)")
        client.command(f"DELETE FROM {table} WHERE id = -1")
        clock_passes(client, 3)  # a claim of the next second would not be told from it
    view = viewed(client, table, window(100))
    (block,) = site.journal.seal(table, batch(0, 300))
    lose_a_part(site, client, table, [block])
    with site.worker() as worker:
        assert until_settled(worker, [block]) == ["parked"]
    ledger = ledger_of(site.journal.settings())
    ((_, reason),) = parked_blocks(ledger)
    assert "0 of 300 are there: it has the block's deduplication token" in reason
    assert (copies(client, table), number(client, view)) == ((0, 0), 300)
    # The query log has the repeat, and that it wrote 300 rows; the table's counter moves.
    others_insert(client, table)
    ((_, state, again),) = resolve(site.journal.settings(), ledger, [block.id], "retry")
    assert (state, again) == ("parked", reason)
    now = "SETTINGS mutations_sync = 2"
    client.command(f"ALTER TABLE {table} DELETE WHERE _block = '{block.id}' {now}")
    client.command(f"TRUNCATE TABLE {view}")
    ((_, state, reason),) = resolve(site.journal.settings(), ledger, [block.id], "absent")
    assert (state, copies(client, table), number(client, view)) == ("loaded", (300, 300), 300), (
        reason
    )


def test_a_part_that_has_expired_is_no_part_that_never_came(
    site: Site, client: Client, app: str
) -> None:
    """The newest part goes, and the table's counter goes back: the view got its rows twice."""
    client.command(f"CREATE DATABASE {app}")
    day_old = ", day DateTime DEFAULT now() - INTERVAL 1 DAY"
    expires = f"TTL day + INTERVAL 1 HOUR {window(100)}, merge_with_ttl_timeout = 1{AT_ONCE}"
    table = create(client, f"{app}.t", day_old, more=expires)
    view = viewed(client, table)
    (block,) = site.journal.seal(table, batch(0, 300))
    with site.worker():
        killed(site.journal, [block], "after_insert")
    client.command(f"DETACH TABLE {table}")
    client.command(f"ATTACH TABLE {table}")  # a table that is idle cleans up late
    parts = f"system.parts WHERE database = '{app}' AND table = 't'"
    wait_until(lambda: number(client, parts) == 0, "that the expired part goes")
    site.engine.kill()  # its logs may lack their end then
    site.engine.start()
    with site.worker() as worker:
        assert until_settled(worker, [block]) in (["loaded"], ["parked"])
    assert number(client, view) == 300


def test_a_person_who_has_looked_is_not_kept_out_by_such_a_token(
    site: Site, client: Client, app: str
) -> None:
    """Without `_block`, while others insert: the block was `loaded`, with none of its rows."""
    client.command(f"CREATE DATABASE {app}")
    table = create(client, f"{app}.t", more=f"PARTITION BY intDiv(id, 10000) {window(100)}")
    (block,) = site.journal.seal(table, batch(0, 300))
    lose_a_part(site, client, table, [block])
    others_insert(client, table)
    with site.worker() as worker:
        assert until_settled(worker, [block]) == ["parked"]
    ledger = ledger_of(site.journal.settings())
    ((_, state, reason),) = resolve(site.journal.settings(), ledger, [block.id], "absent")
    assert (state, copies(client, table)) == ("loaded", (300, 300)), reason


def viewed(client: Client, table: str, more: str = "", of: str = "id") -> str:
    """A table that a view fills with the ids of this one."""
    view = f"{table}_rows"
    client.command(f"CREATE TABLE {view} (id Int64) ENGINE = MergeTree ORDER BY tuple() {more}")
    select = f"SELECT {of} AS id FROM {table}"
    client.command(f"CREATE MATERIALIZED VIEW {view}_mv TO {view} AS {select}")
    return view


def lose_a_part(site: Site, client: Client, table: str, blocks: list[Block]) -> None:
    """What such a server leaves: it is killed behind the first INSERT, and loses the part."""
    with site.worker():
        killed(site.journal, blocks, "after_insert")
    assert copies(client, table) == (300, 300)
    database, name = table.split(".")
    asked = (
        "SELECT path FROM system.parts WHERE active AND database = '{}' AND table = '{}' "
        "ORDER BY max_block_number DESC LIMIT 1"
    )
    ((part,),) = client.query(asked.format(database, name)).result_rows
    site.engine.kill()
    shutil.rmtree(part)
    site.engine.start()
    assert copies(client, table) == (0, 0)


MANY = 3_000
"""Partitions of one block, each a part that is on the disk before the next is."""


def test_a_server_killed_between_two_partitions(site: Site, client: Client, app: str) -> None:
    """B3: its part log lacks what was done just before, so the token is not surely remembered.

    The block is parked with what is there. A person takes that away, and says so.
    """
    client.command(f"CREATE DATABASE {app}")
    table = f"{app}.t"
    client.command(
        f"CREATE TABLE {table} (id Int64, name String, _block String) ENGINE = MergeTree "
        "PARTITION BY id ORDER BY tuple() SETTINGS fsync_after_insert = 1, "
        f"non_replicated_deduplication_window = {2 * MANY}"
    )
    blocks = site.journal.seal(table, batch(0, MANY))
    with (
        site.worker() as worker,
        killed_once(site, lambda: number(client, table)),
        contextlib.suppress(Unavailable),
    ):
        worker.load(blocks)
    some = number(client, table)
    assert 0 < some < MANY
    with site.worker() as worker:
        assert until_settled(worker, blocks) == ["parked"]
    ledger = ledger_of(site.journal.settings())
    ((_, state, reason),) = resolve(site.journal.settings(), ledger, [blocks[0].id], "absent")
    assert (state, f"{some} of its {MANY} rows" in reason) == ("parked", True), reason
    client.command(f"TRUNCATE TABLE {table}")
    ((_, state, reason),) = resolve(site.journal.settings(), ledger, [blocks[0].id], "absent")
    assert (state, copies(client, table)) == ("loaded", (MANY, MANY)), reason


@contextlib.contextmanager
def killed_once(site: Site, condition: Callable[[], object]) -> Iterator[None]:
    """The server gets SIGKILL as soon as this holds, and is started again behind the block."""

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not condition():  # without a pause: what it waits for lasts a moment
            assert time.monotonic() < deadline
        site.engine.kill()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        yield
        killing.result()
    site.engine.start()


@pytest.mark.parametrize("anew", [True, False])
def test_a_restored_backup_gets_what_came_since(
    site: Site, client: Client, engine: Engine, app: str, *, anew: bool
) -> None:
    """C3: tables and ledger are set back by one statement each, the checkpoint is newer."""
    client.command(f"CREATE DATABASE {app}")
    stamped = make(client, f"{app}.stamped", stamped=True)
    bare = make(client, f"{app}.bare", stamped=False)
    loader = Unsparked(site.journal)
    loaded(loader, stamped, 0, 100)
    loaded(loader, bare, 0)
    held = [stamped, bare, f"{site.journal.settings().loader.database}.ledger"]
    tables = ", ".join(f"TABLE {one}" for one in held)
    file = f"File('{engine.directory}/{app}/')"
    client.command(f"BACKUP {tables} TO {file}")
    loaded(loader, stamped, 200)
    loaded(loader, bare, 100)
    for one in held:
        client.command(f"DROP TABLE {one} SYNC" if anew else f"TRUNCATE TABLE {one}")
    client.command(f"RESTORE {tables} FROM {file}")
    assert (copies(client, stamped), copies(client, bare)) == ((200, 200), (100, 100))
    assert "ClickHouse went back" in "\n".join(loader.run())
    assert (copies(client, stamped), copies(client, bare)) == ((300, 300), (200, 200))
    assert loader.run() == [], "said once"
