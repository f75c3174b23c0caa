"""Blocks on the tables that users have, on a real server: no false alarm, and no silent loss.

Each case of a fault stands beside its control: the same table, loaded as it should be.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.read.optional import Optional
from relay.records_pb2 import Commit, Mark, Rewind
from tests.broker.pipeline import wait_until
from tests.verify.realserver import AUDITOR, CLERK, ONLOOKER, running
from tests.verify.shop import BARE, STAMPED, Shop

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
    with running(tmp_path) as port:
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
    """`loader parked resolve --loaded`: the record has no INSERT of it, and need not."""
    table = shop.table(columns=BARE)
    block, said = shop.block(table), shop.block(table)
    shop.load(block)
    shop.claim(said)
    shop.mark(said, reason="a person found all of its rows in the table")
    assert shop.judge(block, said) == ([], "")
