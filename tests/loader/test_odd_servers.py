"""Profiles and servers as some have them: each statement of the loader means the same everywhere.

On the real server with users, and with a time zone of its own, half a day behind UTC.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, NamedTuple

import pytest

from loader.blocks import scratch_table
from loader.blocks.worker import Worker
from loader.journal.startup import ledger_of
from relay.clickhouse.statement_settings import FEW_ROWS
from tests.loader.blocks import Journal, batch, clock_passes
from tests.loader.test_altered_tables import recorded
from tests.loader.test_changed_meanwhile import answer_lost
from tests.loader.test_evidence import number, until_settled, window
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import User

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

ZONE = "<timezone>Etc/GMT+12</timezone>"
SHARDS = (
    "<remote_servers><away><shard><replica><host>127.0.0.1</host><port>1</port></replica></shard>"
    "</away></remote_servers>"
)
DISKS = (
    "<custom_local_disks_base_directory>{path}/</custom_local_disks_base_directory>"
    "<storage_configuration><disks><whole><type>object_storage</type>"
    "<object_storage_type>local</object_storage_type><metadata_type>plain_rewritable</metadata_type>"
    "<path>{path}/whole/</path></whole></disks></storage_configuration>"
)
ON_DISKS = {
    "the whole of one": "disk = 'whole', table_disk = 1",
    "made by the table": "disk = disk(type = local, path = '{path}/made/')",
}
"""Settings of tables that name their disk: as the whole of it is theirs, or as they made it."""
PROFILES = {
    # The date there is always one, or two, after that in the server's logs.
    "time zone": {"session_timezone": "Pacific/Kiritimati"},
    "aggregates": {
        "aggregate_functions_null_for_empty": "1",
        "empty_result_for_aggregation_by_empty_set": "1",
        "enable_positional_arguments": "0",
        "prefer_column_name_to_alias": "1",
    },
    "keys": {"force_primary_key": "1", "force_optimize_projection": "1"},
    "types": {"cast_keep_nullable": "1", "data_type_default_nullable": "1"},
    "rows": {"final": "1", "apply_deleted_mask": "0", "apply_patch_parts": "0"},
    "names": {"input_format_arrow_case_insensitive_column_matching": "1"},
    "blocks": {"use_strict_insert_block_limits": "1", "max_insert_block_size_bytes": "600"},
    "views": {
        "materialized_views_ignore_errors": "1",
        "ignore_materialized_views_with_dropped_target_table": "1",
    },
    "branches": {"short_circuit_function_evaluation": "disable"},
}
PLAIN = User("plain", "w")
USERS = [
    *(User(name.replace(" ", "_"), "w", settings=of) for name, of in PROFILES.items()),
    # Neither may run a statement with one thread, as the loader likes to for few rows.
    User("threads", "w", settings={"max_threads": "4"}, least={"max_threads": "2"}),
    User("fixed", "w", constant=tuple(FEW_ROWS)),
]
_apps = itertools.count()


class Opened(NamedTuple):
    """An app on the server, as a user has it."""

    journal: Journal
    admin: Client
    worker: Worker


@contextlib.contextmanager
def opened(
    engine: Engine, bootstrap: str, directory: Path, app: str, user: User
) -> Iterator[Opened]:
    journal = Journal(bootstrap, engine.reached_as(user), app, directory)
    ledger_of(journal.settings(), make=True)
    with (
        contextlib.closing(engine.client()) as admin,
        contextlib.closing(Worker(journal.settings())) as worker,
    ):
        yield Opened(journal, admin, worker)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    directory = tmp_path_factory.mktemp("odd")
    more = ZONE + SHARDS + DISKS.format(path=directory / "disks")
    with running(NOW, directory, [PLAIN, *USERS], more=more) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
        yield server


@pytest.mark.parametrize("logs", [True, False], ids=["logs", "no logs"])
@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_a_profile_changes_nothing(
    engine: Engine,
    bootstrap: str,
    tmp_path: Path,
    user: User,
    request: pytest.FixtureRequest,
    *,
    logs: bool,
) -> None:
    """In one part each; also of blocks of which only the record, or a count, tells."""
    if not logs:
        request.getfixturevalue("without_logs")
    app = f"profile{next(_apps)}"
    table = f"shop.{app}"
    with opened(engine, bootstrap, tmp_path, app, user) as (journal, admin, worker):
        stamp = "" if logs else ", _block String"
        admin.command(
            f"CREATE TABLE {table} (id Int64, name LowCardinality(String){stamp}) "
            f"ENGINE = MergeTree ORDER BY id {window(0)}"
        )
        admin.command(f"SYSTEM STOP MERGES {table}")
        first, second = (journal.seal(table, batch(at, 100)) for at in (0, 100))
        assert until_settled(worker, first) == ["loaded"]
        answer_lost(worker, second)
        assert until_settled(worker, second) == ["loaded"]
        assert number(admin, table) == 200
        parts = f"system.parts WHERE active AND database = 'shop' AND table = '{app}'"
        assert number(admin, parts) == 2


def test_names_that_differ_in_case_are_two(engine: Engine, bootstrap: str, tmp_path: Path) -> None:
    """Under the profile that takes them for one, both columns got the values of the last."""
    (user,) = (one for one in USERS if one.name == "names")
    with opened(engine, bootstrap, tmp_path, "names", user) as (journal, admin, worker):
        admin.command("CREATE TABLE shop.cases (id Int64, ID Int64) ENGINE = MergeTree ORDER BY id")
        row = recorded({"id": ("Int64", 1), "ID": ("Int64", 2)})
        assert until_settled(worker, journal.seal("shop.cases", row)) == ["loaded"]
        assert admin.query("SELECT id, ID FROM shop.cases").result_rows == [(1, 2)]


def test_a_field_that_is_left_out_is_not_cast(
    engine: Engine, bootstrap: str, tmp_path: Path
) -> None:
    """Under the profile that computes both branches of an `if`, no value was read as a number."""
    (user,) = (one for one in USERS if one.name == "branches")
    with opened(engine, bootstrap, tmp_path, "branches", user) as (journal, admin, worker):
        admin.command(
            "CREATE TABLE shop.branches (id Int64, n UInt16 DEFAULT 7, j Nullable(JSON)) "
            "ENGINE = MergeTree ORDER BY id"
        )
        row = {"id": ("Int64", 1), "n": ("Nullable(String)", None), "j": ("Nullable(JSON)", None)}
        blocks = journal.seal("shop.branches", recorded(row))
        assert until_settled(worker, blocks) == ["loaded"]
        found = admin.query("SELECT id, n, isNull(j) FROM shop.branches").result_rows
        assert found == [(1, 7, 1)]


def test_a_view_whose_target_was_dropped_passes_nothing_over(
    engine: Engine, bootstrap: str, tmp_path: Path
) -> None:
    """Under a profile by which the server would leave that view out, and say nothing."""
    (user,) = (one for one in USERS if one.name == "views")
    with opened(engine, bootstrap, tmp_path, "dropped", user) as (journal, admin, worker):
        target = "CREATE TABLE shop.behind (id Int64) ENGINE = MergeTree ORDER BY id"
        admin.command("CREATE TABLE shop.before (id Int64) ENGINE = MergeTree ORDER BY id")
        admin.command(target)
        admin.command(
            "CREATE MATERIALIZED VIEW shop.between TO shop.behind AS SELECT id FROM shop.before"
        )
        admin.command("DROP TABLE shop.behind SYNC")
        blocks = journal.seal("shop.before", batch(0, 100))
        (done,) = worker.load(blocks)
        assert (done.outcome, done.about) == ("retry", "table"), done.reason
        admin.command(target)
        assert until_settled(worker, blocks) == ["loaded"]
        assert (number(admin, "shop.before"), number(admin, "shop.behind")) == (100, 100)


def test_a_log_that_was_emptied_proves_nothing(
    engine: Engine, bootstrap: str, tmp_path: Path
) -> None:
    """A disk was full, and somebody emptied the logs, some seconds after a claim."""
    with opened(engine, bootstrap, tmp_path, "emptied", PLAIN) as (journal, admin, worker):
        admin.command("CREATE TABLE shop.emptied (id Int64) ENGINE = MergeTree ORDER BY id")
        blocks = journal.seal("shop.emptied", batch(0, 100))
        answer_lost(worker, blocks)
        clock_passes(admin, 3)
        admin.command("SYSTEM FLUSH LOGS")
        for log in ("query_log", "part_log"):
            admin.command(f"TRUNCATE TABLE system.{log}")
        assert until_settled(worker, blocks) == ["parked"]
        assert number(admin, "shop.emptied") == 100


def test_a_shard_that_is_away_has_no_rows(engine: Engine, bootstrap: str, tmp_path: Path) -> None:
    """An INSERT into a Distributed table is answered by the shards, and not by a queue."""
    with opened(engine, bootstrap, tmp_path, "shards", PLAIN) as (journal, admin, worker):
        admin.command("CREATE TABLE shop.shards (id Int64) ENGINE = Distributed(away, shop, t, id)")
        (done,) = worker.load(journal.seal("shop.shards", batch(0, 100)))
        assert (done.outcome, "127.0.0.1:1" in done.reason) == ("retry", True), done


@pytest.mark.parametrize("disk", ON_DISKS.values(), ids=ON_DISKS)
def test_rows_are_tried_on_no_disk_of_the_table(
    engine: Engine, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """Two tables that have the whole of one disk overwrite each other's parts; and what a table
    says of a disk that it made is hidden, so that no other can be made by it."""
    app = f"disk{next(_apps)}"
    table = f"shop.{app}"
    with opened(engine, bootstrap, tmp_path, app, PLAIN) as (journal, admin, _):
        place = disk.format(path=engine.directory / "disks")
        admin.command(
            f"CREATE TABLE {table} (id Int64, name String, CONSTRAINT small CHECK id != 17) "
            f"ENGINE = MergeTree ORDER BY id SETTINGS {place}"
        )

        def another(_: str) -> None:
            admin.command(f"INSERT INTO {table} VALUES (1000, 'of another')")

        monkeypatch.setattr(scratch_table, "reached", another)
        (block,) = journal.seal(table, batch(0, 100), each=1)
        with contextlib.closing(Worker(journal.settings(), isolates=True)) as isolating:
            (done,) = isolating.load([block])
        assert (done.outcome, done.left_out) == ("loaded", 1), done.reason
        for step in ("DETACH", "ATTACH"):
            admin.command(f"{step} TABLE {table}")
        assert number(admin, table) == 100
        assert admin.command(f"SELECT sum(length(name)) > 0 FROM {table}") == 1
