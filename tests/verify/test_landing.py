"""Blocks on the tables that users have, on a real server: no false alarm, and no silent loss.

Each case of a fault stands beside its control: the same table, loaded as it should be.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

from relay import names
from relay.config.allowed_tables import LEDGER_LATER
from relay.errors import ClickHouseAway
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.landing import LATE_SECONDS, Landing
from relay.operate.verify.read import table_facts
from relay.operate.verify.read.landed_rows import LandedRows
from relay.operate.verify.read.optional import Optional
from relay.records_pb2 import Commit, Mark, Rewind
from tests.broker.pipeline import wait_until
from tests.loader.blocks import await_next_second
from tests.loader.test_evidence import CLEANS_SOON
from tests.verify.realserver import AUDITOR, CLERK, ONLOOKER, running
from tests.verify.shop import BARE, ROWS, STAMPED, WINDOW, Shop

EXPIRING = "TTL day + INTERVAL 30 DAY"


def expire(shop: Shop, table: str) -> None:
    shop.sql(f"OPTIMIZE TABLE {table} FINAL")
    assert shop.count(table) == 0


def test_rows_that_expired_are_no_anomaly(shop: Shop) -> None:
    """FAULTS A7."""
    table = shop.table(more=EXPIRING)
    block = shop.block(table)
    shop.load(block, age_days=45)
    expire(shop, table)
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert "TTL day + toIntervalDay(30) deletes rows: missing rows are not judged" in text
    assert "1 blocks lack 10 rows now" in text
    never = shop.block(table)
    shop.claim(never)
    shop.mark(never)
    kinds, text = shop.judge(block, never)
    assert kinds == [AnomalyKind.GAP], "what was never inserted is no row that expired"
    assert never.id in text


def test_more_rows_than_the_block_has_are_found_on_a_table_with_a_ttl(shop: Shop) -> None:
    """Rows that nobody recorded, as after a restore of the same rows."""
    table = shop.table(more=EXPIRING)
    block = shop.block(table)
    shop.load(block)
    shop.sql(f"INSERT INTO {table} SELECT * FROM {table}")
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.OVERLAP], text
    assert "the table has 20 of its rows, but the block has 10" in text


@pytest.mark.parametrize("columns", [STAMPED, BARE])
def test_expired_rows_that_were_inserted_again(shop: Shop, columns: str) -> None:
    """FAULTS A1: the table is empty, the view has them many times."""
    table = shop.table(columns=columns, more=EXPIRING)
    into = shop.view(table)
    block = shop.block(table)
    shop.load(block, age_days=45)
    expire(shop, table)
    assert shop.judge(block)[0] == []
    for _ in range(4):
        shop.claim(block)
        shop.insert(block, age_days=45, token=False)
        expire(shop, table)
    assert shop.count(into, "sum(n)") == 50
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.OVERLAP], text
    assert "50 rows in 5 INSERTs, but the block has 10" in text
    assert "claimed 1 blocks 5 times" in text


def test_a_view_that_failed_after_its_table_had_the_rows(shop: Shop) -> None:
    """FAULTS A3: by count the block is loaded; the view has nothing of it."""
    table = shop.table()
    into = shop.view(table, "n UInt64, CONSTRAINT few CHECK n < 5")
    block = shop.block(table)
    shop.claim(block)
    with pytest.raises(Exception, match="VIOLATED_CONSTRAINT"):
        shop.insert(block)
    assert (shop.count(table), shop.count(into)) == (10, 0)
    shop.mark(block)
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.GAP], text
    assert "view" in text
    shop.sql(f"ALTER TABLE {into} DROP CONSTRAINT few")
    shop.insert(block)
    assert (shop.count(table), shop.count(into, "sum(n)")) == (10, 10)
    assert shop.judge(block)[0] == []


@pytest.mark.parametrize("after", ["dropped", "replaced", "renamed", "kept"])
def test_a_view_that_failed_and_was_taken_away(shop: Shop, after: str) -> None:
    """The block is loaded without it: no gap, for as long as its block is retained; it is said."""
    table = shop.table()
    good, bad, into = shop.view(table), f"{table}_bad", f"{table}_few"
    few = "n UInt64, CONSTRAINT few CHECK n < 5"
    shop.sql(f"CREATE TABLE {into} ({few}) ENGINE = MergeTree ORDER BY n SETTINGS {WINDOW}")
    make = f"CREATE MATERIALIZED VIEW {bad} TO {into} AS SELECT count() AS n FROM {table}"
    shop.sql(make)
    block = shop.block(table)
    shop.claim(block)
    with pytest.raises(Exception, match="VIOLATED_CONSTRAINT"):
        shop.insert(block)
    if after != "kept":
        shop.sql(f"DROP VIEW {bad} SYNC")
    if after == "renamed":
        shop.sql(f"CREATE MATERIALIZED VIEW {bad}_v2 TO {good} AS SELECT 1 AS n FROM {table}")
    shop.client.set_client_setting("materialized_views_ignore_errors", int(after == "kept"))
    shop.insert(block)
    shop.mark(block)
    if after == "replaced":
        shop.sql(make)
    kinds, text = shop.judge(block)
    assert kinds == ([AnomalyKind.GAP] if after == "kept" else []), text
    assert (f"view {bad} failed with error 469, and was dropped" in text) == (after != "kept")


def test_a_view_that_fails_in_silence(shop: Shop) -> None:
    """A3 with a profile that ignores errors of views: the INSERT itself succeeds."""
    table = shop.table()
    shop.view(table, "n UInt64, CONSTRAINT few CHECK n < 5")
    block = shop.block(table)
    shop.client.set_client_setting("materialized_views_ignore_errors", 1)
    shop.load(block)
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.GAP], text
    assert "failed with error 469" in text


def test_a_view_that_doubles_what_its_table_does_not(shop: Shop) -> None:
    """A repeat under the token: the table remembers it, the view's table has no window."""
    table = shop.table()
    into = shop.view(table, window=False)
    block = shop.block(table)
    shop.load(block)
    assert shop.judge(block)[0] == []
    shop.insert(block)
    assert (shop.count(table), shop.count(into, "sum(n)")) == (10, 20)
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.OVERLAP], text
    assert f"{into} got 2 of its rows in 2 INSERTs, although one brings 1" in text


