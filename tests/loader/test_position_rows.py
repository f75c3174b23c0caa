"""What a micro-batch reads of the positions that all micro-batches before it have left."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse import ledger_table
from loader.clickhouse.ledger import Ledger
from loader.core.positions import column_row, select_positions
from loader.journal.source import Start
from loader.spark.known_blocks import KnownBlocks
from relay.config.allowed_tables import LEDGER_KEY
from relay.errors import Unavailable
from tests.loader.blocks import Journal

OLD_KEY = "ORDER BY (app, table, block)"
BATCHES = 200_000
"""Of partition 1; partition 0 is quiet."""
GRANULE = 8192
QUIET, BUSY = 0, 1


def leave(ledger: Ledger, client: Client) -> dict[int, int]:
    """Have many micro-batches leave positions; return the last."""
    client.command(
        f"INSERT INTO {ledger.name} (app, table, block, state, attempt) "
        f"SELECT '{ledger.app}', '', 'J:{BUSY}', 'position', number FROM numbers({BATCHES})"
    )
    ledger.note([column_row("_block")])
    ledger.save_positions("J", {QUIET: 5, BUSY: BATCHES})
    ledger.save_positions("of another", {QUIET: 9})
    return {QUIET: 5, BUSY: BATCHES}


@pytest.fixture(params=[LEDGER_KEY, OLD_KEY])
def made(
    request: pytest.FixtureRequest, ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> Ledger:
    """A ledger of this version, and one of an earlier."""
    monkeypatch.setattr(ledger_table, "LEDGER_KEY", request.param)
    client.command(f"DROP TABLE {ledger.name} SYNC")
    client.command(ledger_table.create(ledger.name))
    return ledger


@pytest.fixture
def known(journal: Journal) -> Callable[[Ledger, dict[int, int]], KnownBlocks]:
    settings = journal.settings()
    return lambda ledger, at: KnownBlocks(ledger, Start(settings, "J", at), "_block")


def row(partition: int, offset: int) -> Any:
    """A record of the journal without blocks."""
    return SimpleNamespace(block=None, partition=partition, offset=offset)


def read(client: Client, ledger: Ledger, blocks: KnownBlocks) -> tuple[int, int]:
    """Look and settle three times; return how many rows were read, and by how many statements."""
    (begun,) = client.query("SELECT now64(6)").result_rows[0]
    for offset in range(BATCHES, BATCHES + 3):
        blocks.look([row(BUSY, offset)])
        blocks.check()
        blocks.settled({BUSY: offset + 1})
    assert ledger.positions()["J", BUSY] == BATCHES + 3
    client.command("SYSTEM FLUSH LOGS")
    rows, asked = client.query(
        "SELECT sum(read_rows), count() FROM system.query_log WHERE type = 'QueryFinish' "
        "AND event_time_microseconds >= {begun:DateTime64(6)} "
        "AND has(tables, {name:String}) AND query LIKE '%PREWHERE attempt%'",
        parameters={"begun": begun, "name": ledger.name.replace("`", "")},
    ).result_rows[0]
    return rows, asked


def test_it_reads_the_last_of_each_partition(
    ledger: Ledger, client: Client, known: Callable[..., KnownBlocks]
) -> None:
    """Of 200 000 rows none but those around the last; also where a partition is quiet."""
    rows, asked = read(client, ledger, known(ledger, leave(ledger, client)))
    assert asked == 6
    assert rows < asked * 3 * GRANULE


@pytest.mark.parametrize("made", [OLD_KEY], indirect=True)
def test_the_key_is_needed(made: Ledger, client: Client, known: Callable[..., KnownBlocks]) -> None:
    """Negative control: an earlier version's ledger is read whole, and is right all the same."""
    rows, asked = read(client, made, known(made, leave(made, client)))
    assert rows > asked * BATCHES


def test_it_says_what_all_positions_say(
    made: Ledger, client: Client, known: Callable[..., KnownBlocks]
) -> None:
    """The same as where everything is read; in whichever order the ledger is sorted."""
    at = leave(made, client)
    assert made.noted_from("J", at).of("J") == made.noted().of("J") == at
    made.save_positions("J", {BUSY: BATCHES + 7})  # another loader's
    assert made.noted_from("J", at).of("J") == {QUIET: 5, BUSY: BATCHES + 7}
    found = known(made, at).look([row(2, 0)])
    assert found.until > 0, "of a new partition: the server's time is known, too"


def test_it_notices_that_one_went_back(
    made: Ledger, client: Client, known: Callable[..., KnownBlocks]
) -> None:
    """By a single row, in a single partition; and writes nothing over it."""
    at = leave(made, client)
    blocks = known(made, at)
    client.command(f"DELETE FROM {made.name} WHERE block = 'J:{BUSY}' AND attempt = {BATCHES}")
    blocks.settled({QUIET: 6, BUSY: BATCHES + 1})
    assert made.positions() == {
        ("J", QUIET): 5,
        ("J", BUSY): BATCHES - 1,
        ("of another", QUIET): 9,
    }
    blocks.look([row(QUIET, 5)])
    with pytest.raises(Unavailable, match=f"stood at 6 in partition {QUIET} .* stands at 5"):
        blocks.check()


def test_where_nothing_is_known_nothing_is_asked() -> None:
    assert select_positions("J", {}).endswith("AND (0)")
    assert "(block = 'J:1' AND attempt >= 7)" in select_positions("J", {1: 7, 0: 3})
    assert select_positions("J", {1: 7, 0: 3}).startswith("PREWHERE attempt >= 3 ")
