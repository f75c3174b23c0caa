"""Performs what people do to tables under a campaign; see tests.chaos.faults."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.names import LEFT_OUT
from tests.chaos.rows import TABLES
from tests.chaos.servers import DATABASE, LEDGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.campaign import Campaign, Task
    from tests.chaos.schedule import Fault
    from tests.chaos.servers import Servers

_RESOLVE_SECONDS = 120.0


def rule(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A CHECK that refuses one row of fifty comes to a table, and goes again."""
    table = f"{DATABASE}.{TABLES[fault.target % len(TABLES)].name}"
    try:
        with contextlib.closing(campaign.servers.clickhouse()) as client:
            client.command(
                f"ALTER TABLE {table} ADD CONSTRAINT IF NOT EXISTS picky "
                f"CHECK n % 50 != {fault.target % 50}"
            )
    except ClickHouseError:  # the server is away just now, as another fault wants
        return ()
    return [(fault.seconds, "undo rule", lambda: _drop(campaign, table))]


def _drop(campaign: Campaign, table: str) -> None:
    with (
        contextlib.suppress(ClickHouseError),  # `left_out_loaded` drops what is left
        contextlib.closing(campaign.servers.clickhouse()) as client,
    ):
        client.command(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS picky")


def left_out_loaded(campaign: Campaign) -> bool:
    """Drop all rules and do as a person would: have what was left out tried again.

    Gives whether nothing waited.
    """
    for table in _with_rules(campaign.servers):
        _drop(campaign, f"{DATABASE}.{table}")
    waiting = _left_out(campaign.servers)
    if waiting:
        path = campaign.servers.directory / "relay.toml"
        program = [sys.executable, "-m", "loader.cli", "parked", "resolve", path]
        done = subprocess.run(
            [*program, *waiting, "--retry"],
            capture_output=True,
            text=True,
            timeout=_RESOLVE_SECONDS,
            check=False,
        )
        campaign.performed["left_out_resolved"] += len(waiting)
        campaign.history.write("resolved", blocks=waiting, status=done.returncode, said=done.stdout)
    return not waiting


def _with_rules(servers: Servers) -> list[str]:
    with contextlib.closing(servers.clickhouse()) as client:
        found = client.query(
            "SELECT name FROM system.tables WHERE database = {database:String} "
            "AND create_table_query LIKE '%CONSTRAINT picky%'",
            parameters={"database": DATABASE},
        )
    return [str(name) for (name,) in found.result_rows]


def _left_out(servers: Servers) -> list[str]:
    """Blocks of left out messages that wait."""
    with contextlib.closing(servers.clickhouse()) as client:
        found = client.query(
            f"SELECT block FROM {LEDGER}.ledger WHERE endsWith(block, '{LEFT_OUT}') "
            "GROUP BY block HAVING countIf(state IN ('loaded', 'discarded')) = 0 ORDER BY block"
        )
    return [str(block) for (block,) in found.result_rows]
