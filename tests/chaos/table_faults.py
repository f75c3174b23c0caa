"""Performs what people do to tables under a campaign; see tests.chaos.faults."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.names import LEFT_OUT
from tests.chaos import facts, tables
from tests.chaos.lost import Absence
from tests.chaos.rows import TABLES
from tests.chaos.servers import LEDGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clickhouse_connect.driver.client import Client

    from tests.chaos.campaign import Campaign, Task
    from tests.chaos.schedule import Fault
    from tests.chaos.servers import Servers

_RESOLVE_SECONDS = 120.0
_STILL_SECONDS, _LOOK_SECONDS = 3.0, 0.05
"""Until INSERTs of stopped loaders are over, and between two looks."""


def rule(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A CHECK that refuses one row of fifty comes to a table, and goes again."""
    table = tables.name(TABLES[fault.target % len(TABLES)])
    return _refusing(campaign, table, f"n % 50 != {fault.target % 50}", fault.seconds)


def view_fails(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """What a view writes into refuses each row, or one of fifty: the table has its rows by then."""
    viewed = [table for table in TABLES if table.viewed]
    table = tables.seen(viewed[fault.target % len(viewed)])
    check = f"n % 50 != {fault.target % 50}" if fault.detail == "one" else "n < 0"
    return _refusing(campaign, table, check, fault.seconds)


def expire(campaign: Campaign, _fault: Fault) -> Sequence[Task]:
    """Rows whose time is over go at once, and not when the server comes to it."""
    with (
        contextlib.suppress(ClickHouseError),  # the server is away just now, as another fault wants
        contextlib.closing(campaign.servers.clickhouse()) as client,
    ):
        for table in (table for table in TABLES if table.expires):
            client.command(f"OPTIMIZE TABLE {tables.name(table)} FINAL")
    return ()


def remake_table(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A table is dropped while loaders have INSERTs under way, and made anew after a while.

    The loaders stand still from the last look at its rows until it is gone, so that the judges
    know what went with it. Then they go on where they were.
    """
    plain = [i for i, table in enumerate(TABLES) if not table.viewed]
    index = plain[fault.target % len(plain)]
    dropped = campaign.servers.dropped
    loaders = [p for p in campaign.programs() if p.name.startswith("loader")]
    for program in loaders:
        program.signal(signal.SIGSTOP)
    try:
        with contextlib.closing(campaign.servers.clickhouse()) as client:
            if not _still(client):  # a stopped loader owes the server the rest of a statement
                for program in loaders:
                    program.kill()
                if not _still(client):
                    return ()
            held = facts.rows_of(client, tables.name(TABLES[index]))
            client.command(f"DROP TABLE {tables.name(TABLES[index])}")
    except ClickHouseError:  # it is away, or the table is
        return ()
    finally:
        for program in loaders:
            program.signal(signal.SIGCONT)
    dropped.rows[index].append(held)
    dropped.absences[index].append(Absence())
    campaign.history.write("dropped", table=TABLES[index].name, rows=len(held.numbers))
    return [(fault.seconds, "undo drop", lambda: _make_tables(campaign.servers))]


def _still(client: Client) -> bool:
    """Whether no INSERT runs any more, after a while."""
    deadline = time.monotonic() + _STILL_SECONDS
    asked = "SELECT count() FROM system.processes WHERE query_kind = 'Insert'"
    while client.query(asked).result_rows[0][0]:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _make_tables(servers: Servers) -> None:
    with contextlib.suppress(ClickHouseError):  # `all_as_before` makes what is not there
        servers.make_tables()
        servers.dropped.back()


def _refusing(campaign: Campaign, table: str, check: str, seconds: float) -> Sequence[Task]:
    try:
        with contextlib.closing(campaign.servers.clickhouse()) as client:
            client.command(f"ALTER TABLE {table} ADD CONSTRAINT IF NOT EXISTS picky CHECK {check}")
    except ClickHouseError:  # the server is away just now, as another fault wants, or the table
        return ()
    return [(seconds, "undo rule", lambda: _drop(campaign, table))]


def _drop(campaign: Campaign, table: str) -> None:
    with (
        contextlib.suppress(ClickHouseError),  # `all_as_before` drops what is left
        contextlib.closing(campaign.servers.clickhouse()) as client,
    ):
        client.command(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS picky")


def all_as_before(campaign: Campaign) -> bool:
    """Make what is not there, drop all rules, and do as a person would: try again what waits.

    Gives whether nothing waited that was not tried before.
    """
    servers = campaign.servers
    if servers.dropped.away():
        _make_tables(servers)
    for table in _with_rules(servers):
        _drop(campaign, f"{tables.DATABASE}.{table}")
    waiting = [block for block in _waiting(servers) if block not in campaign.tried]
    if waiting:
        program = [sys.executable, "-m", "loader.cli", "parked", "resolve"]
        done = subprocess.run(
            [*program, servers.directory / "relay.toml", *waiting, "--retry"],
            capture_output=True,
            text=True,
            timeout=_RESOLVE_SECONDS,
            check=False,
        )
        # What is left out of a block is a block of its own then, and was not tried yet.
        campaign.tried |= {block for block in waiting if not block.endswith(LEFT_OUT)}
        campaign.performed["resolved"] += len(waiting)
        campaign.history.write(
            "resolved",
            blocks=waiting,
            status=done.returncode,
            said=done.stdout,
            errors=done.stderr,
        )
    return not waiting


def _with_rules(servers: Servers) -> list[str]:
    with contextlib.closing(servers.clickhouse()) as client:
        found = client.query(
            "SELECT name FROM system.tables WHERE database = {database:String} "
            "AND create_table_query LIKE '%CONSTRAINT picky%'",
            parameters={"database": tables.DATABASE},
        )
    return [str(name) for (name,) in found.result_rows]


def _waiting(servers: Servers) -> list[str]:
    """Blocks that are parked, and those of left out messages, which are so from the beginning."""
    with contextlib.closing(servers.clickhouse()) as client:
        found = client.query(
            f"SELECT block FROM {LEDGER}.ledger WHERE state != 'position' "
            "GROUP BY block HAVING countIf(state IN ('loaded', 'discarded')) = 0 "
            f"AND (endsWith(block, '{LEFT_OUT}') "
            "OR argMax(state, (attempt, state != 'prepared', claim)) = 'parked') ORDER BY block"
        )
    return [str(block) for (block,) in found.result_rows]
