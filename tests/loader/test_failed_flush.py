"""A server whose logs lack entries, because it could not write a batch of them and went on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from tests.broker.pipeline import wait_until
from tests.loader.blocks import Journal, batch
from tests.loader.test_changed_meanwhile import answer_lost
from tests.loader.test_evidence import number, window
from tests.loader.test_own_server import Site
from tests.versions.engines import ADMIN, running
from tests.versions.releases import NOW

if TYPE_CHECKING:
    from pathlib import Path

LOGS = ("query_log", "part_log")
_INSERTS = "SELECT count() FROM system.processes WHERE query_kind = 'Insert'"


@pytest.fixture
def site(bootstrap: str, app: str, tmp_path: Path) -> Iterator[Site]:
    """A server that starts anew for each test: it counts what failed since then."""
    with running(NOW, tmp_path / "server") as engine:
        yield Site(engine, Journal(bootstrap, engine.reached_as(ADMIN), app, tmp_path), tmp_path)


@contextlib.contextmanager
def lost(client: Client) -> Iterator[None]:
    """The server writes nothing into its logs, as with a full disk, and throws away what it had."""
    client.command("SYSTEM FLUSH LOGS")
    for log in LOGS:
        client.command(f"ALTER TABLE system.{log} ADD CONSTRAINT no CHECK 0")
    yield
    # The INSERT, of whose answer nobody heard, may still write its last entry.
    wait_until(lambda: not client.query(_INSERTS).result_rows[0][0], "its end")
    with contextlib.suppress(ClickHouseError):
        client.command("SYSTEM FLUSH LOGS")
    for log in LOGS:
        client.command(f"ALTER TABLE system.{log} DROP CONSTRAINT no")


@pytest.mark.parametrize("partitioned", [True, False])
def test_an_insert_whose_entries_were_lost(site: Site, app: str, *, partitioned: bool) -> None:
    """Neither log has it, though both reach back to the claim: nobody knows, so it is parked."""
    by = "PARTITION BY id % 2 " if partitioned else ""
    with contextlib.closing(site.engine.client()) as client, site.worker() as worker:
        client.command(f"CREATE DATABASE {app}")
        client.command(
            f"CREATE TABLE {app}.t (id Int64, name String) ENGINE = MergeTree {by}"
            f"ORDER BY id {window(0)}"
        )
        blocks = site.journal.seal(f"{app}.t", batch(0, 100))
        with lost(client):
            answer_lost(worker, blocks)
        (done,) = worker.load(blocks)
        assert (done.outcome, number(client, f"{app}.t")) == ("parked", 100)
        assert "could not write all entries of its logs" in done.reason
