"""Blocks whose rows go through a transform: real Kafka, ClickHouse's engine, no Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks.worker import Worker
from loader.clickhouse.ledger import Ledger
from loader.operate.resolve import resolve
from relay.clickhouse.errors import About
from relay.config.settings import Settings
from relay.operate.verify.judge.contents import landed
from relay.operate.verify.read.landed_rows import LandedRows
from relay.records_pb2 import Block
from tests.loader.blocks import Journal, await_next_second, batch, parked_blocks
from tests.loader.test_evidence import create, window
from tests.loader.test_work import copies, killed, make, others_insert, outcomes

MODULE = "transform_of_blocks"
EVEN = """
import pyarrow.compute as pc
def f(rows):
    return rows.filter(pc.equal(pc.bit_wise_and(rows["id"], 1), 0))
"""
FOURTH = EVEN.replace("1), 0", "3), 0")
THRICE = """
import pyarrow as pa, pyarrow.compute as pc
def f(rows):
    columns = [pc.add(rows["id"], 1000), *rows.columns[1:]]
    more = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    (made,) = pa.Table.from_batches([rows, more, more]).combine_chunks().to_batches()
    return made
"""
NONE = "def f(rows): return rows.slice(0, 0)"


class Operator:
    """Who writes the transform, and runs loaders with the one of now."""

    def __init__(self, journal: Journal, directory: Path) -> None:
        self._journal, self._file = journal, directory / f"{MODULE}.py"

    def settings(self) -> Settings:
        return self._journal.settings(transform=f"{MODULE}:f")

    def writes(self, text: str) -> None:
        self._file.write_text(text)
        sys.modules.pop(MODULE, None)

    def load(self, *blocks: Block) -> list[str]:
        """Outcomes of a loader that is started now."""
        worker = Worker(self.settings())
        try:
            return outcomes(worker.load(blocks))
        finally:
            worker.close()


@pytest.fixture
def operator(
    journal: Journal, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Operator]:
    assert ledger.counts() == []
    monkeypatch.syspath_prepend(journal.directory)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Operator(journal, journal.directory)
    sys.modules.pop(MODULE, None)


@pytest.fixture
def table(client: Client, database: str) -> str:
    return make(client, f"{database}.stamped", stamped=True)


def test_fewer_rows_are_loaded_and_the_verifier_agrees(
    operator: Operator, journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """The ledger's number counts, not the block's; none of a block's rows may be left, too."""
    blocks = journal.seal(table, batch(0, 100), batch(100, 101))
    operator.writes(EVEN)
    for _ in range(2):
        assert operator.load(*blocks) == ["loaded"] * 2
        assert copies(client, table) == (101, 101)
    operator.writes(NONE)
    blocks += journal.seal(table, batch(300, 50))
    assert operator.load(blocks[2]) == ["loaded"]
    assert ledger.counts() == [(table, "loaded", 3, 101)]

    rows = LandedRows(operator.settings())
    made = rows.made(table)
    assert made == dict(zip([block.id for block in blocks], [50, 51, 0], strict=True))
    seen = rows.counted(table), rows.ledger(table), 0, 60.0
    assert list(landed(blocks, *seen, made)) == []
    client.command(f"ALTER TABLE {table} DELETE WHERE id = 4 SETTINGS mutations_sync = 2")
    seen = rows.counted(table), *seen[1:]
    (found,) = landed(blocks, *seen, made)
    assert "the table has 49 of its 50 rows" in found.text
    assert len(list(landed(blocks, *seen))) == 3, "against the blocks' own rows all are short"


@pytest.mark.parametrize(("point", "version"), [("after_prepare", FOURTH), ("after_insert", EVEN)])
def test_a_retry_with_another_version_mixes_nothing(
    operator: Operator, journal: Journal, client: Client, table: str, point: str, version: str
) -> None:
    """Killed under EVEN, gone on under FOURTH: what is there stays, what is not comes anew."""
    operator.writes(EVEN)
    (block,) = journal.seal(table, batch(0, 1000))
    killed(journal, [block], point, operator.settings())
    others_insert(client, table)
    operator.writes(FOURTH)
    assert operator.load(block) == ["loaded"]
    rows = 250 if version == FOURTH else 500
    assert copies(client, table) == (rows, rows)
    assert LandedRows(operator.settings()).made(table) == {block.id: rows}