def test_rows_that_a_person_deleted_and_the_loader_brought_back(shop: Shop) -> None:
    """FAULTS A4: the table has them once, as if nobody had deleted them."""
    table = shop.table()
    block = shop.block(table)
    shop.claim(block)
    shop.insert(block)
    shop.sql(f"ALTER TABLE {table} DELETE WHERE 1", mutations_sync=2)
    shop.insert(block, token=False)
    shop.mark(block)
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.OVERLAP], text


def test_rows_that_were_loaded_again_after_a_restore(shop: Shop) -> None:
    """A4's control: the ledger went with the rows, so a second INSERT is right; it is said."""
    table = shop.table(columns=BARE)
    block = shop.block(table)
    shop.load(block)
    shop.sql(f"TRUNCATE TABLE {table}")
    shop.forget()
    shop.claim(block)
    shop.insert(block, token=False)
    shop.mark(block)
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert "inserted again after rows were removed" in text
    shop.insert(block, token=False)
    assert shop.judge(block)[0] == [AnomalyKind.OVERLAP]


@pytest.mark.parametrize("columns", [STAMPED, BARE])
def test_a_token_that_was_ignored_or_forgotten(shop: Shop, columns: str) -> None:
    """FAULTS A5, B1, C5: the same block twice; without a block-id column nothing else shows it."""
    table = shop.table(columns=columns)
    block, other = shop.block(table), shop.block(table)
    shop.load(block)
    shop.load(other)
    shop.insert(block)
    assert shop.count(table) == 20
    assert shop.judge(block, other)[0] == [], "the token dropped the repeat"
    shop.insert(block, token=False)
    kinds, text = shop.judge(block, other)
    assert set(kinds) == {AnomalyKind.OVERLAP}, text
    assert "20 rows in 2 INSERTs, but the block has 10" in text


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("columns", [STAMPED, BARE])
def test_a_ledger_that_calls_loaded_what_is_not_there(
    shop: Shop, columns: str, answered: bool
) -> None:
    """FAULTS A6, C8: nothing was inserted."""
    table = shop.table(columns=columns)
    block, forged = shop.block(table), shop.block(table, partition=3)
    shop.load(block)
    shop.claim(forged)
    if answered:  # an INSERT that wrote nothing, and said that it succeeded
        shop.insert(forged, holds=False)
    shop.mark(forged)
    kinds, text = shop.judge(block, forged)
    assert kinds == [AnomalyKind.GAP], text
    assert "gap: partition 3: block" in text
    found = "the table has 0 of its 10 rows" if columns == STAMPED else "recorded 0 rows of 10"
    assert found in text


def test_a_ledger_older_than_the_block(shop: Shop) -> None:
    """FAULTS C4: topics were made anew, block ids come again, and the ledger has the old ones."""
    table = shop.table()
    block = shop.block(table)
    shop.load(block)
    shop.sql(f"TRUNCATE TABLE {table}")
    block.sealed_at_ms += 60_000
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.GAP, AnomalyKind.FOREIGN], text
    assert "before it was sealed" in text


def test_a_ledger_that_went_back(shop: Shop) -> None:
    """FAULTS C3: blocks of which a restored ClickHouse knows nothing; one line for each table."""
    table = shop.table()
    block = shop.block(table, sealed_ago=3600, partition=2)
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.LATE], text
    assert text.startswith("late: partition 2: block ")


MERGING = [
    "ReplacingMergeTree",
    "ReplacingMergeTree(v)",
    "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree(sign, v)",
    "SummingMergeTree(v)",
    "AggregatingMergeTree",
    "CoalescingMergeTree",
]


@pytest.mark.parametrize(
    ("engine", "columns"),
    [*((engine, STAMPED) for engine in MERGING), ("SummingMergeTree", BARE), (MERGING[1], BARE)],
)
def test_engines_that_merge(shop: Shop, engine: str, columns: str) -> None:
    """FAULTS A8: fewer rows are no anomaly; a second copy is, but where a version absorbs it."""
    table = shop.table(engine=engine, columns=columns)
    blocks = [shop.block(table) for _ in range(3)]
    for block in blocks:
        shop.load(block)
    shop.sql(f"OPTIMIZE TABLE {table} FINAL")
    kinds, text = shop.judge(*blocks)
    assert kinds == [], text
    if columns == STAMPED:
        assert "merges rows into others: missing rows are not judged" in text
    forged = shop.block(table)
    shop.claim(forged)
    shop.mark(forged)
    shop.insert(blocks[1], token=False)
    expected = set() if engine == "ReplacingMergeTree(v)" else {AnomalyKind.OVERLAP}
    kinds, text = shop.judge(*blocks, forged)
    assert set(kinds) == {*expected, AnomalyKind.GAP}, text


ZERO = STAMPED.replace("v UInt64 DEFAULT 1", "v UInt64 DEFAULT 0")
PAIRS = STAMPED.replace("DEFAULT 1", "DEFAULT if(id % 2, -1, 1)", 1)


@pytest.mark.parametrize("viewed", [False, True])
@pytest.mark.parametrize(
    ("engine", "columns", "key"),
    [
        ("SummingMergeTree(v)", ZERO, "id"),
        ("CollapsingMergeTree(sign)", PAIRS, "intDiv(id, 2)"),
        ("VersionedCollapsingMergeTree(sign, v)", PAIRS, "intDiv(id, 2)"),
    ],
)
def test_blocks_that_an_insert_merges_into_nothing(
    shop: Shop, engine: str, columns: str, key: str, *, viewed: bool
) -> None:
    """They make no part; one that was not inserted, or not all of it, does not either."""
    table = shop.table(engine=engine, columns=columns, key=key)
    if viewed:
        shop.view(table)
    block, others = shop.block(table), [shop.block(table), shop.block(table)]
    shop.load(block)
    shop.load(*others)
    assert shop.flushed(f"system.part_log WHERE concat(database, '.', table) = '{table}'") == 0
    kinds, text = shop.judge(block, *others)
    assert kinds == [], text
    forged, partial = shop.block(table), shop.block(table)
    partial.rows = ROWS + 1  # its view's row is none of its own
    for one in (forged, partial):
        shop.claim(one)
        shop.insert(one, holds=one is partial)
        shop.mark(one)
    kinds, text = shop.judge(block, *others, forged, partial)
    assert kinds == [AnomalyKind.GAP] * 2, text
    assert f"block {forged.id} is loaded, but the server recorded 0 rows of 10" in text
    assert f"block {partial.id} is loaded, but the server recorded 0 rows of 11" in text


@pytest.mark.parametrize(
    "more", ["at DateTime64(9) DEFAULT now64(9)", "at UUID MATERIALIZED generateUUIDv4()"]
)
def test_a_second_copy_that_no_version_absorbs(shop: Shop, more: str) -> None:
    """The server makes its key: the rows of a repeat are others."""
    columns = STAMPED.replace("v UInt64 DEFAULT 1", f"v UInt64 DEFAULT 1, {more}")
    table = shop.table(engine="ReplacingMergeTree(v)", columns=columns, key="(id, at)")
    block = shop.block(table)
    shop.load(block)
    kinds, text = shop.judge(block)
    assert kinds == [], text
    shop.insert(block, token=False)
    kinds, text = shop.judge(block)
    assert set(kinds) == {AnomalyKind.OVERLAP}, text


REMOVALS = [
    "ALTER TABLE {table} DELETE WHERE id % 2",
    "DELETE FROM {table} WHERE id % 2",
    "ALTER TABLE {table} DROP PARTITION tuple()",
    "ALTER TABLE {table} DETACH PARTITION tuple()",
    "ALTER TABLE {table} DROP PART 'all_1_1_0'",
    "TRUNCATE TABLE {table}",
    "ALTER TABLE {table} REPLACE PARTITION tuple() FROM {table}_other",
    "ALTER TABLE {table} MOVE PARTITION tuple() TO TABLE {table}_other",
    "EXCHANGE TABLES {table} AND {table}_other",
    "CREATE OR REPLACE TABLE {table} AS {table}_other",
    "ALTER TABLE {table} UPDATE _block = '' WHERE id % 2",
    "ALTER TABLE {table} CLEAR COLUMN _block",
    "ALTER TABLE {table} RENAME COLUMN _block TO old, ADD COLUMN _block LowCardinality(String)",
    "ALTER TABLE {table} MODIFY TTL day + INTERVAL 30 DAY",
]