@pytest.mark.usefixtures("without_logs")
def test_more_rows_than_the_block_has_may_merge(
    operator: Operator, journal: Journal, client: Client, database: str
) -> None:
    """300 of 100, and 200 behind a merge: that is no part that the table has lost."""
    merging = create(
        client, f"{database}.t", ", _block String", "ReplacingMergeTree", more=window(100)
    )
    await_next_second(client)
    (block,) = journal.seal(merging, batch(0, 100))
    operator.writes(THRICE)
    killed(journal, [block], "after_insert", operator.settings())
    others_insert(client, merging)
    client.command(f"OPTIMIZE TABLE {merging} FINAL")
    assert copies(client, merging) == (200, 200)
    assert operator.load(block) == ["loaded"]
    assert copies(client, merging) == (200, 200)
    assert LandedRows(operator.settings()).made(merging) == {block.id: 300}


@pytest.mark.usefixtures("without_logs")
def test_without_block_column_another_version_parks(
    operator: Operator, journal: Journal, ledger: Ledger, client: Client, database: str
) -> None:
    """Inside the window, where the same version would be repeated under its token."""
    bare = make(client, f"{database}.bare", stamped=False, window=100)
    operator.writes(EVEN)
    same, other = journal.seal(bare, batch(0, 100), batch(100, 100))
    killed(journal, [same], "after_insert", operator.settings())
    assert operator.load(same) == ["loaded"]
    killed(journal, [other], "after_insert", operator.settings())
    operator.writes(FOURTH)
    assert operator.load(other) == ["parked"]
    ((parked, reason),) = parked_blocks(ledger)
    assert (parked.id, "the transform has changed" in reason) == (other.id, True)
    assert copies(client, bare) == (100, 100)


def test_what_it_raises_parks_the_block_until_it_is_mended(
    operator: Operator, journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """Nothing else stops; `--retry` takes the mended version, `--discard` needs none."""
    operator.writes("def f(rows):\n    return rows if rows['id'][0].as_py() else 1 / 0")
    bad, good, given_up = journal.seal(table, batch(0, 10), batch(10, 10), batch(20, 10))
    assert operator.load(bad, good) == ["parked", "loaded"]
    ((_, reason),) = parked_blocks(ledger)
    assert f"{MODULE}:f@" in reason
    assert "ZeroDivisionError" in reason
    assert copies(client, table) == (10, 10)
    operator.writes("def f(rows): return rows.append_column('more', rows['id'])")
    assert operator.load(given_up) == ["parked"]
    ((_, state, why),) = resolve(operator.settings(), ledger, [bad.id], "retry")
    assert (state, "column more, which the table does not have" in why) == ("parked", True)
    ((_, state, _),) = resolve(operator.settings(), ledger, [given_up.id], "discard")
    assert state == "discarded"
    operator.writes("def f(rows): return rows")
    ((_, state, _),) = resolve(operator.settings(), ledger, [bad.id], "retry")
    assert state == "loaded"
    assert copies(client, table) == (20, 20)


def test_one_that_is_not_deterministic_concerns_its_table_alone(
    operator: Operator, journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """Its blocks wait unclaimed, with the reason; other tables' blocks of the same run are loaded,
    where it ended the loader for all."""
    operator.writes(
        "import itertools\nn = itertools.count()\ndef f(rows): return rows.slice(next(n))"
    )
    other = make(client, f"{table}_other", stamped=True)
    (block,) = journal.seal(table, batch(0, 10))
    (neighbour,) = journal.seal(other, batch(0, 10))
    own = {"transform": f"{MODULE}:f", "tables": {other: {"transform": ""}}}
    worker = Worker(journal.settings(**own))
    waits, loaded = worker.load([block, neighbour])
    worker.close()
    assert (waits.outcome, waits.about) == ("retry", About.TABLE)
    assert "is not deterministic: two runs over the same rows" in waits.reason
    assert loaded.outcome == "loaded"
    assert ledger.entries([block]) == {}
    assert copies(client, table) == (0, 0)
    assert copies(client, other) == (10, 10)


def test_a_tables_own_setting_leaves_its_rows_alone(
    operator: Operator, journal: Journal, client: Client, table: str
) -> None:
    """And the ledger names no version of them."""
    operator.writes(NONE)
    (block,) = journal.seal(table, batch(0, 10))
    settings = operator.settings()
    own = {"transform": f"{MODULE}:f", "tables": {table: {"transform": ""}}}
    worker = Worker(journal.settings(**own))
    assert outcomes(worker.load([block])) == ["loaded"]
    worker.close()
    assert copies(client, table) == (10, 10)
    assert LandedRows(settings).made(table) == {}


def test_a_ledger_of_an_earlier_version_gets_its_column(
    journal: Journal, ledger: Ledger, client: Client
) -> None:
    """With its rows as they are; one of somebody else's is refused, as before."""
    client.command(f"ALTER TABLE {ledger.name} DROP COLUMN transform")
    assert LandedRows(journal.settings()).made("d.t") == {}
    ledger.ensure()
    assert ledger.counts() == []