@pytest.mark.parametrize("statement", REMOVALS)
def test_rows_that_a_person_removed(shop: Shop, statement: str) -> None:
    """No anomaly, and a sentence with the statement; what was never there is found all the same."""
    table = shop.table()
    other = shop.table("t_other")
    shop.insert(shop.block(other))
    block = shop.block(table)
    shop.load(block, age_days=45)
    shop.sql(statement.format(table=table), mutations_sync=2, alter_sync=2)
    if "TTL" in statement:
        expire(shop, table)
        shop.sql(f"ALTER TABLE {table} REMOVE TTL")
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert "rows were removed at" in text
    assert "what is missing now is not judged: 1 block" in text
    later = shop.block(table)
    later.sealed_at_ms += 6_000  # beyond what clocks may differ
    shop.claim(later)
    shop.mark(later)
    assert AnomalyKind.GAP in shop.judge(block, later)[0]


@pytest.mark.parametrize("columns", [STAMPED, BARE])
def test_a_removal_excuses_no_block_that_was_never_written(shop: Shop, columns: str) -> None:
    """The server's record is whole: an INSERT of no row is a loss, whatever was removed later."""
    table = shop.table(columns=columns)
    block, forged, partial = (shop.block(table) for _ in range(3))
    shop.load(block)
    shop.load(partial)
    shop.claim(forged)
    shop.insert(forged, holds=False)
    shop.mark(forged)
    shop.sql(f"DELETE FROM {table} WHERE id = 3")
    kinds, text = shop.judge(block, forged, partial)
    assert kinds == [AnomalyKind.GAP], text
    assert f"block {forged.id} is loaded, but the server recorded 0 rows of 10" in text


HARMLESS = [
    "ALTER TABLE {table} RENAME COLUMN v TO ttl",
    "ALTER TABLE {table} ADD COLUMN ttl UInt32 DEFAULT 1",
    "ALTER TABLE {table} UPDATE v = 2 WHERE _block != 'DELETE'",
    "ALTER TABLE {table} MODIFY TTL day + INTERVAL 30 DAY TO DISK 'default'",
    "ALTER TABLE {table} MOVE PARTITION tuple() TO DISK 'default'",
    "DELETE FROM {table} WHERE _block = '{old}'",
    "ALTER TABLE {table} DELETE WHERE _block = '{old}' AND id > 3",
]


@pytest.mark.parametrize("statement", HARMLESS)
def test_statements_that_excuse_no_other_block(shop: Shop, statement: str) -> None:
    """They remove no rows, or those of one block: of another, whatever is missing is lost."""
    table = shop.table()
    old, block, forged = (shop.block(table) for _ in range(3))
    shop.load(old)
    shop.load(block, age_days=45)
    shop.claim(forged)
    shop.mark(forged)
    statement = statement.format(table=table, old=old.id)
    with contextlib.suppress(ClickHouseError):  # a part that is there already is not moved
        shop.sql(statement, mutations_sync=2, alter_sync=2)
    kinds, text = shop.judge(old, block, forged)
    assert kinds == [AnomalyKind.GAP], text
    assert f"{forged.id} is loaded, but the table has 0 of its 10 rows" in text
    assert ("rows were removed at" in text) == (old.id in statement)


def test_blocks_loaded_before_the_table_had_the_column(shop: Shop) -> None:
    """Their rows carry no id: the record judges them, as before; later blocks are counted."""
    table = shop.table(columns=BARE)
    block, forged, doubled = (shop.block(table) for _ in range(3))
    for one in (block, doubled):
        shop.load(one)
    shop.claim(forged)
    shop.insert(forged, holds=False)
    shop.mark(forged)
    shop.stamp(table)
    later, lost = shop.block(table), shop.block(table)
    shop.load(later)
    kinds, text = shop.judge(block, later)
    assert kinds == [], text
    said = "loaded before the table had _block: what is missing now is not judged by counting"
    assert f"{said}: 1 block, 10 rows ({block.id})" in text
    assert later.id not in text
    shop.claim(lost)
    shop.mark(lost)
    kinds, text = shop.judge(block, later, forged, lost)
    assert kinds == [AnomalyKind.GAP] * 2, text
    assert f"{lost.id} is loaded, but the table has 0 of its 10 rows; no removal" in text
    assert f"{forged.id} is loaded, but the server recorded 0 rows of 10" in text
    shop.insert(doubled, token=False)
    kinds, text = shop.judge(block, later, doubled)
    assert kinds == [AnomalyKind.OVERLAP], text


def test_who_may_not_ask_when_the_table_got_the_column(shop: Shop) -> None:
    """The ledger knows it, where the server keeps no record or shows none."""
    table = shop.in_office("early", BARE)
    block = shop.block(table)
    shop.load(block)
    shop.stamp(table)
    lost = shop.block(table)
    kinds, text = shop.judge(block, user=CLERK)
    assert kinds == [], text
    assert "loaded before the table had _block" in text
    assert "only the ledger says that it is loaded: 1 block" in text
    shop.claim(lost)
    shop.mark(lost)
    kinds, text = shop.judge(block, lost, user=CLERK)
    assert kinds == [AnomalyKind.GAP], text
    assert lost.id in text


@pytest.mark.parametrize("by", ["bare", "stamped"])
def test_a_block_claimed_before_and_after_the_table_had_the_column(shop: Shop, by: str) -> None:
    """Which claim's INSERT wrote the rows, the record tells; then they can be counted or not."""
    table = shop.table(columns=BARE)
    block = shop.block(table)
    shop.claim(block, claim="bare")
    if by == "bare":
        shop.insert(block, claim="bare")
    shop.stamp(table)
    shop.claim(block, attempt=2, claim="stamped")
    shop.insert(block, claim="stamped")
    shop.mark(block)
    kinds, text = shop.judge(block)
    assert (kinds, shop.count(table)) == ([], ROWS), text
    assert ("loaded before the table had _block" in text) == (by == "bare")
    shop.sql(f"DROP TABLE {table} SYNC", log_queries=0)  # all that the server records goes, too
    shop.table()
    kinds, text = shop.judge(block)
    assert kinds == ([] if by == "bare" else [AnomalyKind.GAP]), text


@pytest.mark.parametrize("unlike", [{"sent": "dead letters"}, {"transform": "-"}])
def test_a_claim_that_inserts_nothing_leaves_no_row_without_its_id(
    shop: Shop, unlike: dict[str, str]
) -> None:
    """Loaders write such a claim as if the table had no block-id column."""
    table = shop.table()
    block = shop.block(table)
    shop.claim(block)
    shop.claim(block, attempt=2, claim="d", stamped=False, **unlike)
    shop.mark(block)
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.GAP], text
    assert "the table has 0 of its 10 rows" in text


def test_a_ledger_of_an_earlier_version_knows_the_column_too(shop: Shop) -> None:
    table = shop.table(columns=BARE)
    block = shop.block(table)
    shop.load(block)
    shop.stamp(table)
    dropped = ", ".join(f"DROP COLUMN {column}" for column in sorted(LEDGER_LATER))
    shop.sql(f"ALTER TABLE {shop.ledger} {dropped}")
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert "loaded before the table had _block" in text


def test_rows_that_a_person_deduplicated(shop: Shop) -> None:
    """OPTIMIZE … DEDUPLICATE removes rows within a merge; both blocks have the same ids."""
    table = shop.table()
    block, other = shop.block(table), shop.block(table)
    shop.load(block)
    shop.load(other)
    shop.sql(f"OPTIMIZE TABLE {table} FINAL DEDUPLICATE BY id")
    assert shop.count(table) == 10
    kinds, text = shop.judge(block, other)
    assert kinds == [], text
    assert "rows were removed at" in text


def test_a_lightweight_update_removes_rows_too(shop: Shop) -> None:
    """A DELETE that is no mutation, but a patch."""
    more = "enable_block_number_column = 1, enable_block_offset_column = 1"
    table = shop.table(more=f"SETTINGS {more}", window=False)
    block = shop.block(table)
    shop.load(block)
    shop.sql(
        f"DELETE FROM {table} WHERE id = 3",
        lightweight_delete_mode="lightweight_update",
        enable_lightweight_update=1,
    )
    assert shop.count(table) == 9
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert "rows were removed at" in text


@pytest.mark.parametrize("how", ["ALTER TABLE {table} DELETE", "DELETE FROM {table}"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_delete_that_was_killed(shop: Shop, how: str, *, waits: bool) -> None:
    """It took the rows of one partition and failed at the next: no system table has it any more."""
    parted = "PARTITION BY id >= 5"
    table, other = shop.table(more=parted), shop.table("t2", more=parted)
    block, lost = shop.block(table), shop.block(other)
    shop.load(block)
    shop.claim(lost)
    shop.mark(lost)
    delete = f"{how.format(table=table)} WHERE throwIf(id = 7) = 0"
    synced = {"mutations_sync": int(waits), "lightweight_deletes_sync": int(waits)}
    with pytest.raises(ClickHouseError, match="UNFINISHED") if waits else contextlib.nullcontext():
        shop.sql(delete, **synced)
    wait_until(lambda: shop.count(table) == 5, "the rows of a partition are gone")
    shop.sql(f"KILL MUTATION WHERE database = '{shop.database}' AND table = 't' SYNC")
    assert shop.count(f"system.mutations WHERE database = '{shop.database}'") == 0
    # Of another table, and of a statement that was refused, nothing follows.
    with pytest.raises(ClickHouseError, match="UNKNOWN_IDENTIFIER"):
        shop.sql(f"{how.format(table=other)} WHERE no_such = 1")
    kinds, text = shop.judge(block, lost)
    assert kinds == [AnomalyKind.GAP], text
    assert f"{lost.id} is loaded, but the table has 0 of its 10 rows; no removal of rows" in text
    assert "rows were removed at" in text
    assert f"what is missing now is not judged: 1 block, 5 rows ({block.id})" in text


def test_a_delete_that_the_server_has_forgotten(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica ran it, whose query log is not asked; then came as many as a table shows."""
    asked = table_facts._STATEMENTS.replace("system.query_log", "system.no_query_log")
    monkeypatch.setattr(table_facts, "_STATEMENTS", asked)
    kept = f"SETTINGS finished_mutations_to_keep = 3, {CLEANS_SOON}"
    table = shop.table(more=kept, window=False)
    block = shop.block(table)
    shop.load(block)
    shop.sql(f"ALTER TABLE {table} DELETE WHERE 1", mutations_sync=2)
    for n in range(5):
        shop.sql(f"ALTER TABLE {table} UPDATE v = {n} WHERE id = -1", mutations_sync=2)
    shown = f"system.mutations WHERE database = '{shop.database}'"
    deletes = f"{shown} AND command LIKE '%DELETE%'"
    wait_until(lambda: shop.count(deletes) == 0, "the server forgets the DELETE")
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert "finished_mutations_to_keep): what is missing now is not judged: 1 block" in text
    await_next_second(shop.client)
    forged = shop.block(table)
    shop.claim(forged)
    shop.mark(forged)
    kinds, text = shop.judge(block, forged)
    assert kinds == [AnomalyKind.GAP], text


@pytest.mark.long  # 40 s
def test_merges_are_no_removals(shop: Shop) -> None:
    """Parts that were merged are removed as files; a gap beside them is found."""
    cleaned = "old_parts_lifetime = 0, merge_tree_clear_old_parts_interval_seconds = 1"
    table = shop.table(more=f"SETTINGS {cleaned}", window=False)
    blocks = [shop.block(table) for _ in range(4)]
    for block in blocks:
        shop.load(block)
    shop.sql(f"OPTIMIZE TABLE {table} FINAL")
    shop.sql(f"ALTER TABLE {table} UPDATE v = 2 WHERE 1", mutations_sync=2)
    removed = f"system.part_log WHERE event_type = 'RemovePart' AND database = '{shop.database}'"
    wait_until(lambda: shop.flushed(removed) >= 4, "merged parts to be removed")
    forged = shop.block(table)
    forged.sealed_at_ms -= 2_000
    shop.claim(forged)
    shop.mark(forged)
    kinds, text = shop.judge(*blocks, forged)
    assert kinds == [AnomalyKind.GAP], text
    assert "no removal of rows is recorded since" in text


def test_what_a_rewind_removed_excuses_nothing_else(shop: Shop) -> None:
    """`loader supersede` deletes by block id, and only of those blocks rows are gone."""
    table = shop.table()
    old, live, forged = shop.block(table), shop.block(table), shop.block(table)
    shop.load(old)
    shop.load(live)
    shop.claim(forged)
    shop.mark(forged)
    shop.sql(f"ALTER TABLE {table} DELETE WHERE _block IN ('{old.id}')", mutations_sync=2)
    rewind = Rewind(starts=[Mark(table=table, offset=0)])
    before = [Commit(blocks=[old]), Commit(rewind=rewind), Commit(rewound=True)]
    kinds, text = shop.judge(old, live, forged, superseded=[before])
    assert kinds == [AnomalyKind.GAP], text
    assert forged.id in text


def test_several_blocks_in_one_insert(shop: Shop) -> None:
    table = shop.table()
    blocks = [shop.block(table) for _ in range(3)]
    shop.load(*blocks)
    shop.sql(f"OPTIMIZE TABLE {table} FINAL")
    assert shop.judge(*blocks) == ([], "")
    shop.insert(blocks[1])
    shop.sql(f"ALTER TABLE {table} MODIFY TTL day + INTERVAL 30 DAY")
    kinds, text = shop.judge(*blocks)
    assert kinds == [AnomalyKind.OVERLAP, AnomalyKind.OVERLAP], text
    assert "3 blocks in one INSERT" in text


@pytest.mark.parametrize("times", [1, 5])
def test_rows_that_the_user_may_not_see(shop: Shop, times: int) -> None:
    """FAULTS A2: a policy hides them; the server's record shows how often they came."""
    table = shop.in_office("hidden")
    block = shop.block(table)
    shop.load(block)
    for _ in range(times - 1):
        shop.insert(block, token=False)
    kinds, text = shop.judge(block, user=AUDITOR)
    assert set(kinds) == (set() if times == 1 else {AnomalyKind.OVERLAP}), text
    assert "a row policy or filter hides rows from this user: missing rows are not judged" in text


def test_a_user_who_may_read_tables_alone(shop: Shop) -> None:
    """Each question that is refused is named, with what to grant; nothing else changes."""
    table, bare = shop.in_office("seen"), shop.in_office("bare", BARE)
    block, forged, unknown = shop.block(table), shop.block(table), shop.block(bare)
    for one in (block, unknown):
        shop.load(one)
    shop.claim(forged)
    shop.mark(forged)
    kinds, text = shop.judge(block, forged, unknown, user=CLERK)
    assert kinds == [AnomalyKind.GAP], text
    assert "GRANT SELECT ON system.mutations TO clerk" in text
    kinds, more = shop.judge(block, forged, user=CLERK, removed=[table])
    assert kinds == [], more
    assert "rows were removed on purpose (--removed)" in more
    assert f"{bare}: this user may not read system.query_log (GRANT SELECT ON system" in text
    assert "only the ledger says that it is loaded: 1 block" in text


def test_a_table_that_may_not_be_read_keeps_no_other_from_being_judged(shop: Shop) -> None:
    """It ended the audit, with what was wrong with the tables behind it unsaid."""
    closed, seen = shop.table(), shop.in_office("seen")
    assert closed < seen, "it comes first"
    hidden, parked, loaded, forged = (shop.block(one) for one in (closed, closed, seen, seen))
    for one in (hidden, loaded):
        shop.load(one)
    shop.mark(parked, state="parked")
    shop.claim(forged)
    shop.mark(forged)
    kinds, text = shop.judge(hidden, parked, loaded, user=CLERK)
    assert kinds == [], text
    kinds, text = shop.judge(hidden, parked, loaded, forged, user=CLERK)
    assert kinds == [AnomalyKind.GAP], text
    assert f"block {forged.id} is loaded, but the table has 0 of its 10 rows" in text
    assert f"\n{closed}: ClickHouse at " in text
    assert {table: error.exit_code for table, error in shop.failed.items()} == {closed: 5}
    assert shop.waiting == {}, "whether its rows are in the table is not known"


def test_a_server_that_is_away_is_not_asked_of_each_table(shop: Shop) -> None:
    table = shop.table()
    landing = Landing(shop.settings(), {})
    landing._rows._client.close()
    away = OperationalError("nobody answers")
    with (
        mock.patch.object(landing._rows, "_client", mock.Mock(query=mock.Mock(side_effect=away))),
        pytest.raises(ClickHouseAway),
    ):
        list(landing.judge([shop.block(table)]))
    assert (landing.failed, landing.not_judged) == ({}, [])


def test_a_table_that_keeps_no_rows(shop: Shop) -> None:
    """Engine Null feeds its views alone: nothing of it is there, and nothing is missing."""
    table = f"{shop.database}.t"
    shop.sql(f"CREATE TABLE {table} {STAMPED} ENGINE = Null")
    into = shop.view(table)
    block = shop.block(table)
    shop.load(block)
    assert shop.count(into, "sum(n)") == 10
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert "engine Null does not keep every row" in text
    shop.insert(block, token=False)
    assert shop.judge(block)[0] == [AnomalyKind.OVERLAP], "its view got it twice"


def test_a_table_that_was_dropped(shop: Shop) -> None:
    table = shop.table()
    block = shop.block(table)
    shop.load(block)
    shop.sql(f"DROP TABLE {table} SYNC")
    kinds, text = shop.judge(block)
    assert kinds == [], text
    assert f"{table}: the table does not exist now, or this user may not see it" in text


def test_rows_of_a_block_that_nobody_sealed(shop: Shop) -> None:
    table = shop.table()
    block, stranger = shop.block(table), shop.block(table, partition=1)
    shop.load(block)
    shop.insert(stranger)
    kinds, text = shop.judge(block)
    assert kinds == [AnomalyKind.FOREIGN], text
    assert f"foreign: partition 1: 10 rows carry block id '{stranger.id}'" in text


def test_a_user_who_may_set_nothing(shop: Shop) -> None:
    table = shop.in_office("bare", BARE)
    block, lost = shop.block(table), shop.block(table)
    shop.load(block)
    shop.mark(lost)
    kinds, text = shop.judge(block, lost, user=ONLOOKER)
    assert kinds == [AnomalyKind.GAP], text


def test_a_server_whose_records_are_gone(app: str, tmp_path: Path) -> None:
    """Without them a table without the block-id column has the ledger's word alone."""
    with running(tmp_path, flush_ms=600_000) as port:  # it is killed before it writes them
        shop = Shop(port, app)
        block = shop.block(shop.table(columns=BARE))
        shop.load(block)
    with pytest.raises(ClickHouseError):
        Optional(shop.client, "somebody").ask("anything", "SELECT 1")
    with running(tmp_path) as port:
        kinds, text = shop.moved(port).judge(block)
        assert kinds == [], text
        assert "only the ledger says that it is loaded: 1 block" in text


def test_questions_that_are_not_answered(shop: Shop) -> None:
    """Each is remembered with its reason, until it is answered."""
    optional = Optional(shop.client, "somebody")
    assert optional.ask("system.no_log (rows)", "SELECT 1 FROM system.no_log") is None
    assert optional.unanswered == {"system.no_log (rows)": "the server keeps no system.no_log"}
    assert optional.ask("thrown", "SELECT throwIf(1)") is None
    assert "thrown gave error 395" in optional.unanswered["thrown"]
    assert optional.ask("thrown", "SELECT 1") == [(1,)]
    assert "thrown" not in optional.unanswered


def test_a_person_who_found_the_rows(shop: Shop) -> None:
    """`loader parked resolve`: a word proves no row, and what was inserted for it is judged."""
    table = shop.table(columns=BARE)
    block, said, retried, gone = (shop.block(table) for _ in range(4))
    shop.load(block)
    for one in (said, retried, gone):
        shop.claim(one)
        shop.mark(one, state="parked", reason="it could not be told")
    shop.mark(said, reason=names.SAID_LOADED)
    shop.claim(retried, attempt=2)
    shop.insert(retried)
    shop.mark(retried)
    kinds, text = shop.judge(block, said, retried)
    assert kinds == [], text
    word = "the server did not record all of its rows: only a person says that it is loaded"
    assert text == f"{table}: {word}: 1 block ({said.id})"
    shop.mark(gone)
    kinds, text = shop.judge(block, said, retried, gone)
    assert kinds == [AnomalyKind.GAP], text
    assert f"{gone.id} is loaded, but the server recorded 0 rows of 10" in text


def test_a_person_who_found_the_rows_of_one_of_two(shop: Shop) -> None:
    """Their view failed in one INSERT: of the other block it is a gap, whatever they said."""
    table = shop.table()
    shop.view(table, "n UInt64, CONSTRAINT few CHECK n < 5")
    block, said = shop.block(table), shop.block(table)
    shop.claim(block, said)
    with pytest.raises(Exception, match="VIOLATED_CONSTRAINT"):
        shop.insert(block, said)
    shop.mark(block, said, state="parked", reason="it could not be told")
    shop.mark(said, reason=names.SAID_LOADED)
    shop.mark(block)
    kinds, text = shop.judge(block, said)
    assert kinds == [AnomalyKind.GAP], text
    lacks = f"view {table}_view failed with error 469 and no later INSERT brought it the rows"
    assert f"block {block.id} is loaded, but {lacks}" in text
    assert f"{table}: {lacks}: only a person says that it is loaded: 1 block ({said.id})" in text


def test_a_block_is_not_late_for_what_the_questions_take(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is read first: a server that is slow then says nothing of the loaders."""
    table, passed, asked = shop.table(), [0], LandedRows.counted

    def slowly(self: LandedRows, table: str) -> dict[str, int] | None:
        passed[0] += 60 * 10**9
        return asked(self, table)

    clock = SimpleNamespace(time_ns=lambda: time.time_ns() + passed[0])
    monkeypatch.setattr("relay.operate.verify.landing.time", clock)
    monkeypatch.setattr(LandedRows, "counted", slowly)
    assert shop.judge(shop.block(table, sealed_ago=LATE_SECONDS / 4))[0] == []
    assert shop.judge(shop.block(table, sealed_ago=2 * LATE_SECONDS))[0] == [AnomalyKind.LATE]


def test_blocks_that_wait(shop: Shop) -> None:
    """Those of the journal and older ones; one that is loaded by now, or given up, does not."""
    table, other = shop.table(), shop.table("other")
    parked, aside, again, loaded, old = (shop.block(one) for one in [table] * 4 + [other])
    for block in (parked, aside, again, loaded, old):
        shop.mark(block, state="parked" if block is parked else "aside")
    again.sealed_at_ms -= 3_600_000
    shop.claim(again, attempt=2)
    shop.insert(parked)
    shop.load(loaded)
    kinds, text = shop.judge(parked, aside, again, loaded)
    assert kinds == [], text
    found = {
        table: {one.block.id: (one.state, one.rows) for one in some}
        for table, some in shop.waiting.items()
    }
    mine = {parked.id: ("parked", 10), aside.id: ("aside", 0), again.id: ("aside", 0)}
    assert found == {table: mine, other: {old.id: ("aside", 0)}}
    assert shop.waiting[other][0].block == old, "as the ledger has it"
